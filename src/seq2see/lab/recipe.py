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


def trials(plan: Plan) -> list[dict[str, Any]]:
    steps, pairs = (300, 300) if plan.quick else (2500, 1000)
    return [
        {"smoothing": smoothing, "dropout": dropout, "pairs": pairs, "steps": steps}
        for smoothing, dropout in ((0.1, 0.1), (0.0, 0.1), (0.1, 0.0))
    ]


def measure(trial: Trial) -> Numbers:
    """One training on few dates, so that it can learn them by heart; scored as it is, averaged, and with a beam."""
    dates = some_dates(LANGUAGES, trial["pairs"], 300)
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
    exact, tokens = learning.accuracy(model, dates.test)
    beam, _ = learning.accuracy(model, dates.test, beam=4)
    numbers = {"loss": learning.loss(model, dates.test), "exact": exact, "tokens": tokens, "exact_with_beam": beam}
    _average(model, kept)
    averaged, _ = learning.accuracy(model, dates.test)
    return {**numbers, "loss_averaged": learning.loss(model, dates.test), "exact_averaged": averaged}


def _average(model: Seq2Seq, kept: Sequence[dict[str, Tensor]]) -> None:
    model.load_state_dict({name: torch.stack([each[name] for each in kept]).mean(0) for name in kept[0]})


def _base(rows: Rows) -> Rows:
    return rows.where(smoothing=0.1, dropout=0.1)


CLAIM = Claim(
    name="recipe",
    words="Label smoothing hurts perplexity but improves accuracy; dropout is very helpful against overfitting; "
    "averaging the last checkpoints and a beam of 4 help.",
    source="Vaswani et al. 2017, sections 5.4, 6.1, 6.2 and table 3, row (D)",
    measured="few dates in three languages, letter by letter, to ISO 8601, trained at the paper's schedule: loss and "
    "share of unseen dates right, of the last model, of the average of five of its last states, and with a beam of 4",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "label smoothing hurts perplexity",
            "loss, with smoothing - without",
            lambda rows: _base(rows).get("loss") - rows.get("loss", smoothing=0.0),
            at_least=0.0,
        ),
        Expectation(
            "label smoothing improves accuracy",
            "share right, with smoothing - without",
            lambda rows: _base(rows).get("exact") - rows.get("exact", smoothing=0.0),
            at_least=0.0,
            tolerance=0.005,
        ),
        Expectation(
            "dropout helps",
            "share right, with dropout - without",
            lambda rows: _base(rows).get("exact") - rows.get("exact", dropout=0.0),
            at_least=0.0,
            tolerance=0.005,
        ),
        Expectation(
            "averaging helps",
            "loss, last - averaged",
            lambda rows: _base(rows).get("loss") - _base(rows).get("loss_averaged"),
            at_least=0.0,
        ),
        Expectation(
            "a beam of 4 does not hurt",
            "share right, beam of 4 - greedy",
            lambda rows: _base(rows).get("exact_with_beam") - _base(rows).get("exact"),
            at_least=-0.01,
        ),
    ),
    charts=(
        Chart("loss on unseen dates", "loss", "smoothing", ("dropout",)),
        Chart("share of unseen dates right", "exact", "smoothing", ("dropout",)),
    ),
)
