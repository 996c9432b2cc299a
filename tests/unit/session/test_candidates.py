"""Training candidates: what ends a candidate, what ends the training, and how long candidates are started."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2see.errors import PassingError, RunError
from seq2see.session import candidates
from seq2see.session.candidates import DEFAULT, CandidateResult
from seq2see.session.request import Interrupted


def result(name: str, losses: list[float], score: float | None = None) -> CandidateResult:
    return CandidateResult(name, 10, {str(place): loss for place, loss in enumerate(losses)}, score, 1.0, 1.0)


def fake_workers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace worker processes by objects that answer a task at once, with the value for its candidate in the dict."""
    answers: dict[str, Any] = {}

    class Worker:
        def __init__(self, *given: object) -> None:
            pass

        def send(self, task: tuple[str, Path, int]) -> None:
            self.name = task[0]

        def receive(self) -> Any:
            if isinstance(answers[self.name], Exception):
                raise answers[self.name]
            return answers[self.name]

        def ask_to_stop(self) -> None:
            pass

        def end(self) -> None:
            pass

    monkeypatch.setattr(candidates.machine, "WorkerProcess", Worker)
    return answers


def test_a_challenger_whose_process_is_killed_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the suggested settings ends the training, and so does a full disk, after which --resume tries again."""
    answers = fake_workers(monkeypatch)
    places = {DEFAULT: Path("run"), "other": Path("run/trials/other")}
    answers |= {DEFAULT: result(DEFAULT, [1.0]), "other": RunError("a worker process ended (signal 9).")}
    found = candidates._side_by_side(places, 10)
    assert found["other"].losses == {}
    assert found["other"].warning == "trials: other failed: a worker process ended (signal 9)."
    for name, problem in ((DEFAULT, RunError("killed")), ("other", PassingError("the disk is full"))):
        answers |= {DEFAULT: result(DEFAULT, [1.0]), "other": result("other", [1.0])} | {name: problem}
        with pytest.raises(RunError, match=str(problem)):
            candidates._side_by_side(places, 10)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [(RunError("a worker process ended by signal 15"), Interrupted), (PassingError("the disk is full"), PassingError)],
)
def test_a_signal_that_kills_a_starting_worker_is_no_error(
    problem: Exception, expected: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the suggested settings was importing PyTorch, and did not handle the signal yet."""
    answers = fake_workers(monkeypatch)
    answers |= {DEFAULT: problem, "other": signal.SIGTERM.value}
    with pytest.raises(expected):
        candidates._side_by_side({DEFAULT: Path("run"), "other": Path("run/trials/other")}, 10)


def test_the_first_signal_while_a_pause_is_saved_is_not_a_second_one() -> None:
    stop = candidates._Pause()
    with stop.listening():
        stop.reached = True
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_on_a_gpu_no_further_group_starts_when_the_minutes_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates of one group are trained side by side."""
    groups: list[list[str]] = []
    said: list[Any] = []

    def side_by_side(places: dict[str, Path], until: int) -> dict[str, CandidateResult]:
        groups.append(list(places))
        return {name: CandidateResult(name, until, {"a": 1.0}, None, 1.0, 61.0) for name in places}

    monkeypatch.setattr(candidates, "_side_by_side", side_by_side)
    monkeypatch.setattr(candidates.machine, "pick_device", lambda: torch.device("cuda"))
    places = {str(number): Path(str(number)) for number in range(candidates.MOST_AT_ONCE + 2)}
    found = candidates.train_all(places, 10, said.append, minutes=1)
    assert groups == [list(places)[: candidates.MOST_AT_ONCE]]
    assert list(found) == groups[0]
    assert sum("not tried" in each.line for each in said) == 2


def test_minutes_before_an_interruption_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that were trained before are not trained again, but their checkpoints say how long it took."""
    said: list[Any] = []
    took = {DEFAULT: 40.0, "one": 30.0, "two": 1.0}
    monkeypatch.setattr(candidates, "advance", lambda name, *given: replace(result(name, [1.0]), seconds=took[name]))
    found = candidates.train_all({name: Path(name) for name in took}, 10, said.append, minutes=1)
    assert list(found) == [DEFAULT, "one"]
    assert said[-1].line == "trials: the 1 minutes are over: two is not tried"


def test_a_failure_to_record_the_attention_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    failed = replace(result("one", [1.0]), warning="warning: no longer recorded")
    monkeypatch.setattr(candidates, "advance", lambda *given: failed)
    candidates.train_all({"one": Path()}, 10, lambda event: said.append(str(getattr(event, "line", ""))), 0)
    assert said[-1] == failed.warning
