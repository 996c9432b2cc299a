"""Many heads or one, at equal width: how good, how different, and which can be cut."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Place
from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Trial
from seq2see.lab.tasks import Sample, again_and_again, pack, some_dates
from seq2see.lens.capture import capture
from seq2see.lens.heads import Head, switched_off
from seq2see.lens.reading import ATTENTIONS
from seq2see.model.interface import Seq2Seq
from seq2see.training import loop

LANGUAGES = ("en", "de", "fr")
MANY = 8
"""As in the paper: the best of what it tried. To choose it by the losses measured here would favour many heads."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    counts, steps = ((1, MANY, 16), 250) if plan.quick else ((1, 2, 4, MANY, 16), 2000)
    return [{"heads": heads, "width": 64, "pairs": 4000, "tests": 1000, "steps": steps} for heads in counts]


def measure(trial: Trial) -> Numbers:
    """Learn dates letter by letter; then look at the heads, and switch each off."""
    dates = some_dates(LANGUAGES, trial.seed, trial["pairs"], trial["tests"])
    model = learning.small_model(trial.seed, dates.vocabularies, heads=trial["heads"], d_model=trial["width"])
    learning.train(model, again_and_again(dates.train, trial.seed, 48), trial["steps"], learning_rate=5e-3)
    numbers = {"loss": learning.loss(model, dates.test), "exact": learning.accuracy(model, dates.test)[0]}
    for place in ATTENTIONS:
        growth = _growth(model, place, trial["heads"], dates.test[:200])
        numbers[f"cuttable@{place}"] = sum(each < 1.1 for each in growth) / len(growth)
        numbers |= {f"without_{head}@{place}": each for head, each in enumerate(growth)}
        if trial["heads"] > 1:
            numbers[f"difference@{place}"] = _difference(model, place, dates.test[:50])
    return numbers


def _growth(model: Seq2Seq, place: Place, heads: int, samples: Sequence[Sample]) -> list[float]:
    """The loss without each head of a place / with all heads, on the same samples."""
    whole, growth = learning.loss(model, samples), []
    for head in range(heads):
        with switched_off(model, [Head(place, 0, head)]):
            growth.append(learning.loss(model, samples) / whole)
    return growth


@torch.inference_mode()
def _difference(model: Seq2Seq, place: Place, samples: Sequence[Sample]) -> float:
    """Jensen-Shannon divergence of two heads' weights, in bits: 0 where they look alike, 1 where at nothing common.

    The mean over all tokens and all two heads of one attention.
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


CLAIM = Claim(
    name="heads",
    words="Several heads let the model attend to different things at once; a single head is worse than eight at equal "
    "width. (Later work: after training, most heads can be cut one at a time.)",
    source="Vaswani et al. 2017, section 3.2.2 and table 3, row (A); Michel et al. 2019",
    measured="dates in three languages, letter by letter, to ISO 8601: loss and share of dates right on unseen ones; "
    "how differently two heads look (Jensen-Shannon, 0 to 1 bit); for each head of the encoder, the decoder and the "
    "cross attention, the loss without it / with all (without 0, without 1 and so on; heads of two seeds share nothing "
    "but a number, and verdicts.json has each seed's own), and the share of heads without which it grows by less than "
    "a tenth",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            f"one head is worse than {MANY}",
            f"loss, one head - {MANY}",
            lambda rows: rows.get("loss", heads=1) - rows.get("loss", heads=MANY),
            at_least=0.0,
            tolerance=0.001,
        ),
        Expectation(
            "heads look at different things",
            f"difference between two of {MANY} heads, bits",
            lambda rows: rows.get("difference", heads=MANY),
            at_least=0.1,
        ),
        Expectation(
            "where there are many heads, most can be cut",
            "share of 16 heads that can be cut",
            lambda rows: rows.get("cuttable", heads=16),
            at_least=0.5,
        ),
    ),
    charts=(
        Chart("loss on unseen dates", "loss", "heads", only={"place": "cross"}, log_x=True),
        Chart("difference between heads, bits", "difference", "heads", ("place",), log_x=True),
        Chart("share of heads that can be cut", "cuttable", "heads", ("place",), log_x=True),
    ),
    places="place",
)
