"""Compare many heads with one at equal width: the loss, the difference between heads, and which can be removed."""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Place
from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import OTHER_WEIGHTS, small_model
from seq2see.lab.tasks import Sample, pack, some_dates
from seq2see.lens.capture import capture
from seq2see.lens.heads import Head, switched_off
from seq2see.lens.reading import ATTENTIONS
from seq2see.model.interface import Seq2Seq
from seq2see.training import loop

PLACES = "place"
MANY = 8
"""Number of heads that counts as many: the best one in the paper. Choosing the best of the losses measured here would
favour many heads.
"""


def trials(plan: Plan) -> list[dict[str, Any]]:
    counts, steps = ((1, MANY, 16), 250) if plan.quick else ((1, 2, 4, MANY, 16), 500)
    sizes = {"width": 64, "pairs": 4000, "tests": 1000, "steps": steps}
    return grid(heads=counts, weights=1, **sizes) + grid(heads=MANY, weights=2, **sizes)  # the last is the control


def measure(trial: Trial) -> Numbers:
    """Train on dates, character by character; compare the heads, and measure the loss without each of them."""
    dates = some_dates(trial.seed, trial["pairs"], trial["tests"])
    seed = trial.seed + (trial["weights"] - 1) * OTHER_WEIGHTS
    model = small_model(seed, dates.vocabularies, heads=trial["heads"], d_model=trial["width"])
    untrained = _differences(model, trial["heads"], dates.test[:50], "untrained")
    learning.train(model, dates.batches(trial.seed, 48), trial["steps"], learning_rate=5e-3)
    numbers = {"loss": learning.loss(model, dates.test), "exact": learning.accuracy(model, dates.test)[0]}
    for place in ATTENTIONS:
        growth = loss_growth(model, place, trial["heads"], dates.test[:200])
        numbers[f"cuttable@{place}"] = sum(each < 1.1 for each in growth) / len(growth)
        numbers |= {f"without_{head}@{place}": each for head, each in enumerate(growth)}
    return numbers | untrained | _differences(model, trial["heads"], dates.test[:50], "difference")


def loss_growth(model: Seq2Seq, place: Place, heads: int, samples: Sequence[Sample]) -> list[float]:
    """Return, for each head of an attention in the first layer, the loss without it divided by that with all heads."""
    whole, growth = learning.loss(model, samples), []
    for head in range(heads):
        with switched_off(model, [Head(place, 0, head)]):
            growth.append(learning.loss(model, samples) / whole)
    return growth


def _differences(model: Seq2Seq, heads: int, samples: Sequence[Sample], name: str) -> dict[str, float]:
    return {f"{name}@{place}": _difference(model, place, samples) for place in ATTENTIONS} if heads > 1 else {}


@torch.inference_mode()
def _difference(model: Seq2Seq, place: Place, samples: Sequence[Sample]) -> float:
    """Return the Jensen-Shannon divergence of the attention weights of two heads in the first layer, in bits (0: equal,
    1: disjoint), averaged over all pairs of heads and all samples.
    """
    stack, name = ATTENTIONS[place]
    found = []
    for sample in samples:
        with capture(model, only=f"{stack}.0.{name}.weights".__eq__) as seen:
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


def _worse(rows: Measurements, **than_many: int) -> float:
    """Return log2 of the ratio of the loss with the conditions `than_many` to the loss with `MANY` heads; as
    logarithms, large ratios do not dominate the mean over the seeds.
    """
    return math.log2(rows.get("loss", **than_many) / rows.get("loss", heads=MANY, weights=1))


def _learned(rows: Measurements) -> float:
    """Return the difference between heads after training minus that before, since untrained heads differ, too."""
    return rows.get("difference", heads=MANY, weights=1) - rows.get("untrained", heads=MANY, weights=1)


def _untrained(rows: Measurements) -> float:
    """Return the difference between two untrained models in how much their heads differ: the control of `_learned`."""
    return rows.get("untrained", heads=MANY, weights=2) - rows.get("untrained", heads=MANY, weights=1)


VALUES: dict[str, Value] = {
    "loss": partial(_worse, heads=1),
    "difference": _learned,
    "removable": lambda rows: rows.get("cuttable", heads=16) - 0.5,
}
CONTROLS: dict[str, Value] = {
    "loss": partial(_worse, heads=MANY, weights=2),
    "difference": _untrained,
    "removable": lambda rows: rows.get("cuttable", heads=1) - 0.5,
}
