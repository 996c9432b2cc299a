"""Who waits at a terminal is told; files and pipes are not."""

import io
import itertools

import pytest

from seq2see.cli.messages import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def told(monkeypatch):
    """What a terminal got of two reports, 0.6 and 1.2 seconds after the begin."""

    def tell(stream):
        clock = itertools.count(0.0, 0.6)
        monkeypatch.setattr("seq2see.cli.messages.time.monotonic", lambda: next(clock))
        monkeypatch.setattr("sys.stderr", stream)
        with progress() as watch:
            watch("leaving out input tokens", 12, 60)
            watch("leaving out input tokens", 13, 60)
        return stream.getvalue()

    return tell


def test_a_terminal_is_told_once_it_takes_long(told):
    assert told(Terminal()) == "\r\x1b[Kleaving out input tokens: 13 of 60\r\x1b[K"


def test_a_pipe_is_not(told):
    assert told(io.StringIO()) == ""


def test_the_line_goes_away_before_an_error_is_said(monkeypatch):
    monkeypatch.setattr("seq2see.cli.messages.PATIENCE", -1)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)

    def fail():
        with progress() as watch:
            watch("heads", 1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert stream.getvalue().endswith("heads: 1 of 2\r\x1b[K")
