"""The display of a training: time left at the speed of this process, validations, and a bar on a terminal."""

from pathlib import Path

import pytest

from seq2see import config
from seq2see.api import Began
from seq2see.cli.display import Display
from seq2see.text.pair import Sides
from seq2see.training.events import Finished, Returned, Shrunk, Stepped, ThreadsChanged, Trained, Validated


def began(step: int, seconds: float, **training: object) -> Began:
    settings = config.resolve({"training": {"max_steps": 1000, **training}})
    return Began(Path("run"), settings, 9, 9, {}, 9, (9, 9), "CPU", step, seconds, Sides(), [])


def trained(step: int, seconds: float) -> Trained:
    return Trained(step, 0, 1.0, 1.0, 1.0, 1e-3, 100.0, seconds)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_a_new_training_counts_from_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()
    display.show(began(0, 0.0))
    display.show(trained(100, 10.0))
    assert last_line(capsys).endswith("1:30 left")


def test_after_a_resume_the_speed_is_that_of_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    """500 steps took 5,000 s on another machine; 10 steps took 1 s here, so that the other 490 take 49 s."""
    display = Display()
    display.show(began(500, 5000.0))
    display.show(trained(510, 5001.0))
    assert last_line(capsys).endswith("0:49 left")


def test_minutes_that_are_allowed_count_from_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()
    display.show(began(500, 100.0, max_minutes=2))
    display.show(trained(510, 110.0))
    assert last_line(capsys).endswith("0:10 left")


def test_a_line_between_two_rows_of_the_log_repeats_no_old_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2see.cli.display.QUIET_SECONDS", -1)
    display = Display()
    display.show(began(0, 0.0))
    display.show(trained(50, 5.0))
    assert last_line(capsys) == "step      50  loss 1.000  learning rate 1.0e-03  100 tokens/s  1:35 left"
    display.show(Stepped(95, 9.5))
    assert last_line(capsys) == "step      95  1:30 left"


def test_after_going_back_the_steps_that_are_lost_do_not_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A return may lead to a step before the one that was resumed from."""
    monkeypatch.setattr("seq2see.cli.display.QUIET_SECONDS", -1)
    display = Display()
    display.show(began(500, 5000.0))
    display.show(Stepped(600, 5100.0))
    display.show(Returned(400, 600, 5, 1))
    display.show(trained(500, 5150.0))
    assert last_line(capsys).endswith("4:10 left")


def test_everything_that_happens_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as display:
        display.show(began(7, 0.0))
        assert display.step == 7
        display.show(Shrunk(8, 2048))
        display.show(Validated(10, {"loss": 1.23456, "exact": 98.765}, True))
        display.show(Validated(10, {"loss": 1.23456, "exact": 98.765}, True, "average of 5"))
        assert display.step == 10
        display.show(Finished(12, "all 12 steps done", 61.0))
    *_, shrunk, validated, averaged, done = capsys.readouterr().err.splitlines()
    assert shrunk == "step       8  out of memory: micro-batches of 2,048 tokens from now on; the updates stay the same"
    assert validated == "step      10  validation loss 1.235  exact 98.77  best"
    assert averaged == "step      10  validation loss 1.235  exact 98.77  chosen  (average of 5)"
    assert done == "done: all 12 steps done, 1 min 1 s"


def test_a_terminal_shows_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    with Display() as display:
        display.show(began(0, 0.0))
        display.show(trained(100, 10.0))
        display.show(Stepped(101, 10.1))
        display.show(Finished(101, "interrupted", 10.1))
    shown = capsys.readouterr().err
    assert "step 101/1,000" in shown
    assert "done" not in shown


@pytest.mark.parametrize(("threads", "words"), [(1, "with 1 thread from now on"), (3, "with 3 threads from now on")])
def test_another_number_of_threads_is_announced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, threads: int, words: str
) -> None:
    Display().show(ThreadsChanged(1234, threads, "other programs keep 1.0 of 4 cores busy"))
    line = last_line(capsys)
    assert line.startswith("step   1,234  computing")
    assert words in line
    assert "1.0 of 4 cores" in line
    monkeypatch.setenv("SEQ2SEE_LANG", "ko")
    Display().show(ThreadsChanged(1234, threads, "other programs keep 1.0 of 4 cores busy"))
    assert f"스레드 {threads}개" in last_line(capsys)
