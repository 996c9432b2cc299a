"""Training candidates: what ends a candidate, what ends the training, and how long candidates are started."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2see.errors import PassingError, RunError
from seq2see.session import candidates
from seq2see.session.candidates import DEFAULT, Standing


def standing(name: str, losses: list[float], score: float | None = None) -> Standing:
    return Standing(name, 10, {str(place): loss for place, loss in enumerate(losses)}, score, 1.0, 1.0)


def test_a_challenger_whose_process_is_killed_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the suggested settings ends the training, and so does a full disk, after which --resume tries again."""
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

        def end(self) -> None:
            pass

    monkeypatch.setattr(candidates.machine, "WorkerProcess", Worker)
    places = {DEFAULT: Path("run"), "other": Path("run/trials/other")}
    answers |= {DEFAULT: standing(DEFAULT, [1.0]), "other": RunError("a worker process ended (signal 9).")}
    found = candidates._side_by_side(places, 10)
    assert found["other"].losses == {}
    assert found["other"].warning == "trials: other failed: a worker process ended (signal 9)."
    for name, problem in ((DEFAULT, RunError("killed")), ("other", PassingError("the disk is full"))):
        answers |= {DEFAULT: standing(DEFAULT, [1.0]), "other": standing("other", [1.0])} | {name: problem}
        with pytest.raises(RunError, match=str(problem)):
            candidates._side_by_side(places, 10)


def test_on_a_gpu_no_further_group_starts_when_the_minutes_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates of one group are trained side by side."""
    groups: list[list[str]] = []
    said: list[Any] = []

    def side_by_side(places: dict[str, Path], until: int) -> dict[str, Standing]:
        groups.append(list(places))
        return {name: Standing(name, until, {"a": 1.0}, None, 1.0, 1.0) for name in places}

    monkeypatch.setattr(candidates, "_side_by_side", side_by_side)
    monkeypatch.setattr(candidates.machine, "pick_device", lambda: torch.device("cuda"))
    places = {str(number): Path(str(number)) for number in range(candidates.MOST_AT_ONCE + 2)}
    found = candidates.train_all(places, 10, said.append, time.monotonic() - 61, minutes=1)
    assert groups == [list(places)[: candidates.MOST_AT_ONCE]]
    assert list(found) == groups[0]
    assert sum("not tried" in each.line for each in said) == 2


def test_a_failure_to_record_the_attention_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    failed = replace(standing("one", [1.0]), warning="warning: no longer recorded")
    monkeypatch.setattr(candidates, "advance", lambda *given: failed)
    candidates.train_all({"one": Path()}, 10, lambda event: said.append(str(getattr(event, "line", ""))), 0.0, 0)
    assert said[-1] == failed.warning
