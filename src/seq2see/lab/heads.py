"""Many heads or one, at equal width: how good, how different, and which can be cut."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.tasks import Sample, again_and_again, pack, some_dates
from seq2see.lens.capture import capture
from seq2see.lens.heads import Head, switched_off
from seq2see.lens.reading import ATTENTIONS
from seq2see.model.interface import Seq2Seq
from seq2see.training import loop

LANGUAGES = ("en", "de", "fr")


def trials(plan: Plan) -> list[dict[str, Any]]:
    counts, steps = ((1, 4, 16), 250) if plan.quick else ((1, 2, 4, 8, 16), 2000)
    return [{"heads": heads, "width": 64, "pairs": 4000, "steps": steps} for heads in counts]


def measure(trial: Trial) -> Numbers:
    """Learn dates letter by letter; then look at the heads, and switch each off."""
    dates = some_dates(LANGUAGES, trial["pairs"], 200)
    model = learning.small_model(trial.seed, dates.vocabularies, heads=trial["heads"], d_model=trial["width"])
    learning.train(model, again_and_again(dates.train, trial.seed, 48), trial["steps"], learning_rate=5e-3)
    whole, (exact, _) = learning.loss(model, dates.test), learning.accuracy(model, dates.test)
    all_heads = [Head(place, 0, head) for place in ATTENTIONS for head in range(trial["heads"])]
    lost = []
    for head in all_heads:
        with switched_off(model, [head]):
            lost.append(learning.loss(model, dates.test[:100]))
    numbers = {"loss": whole, "exact": exact, "cuttable": sum(each < 1.1 * whole + 0.01 for each in lost) / len(lost)}
    if trial["heads"] > 1:
        numbers["difference"] = _difference(model, dates.test[:50])
    return numbers


@torch.inference_mode()
def _difference(model: Seq2Seq, samples: Sequence[Sample]) -> float:
    """Jensen-Shannon divergence of two heads' weights, in bits: 0 where they look alike, 1 where at nothing common.

    The mean over all tokens and all two heads of one attention.
    """
    found = []
    for sample in samples:
        with capture(model, only=lambda name: name.endswith(".weights")) as seen:
            loop.loss_of(model, pack([sample]))
        for (weights_1HLM,) in seen.values():
            heads = weights_1HLM[0].double()
            found += [float(_divergence(one, other)) for one, other in itertools.combinations(heads, 2)]
    return sum(found) / len(found)


def _divergence(one_LM: Tensor, other_LM: Tensor) -> Tensor:
    middle = (one_LM + other_LM) / 2
    gain_L: Tensor = _entropy(middle) - (_entropy(one_LM) + _entropy(other_LM)) / 2
    return gain_L.mean()


def _entropy(weights_LM: Tensor) -> Tensor:
    surprise_LM: Tensor = torch.special.xlogy(weights_LM, weights_LM)
    return -surprise_LM.sum(-1) / math.log(2)


def _of_best(rows: Rows) -> Rows:
    """The number of heads with the smallest loss, one head apart."""
    many = [heads for heads in rows.values("heads") if heads > 1]
    return rows.where(heads=min(many, key=lambda heads: rows.get("loss", heads=heads)))


CLAIM = Claim(
    name="heads",
    words="Several heads let the model attend to different things at once; a single head is worse than the best "
    "number of heads at equal width. (Later work: many heads can be cut after training.)",
    source="Vaswani et al. 2017, section 3.2.2 and table 3, row (A); Michel et al. 2019",
    measured="dates in three languages, letter by letter, to ISO 8601: loss and share of dates right on unseen ones; "
    "how differently two heads look (Jensen-Shannon, 0 to 1 bit); the share of heads without which the loss grows by "
    "less than a tenth",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "one head is worse than the best number of heads",
            "loss, one head - best of many",
            lambda rows: rows.get("loss", heads=1) - _of_best(rows).get("loss"),
            at_least=0.0,
            tolerance=0.002,
        ),
        Expectation(
            "heads look at different things",
            "difference between two heads, bits",
            lambda rows: _of_best(rows).get("difference"),
            at_least=0.1,
        ),
        Expectation(
            "where there are many heads, some can be cut",
            "share of heads that can be cut, most heads",
            lambda rows: rows.get("cuttable", heads=max(rows.values("heads"))),
            at_least=0.1,
        ),
    ),
    charts=(
        Chart("loss on unseen dates", "loss", "heads", log_x=True),
        Chart("difference between heads, bits", "difference", "heads", log_x=True),
        Chart("share of heads that can be cut", "cuttable", "heads", log_x=True),
    ),
)
