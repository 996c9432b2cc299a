"""Measure the contributions of label smoothing, dropout, averaging and beam search."""

from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value
from seq2see.lab.models import small_model
from seq2see.lab.tasks import some_dates

PLACES = "beam"
AVERAGED = 5
BEAMS = (1, 2, 4, 10)
"""The paper uses 4."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    common = {"pairs": 1000, "tests": 1000, "steps": 300 if plan.quick else 2500}
    return [
        {"smoothing": smoothing, "dropout": dropout, **common}
        for smoothing, dropout in ((0.1, 0.1), (0.0, 0.1), (0.1, 0.0))
    ]


def measure(trial: Trial) -> Numbers:
    """Train on few dates, so that overfitting is possible; score the last model, with beams, and the average."""
    dates = some_dates(trial.seed, trial["pairs"], trial["tests"])
    model = small_model(trial.seed, dates.vocabularies, dropout=trial["dropout"])
    kept: list[dict[str, Tensor]] = []
    steps = trial["steps"]

    def keep(step: int) -> None:
        if step > steps - AVERAGED * 10 and (steps - step) % 10 == 0:
            kept.append({name: weight.detach().clone() for name, weight in model.state_dict().items()})

    learning.train(
        model,
        dates.batches(trial.seed, 48),
        steps,
        keep,
        learning_rate=5e-3,
        schedule="noam",  # as in the paper: the learning rate never reaches 0, which is what averaging is for
        label_smoothing=trial["smoothing"],
    )
    numbers = {f"exact@{beam}": learning.accuracy(model, dates.test, beam)[0] for beam in BEAMS}
    last = learning.loss(model, dates.test)
    model.load_state_dict({name: torch.stack([each[name] for each in kept]).mean(0) for name in kept[0]})
    averaged, (exact, _) = learning.loss(model, dates.test), learning.accuracy(model, dates.test)
    return {**numbers, "loss": last, "loss_averaged": averaged, "averaging": last - averaged, "exact_averaged": exact}


def _exact(rows: Measurements, smoothing: float = 0.1, dropout: float = 0.1, beam: int = 1) -> float:
    return rows.get("exact", smoothing=smoothing, dropout=dropout, beam=beam)


VALUES: dict[str, Value] = {
    "smoothing-loss": lambda rows: rows.get("loss", smoothing=0.1, dropout=0.1) - rows.get("loss", smoothing=0.0),
    "smoothing-accuracy": lambda rows: _exact(rows) - _exact(rows, smoothing=0.0),
    "dropout": lambda rows: _exact(rows) - _exact(rows, dropout=0.0),
    "averaging": lambda rows: rows.get("averaging", smoothing=0.1, dropout=0.1),
    "beam": lambda rows: _exact(rows, beam=4) - _exact(rows),
}
