"""What label smoothing, dropout, averaging and a wider beam are worth."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.tasks import again_and_again, some_dates
from seq2see.model.interface import Seq2Seq

LANGUAGES = ("en", "de", "fr")
AVERAGED = 5
BEAMS = (1, 2, 4, 10)
"""4 is the paper's."""
SMALLEST_SHARE, SMALLEST_LOSS = 0.005, 0.001
"""The smallest effects that count: five of a thousand dates, and the last digit of a loss that is worth showing."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    steps = 300 if plan.quick else 2500
    return [
        {"smoothing": smoothing, "dropout": dropout, "pairs": 1000, "tests": 1000, "steps": steps}
        for smoothing, dropout in ((0.1, 0.1), (0.0, 0.1), (0.1, 0.0))
    ]


def measure(trial: Trial) -> Numbers:
    """One training on few dates, so that it can learn them by heart; scored as it is, with beams, and averaged."""
    dates = some_dates(LANGUAGES, trial.seed, trial["pairs"], trial["tests"])
    model = learning.small_model(trial.seed, dates.vocabularies, dropout=trial["dropout"])
    kept: list[dict[str, Tensor]] = []
    steps = trial["steps"]

    def keep(step: int) -> None:
        if step > steps - AVERAGED * 10 and (steps - step) % 10 == 0:
            kept.append({name: weight.detach().clone() for name, weight in model.state_dict().items()})

    learning.train(
        model,
        again_and_again(dates.train, trial.seed, 48),
        steps,
        keep,
        learning_rate=5e-3,
        schedule="noam",  # as in the paper: it never comes to rest, which is what averaging is for
        label_smoothing=trial["smoothing"],
    )
    numbers = {f"exact@{beam}": learning.accuracy(model, dates.test, beam)[0] for beam in BEAMS}
    last = learning.loss(model, dates.test)
    _average(model, kept)
    averaged, (exact, _) = learning.loss(model, dates.test), learning.accuracy(model, dates.test)
    return {**numbers, "loss": last, "loss_averaged": averaged, "averaging": last - averaged, "exact_averaged": exact}


def _average(model: Seq2Seq, kept: Sequence[dict[str, Tensor]]) -> None:
    model.load_state_dict({name: torch.stack([each[name] for each in kept]).mean(0) for name in kept[0]})


def _exact(rows: Rows, smoothing: float = 0.1, dropout: float = 0.1, beam: int = 1) -> float:
    return rows.get("exact", smoothing=smoothing, dropout=dropout, beam=beam)


CLAIM = Claim(
    name="recipe",
    words="Label smoothing hurts perplexity but improves accuracy; dropout is very helpful against overfitting; "
    "averaging the last checkpoints and a beam of 4 help.",
    source="Vaswani et al. 2017, sections 5.4, 6.1, 6.2 and table 3, row (D)",
    measured="few dates in three languages, letter by letter, to ISO 8601, trained at the paper's schedule: loss and "
    "share of unseen dates right, of the last model, of the average of five of its last states, and with beams; 1 is "
    "greedy search. Other dates for each seed, to learn from and to be tested on",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "label smoothing hurts perplexity",
            "loss, with smoothing - without",
            lambda rows: rows.get("loss", smoothing=0.1, dropout=0.1) - rows.get("loss", smoothing=0.0),
            at_least=0.0,
            tolerance=SMALLEST_LOSS,
        ),
        Expectation(
            "label smoothing improves accuracy",
            "share right, with smoothing - without",
            lambda rows: _exact(rows) - _exact(rows, smoothing=0.0),
            at_least=0.0,
            tolerance=SMALLEST_SHARE,
        ),
        Expectation(
            "dropout helps",
            "share right, with dropout - without",
            lambda rows: _exact(rows) - _exact(rows, dropout=0.0),
            at_least=0.0,
            tolerance=SMALLEST_SHARE,
        ),
        Expectation(
            "averaging helps",
            "loss, last - averaged",
            lambda rows: rows.get("averaging", smoothing=0.1, dropout=0.1),
            at_least=0.0,
            tolerance=SMALLEST_LOSS,
        ),
        Expectation(
            "a beam of 4 helps",
            "share right, beam of 4 - greedy",
            lambda rows: _exact(rows, beam=4) - _exact(rows),
            at_least=0.0,
            tolerance=SMALLEST_SHARE,
        ),
    ),
    charts=(
        Chart("loss on unseen dates", "loss", "smoothing", ("dropout",), {"beam": 1}),
        Chart("share of unseen dates right", "exact", "smoothing", ("dropout",), {"beam": 1}),
        Chart("loss saved by averaging", "averaging", "smoothing", ("dropout",), {"beam": 1}),
        Chart("share of unseen dates right", "exact", "beam", ("smoothing", "dropout"), log_x=True),
    ),
    places="beam",
)
