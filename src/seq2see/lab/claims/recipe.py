"""Measure the contributions of label smoothing, dropout, checkpoint averaging and beam search."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Conditions, Measurements, Numbers, Plan, Trial, Value
from seq2see.lab.models import OTHER_WEIGHTS, small_model
from seq2see.lab.tasks import some_dates

PLACES = "beam"
AVERAGED = 5
BEAMS = (1, 4, 10)
"""Beam widths that are measured: 1 (greedy), 4 as in the paper, and 10; the change from 4 to 10 is the control."""


USUAL = {"dates": "more", "smoothing": 0.1, "dropout": 0.1, "weights": 1}
FEW = USUAL | {"dates": "few"}
"""Conditions of the trials with few dates, which train for more epochs, so that a model without dropout overfits."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    more, few = ({"pairs": pairs, "tests": 1000} for pairs in (1000, 300))
    more["steps"], few["steps"] = (300, 450) if plan.quick else (600, 900)
    changes: tuple[dict[str, Any], ...] = ({}, {"smoothing": 0.0}, {"weights": 2})  # the last is the control
    return [USUAL | change | more for change in changes] + [FEW | few, FEW | {"dropout": 0.0} | few]


def measure(trial: Trial) -> Numbers:
    """Train on some dates; score the model after the last update with several beam widths, and the model with the
    average weights of `AVERAGED` late checkpoints.
    """
    dates, seed = some_dates(trial.seed, trial["pairs"], trial["tests"]), trial.seed
    seed += (trial["weights"] - 1) * OTHER_WEIGHTS
    model = small_model(seed, dates.vocabularies, dropout=trial["dropout"])
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
    beams = BEAMS if trial["dates"] == "more" else (1,)
    numbers = {f"exact@{beam}": learning.accuracy(model, dates.test, beam)[0] for beam in beams}
    last = learning.loss(model, dates.test)
    model.load_state_dict(kept[0])
    earlier = learning.loss(model, dates.test)
    model.load_state_dict({name: torch.stack([each[name] for each in kept]).mean(0) for name in kept[0]})
    averaged, (exact, _) = learning.loss(model, dates.test), learning.accuracy(model, dates.test)
    return {
        **numbers,
        "loss": last,
        "averaging": (last - averaged) / last,
        "one_earlier": (last - earlier) / last,
        "exact_averaged": exact,
    }


def _gain(rows: Measurements, number: str = "exact", usual: Conditions = USUAL, **other: Any) -> float:
    """Return a number with the conditions `usual` minus the number with one of them changed, both by greedy search."""
    return rows.get(number, beam=1, **usual) - rows.get(number, beam=1, **{**usual, **other})


def _wider(rows: Measurements, beam: int, narrower: int) -> float:
    return rows.get("exact", beam=beam, **USUAL) - rows.get("exact", beam=narrower, **USUAL)


VALUES: dict[str, Value] = {
    "smoothing-loss": partial(_gain, number="loss", smoothing=0.0),
    "smoothing-accuracy": partial(_gain, smoothing=0.0),
    "dropout": partial(_gain, usual=FEW, dropout=0.0),
    "averaging": lambda rows: rows.get("averaging", **USUAL),
    "beam": partial(_wider, beam=4, narrower=1),
}
CONTROLS: dict[str, Value] = {
    "smoothing-loss": partial(_gain, number="loss", weights=2),
    "dropout": partial(_gain, weights=2),
    "averaging": lambda rows: rows.get("one_earlier", **USUAL),
    "beam": partial(_wider, beam=10, narrower=4),
}
