"""A log whose reader goes away, is stopped, or has no room."""

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from seq2see.serve import log
from seq2see.serve.log import Log

PATIENCE = 30.0


class Count:
    """Counts the lines that were dropped."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, lines: int) -> None:
        self.lines += lines


def wait_until(condition, what):
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.01)


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "wb", 0) as writer:
        yield reader, writer


def test_lines_are_written_in_order_and_the_descriptor_is_given_back(tmp_path: Path):
    path, count = tmp_path / "log", Count()
    with path.open("wb") as file:
        before = os.fstat(file.fileno())
        with Log(count, file.fileno()):
            for number in range(1000):
                os.write(file.fileno(), b"line %d\n" % number)
            os.write(file.fileno(), b"not ended")
        assert os.fstat(file.fileno()) != os.fstat(0)
        assert os.fstat(file.fileno()).st_ino == before.st_ino
    lines = path.read_text().splitlines()
    assert lines == [*(f"line {number}" for number in range(1000)), "not ended"]
    assert count.lines == 0


def test_where_the_reader_is_gone_lines_are_dropped_and_counted(pipe):
    writing = pipe[1].fileno()
    count = Count()
    with Log(count, writing):
        pipe[0].close()
        for _ in range(100):
            os.write(writing, b"nobody reads this\n")
        wait_until(lambda: count.lines == 100, "not counted")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_where_the_disk_is_full_lines_are_dropped_and_counted():
    count = Count()
    with Path("/dev/full").open("wb", buffering=0) as file, Log(count, file.fileno()):
        os.write(file.fileno(), b"one\ntwo\n")
        wait_until(lambda: count.lines == 2, "not counted")


def test_a_reader_that_does_not_read_stops_nobody_and_hears_of_it_later(pipe, monkeypatch):
    reading, writing = pipe[0].fileno(), pipe[1].fileno()
    monkeypatch.setattr(log, "SECONDS_AT_END", PATIENCE)
    count, line = Count(), b"x" * 999 + b"\n"
    with Log(count, writing):
        for _ in range(5000):  # five times as much as waits
            os.write(writing, line)
        wait_until(lambda: count.lines > 1000, "not dropped")
        heard: list[bytes] = []
        reader = threading.Thread(target=lambda: heard.extend(iter(lambda: os.read(reading, 1 << 20), b"")))
        reader.start()
        wait_until(lambda: b"".join(heard).count(b"\n") + count.lines >= 5000, "not written")
        os.write(writing, b"the last\n")
        wait_until(lambda: b"the last\n" in b"".join(heard), "not written")
    pipe[1].close()
    reader.join(PATIENCE)
    lines = b"".join(heard).splitlines()
    assert lines.count(line[:-1]) + count.lines == 5000
    told = [int(each.split()[1]) for each in lines if each.endswith(b"lines of the log were dropped")]
    assert sum(told) == count.lines


def test_a_log_that_nobody_reads_does_not_keep_the_service_from_ending(pipe, monkeypatch):
    monkeypatch.setattr(log, "SECONDS_AT_END", 0.1)
    writing = pipe[1].fileno()
    begun = time.monotonic()
    with Log(Count(), writing):
        for _ in range(300):
            os.write(writing, b"x" * 1000 + b"\n")
    assert time.monotonic() - begun < PATIENCE


def test_standard_error_that_is_non_blocking_loses_nothing(pipe, monkeypatch):
    reading, writing = pipe[0].fileno(), pipe[1].fileno()
    monkeypatch.setattr(log, "SECONDS_AT_END", PATIENCE)
    os.set_blocking(writing, False)
    count = Count()
    heard: list[bytes] = []
    with Log(count, writing):
        os.write(writing, b"line\n" * 50_000)
        reader = threading.Thread(target=lambda: heard.extend(iter(lambda: os.read(reading, 4096), b"")))
        reader.start()
    pipe[1].close()
    reader.join(PATIENCE)
    assert b"".join(heard) == b"line\n" * 50_000
    assert count.lines == 0


def test_after_a_line_that_was_cut_off_the_next_one_begins_anew(tmp_path: Path):
    path, count = tmp_path / "log", Count()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with path.open("ab", buffering=0) as file, Log(count, file.fileno()):
            resource.setrlimit(resource.RLIMIT_FSIZE, (14, hard))  # as a disk with room for 14 bytes
            os.write(file.fileno(), b"the first\nthe second\n")
            wait_until(lambda: count.lines == 1, "not counted")
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            os.write(file.fileno(), b"the third\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    lines = path.read_text().splitlines()
    assert lines == ["the first", "the ", "seq2see: 1 lines of the log were dropped", "the third"]


@pytest.mark.parametrize("problem", [BrokenPipeError(), OSError(28, "full"), ValueError("closed")])
def test_to_log_a_line_never_fails(monkeypatch, problem):
    class Broken:
        def write(self, text: str) -> None:
            raise problem

    monkeypatch.setattr(sys, "stderr", Broken())
    log.log("a line")
    log.report(KeyError("secret"), "a test")
    monkeypatch.setattr(sys, "stderr", None)
    log.log("a line")


def test_a_closed_standard_error_is_reserved(monkeypatch):
    free = os.open(os.devnull, os.O_WRONLY)
    os.close(free)
    monkeypatch.setattr(sys, "stderr", None)
    with Log(Count(), free):
        assert os.fstat(free)
    os.close(free)


def test_where_an_error_was_raised_is_told_but_not_its_words(capsys):
    text = "a user's"
    try:
        raise ValueError(text)
    except ValueError as problem:
        log.report(problem, "a test")
    said = capsys.readouterr().err
    assert said.startswith("seq2see: ValueError in a test\n")
    assert "test_log.py" in said
    assert "user's" not in said
