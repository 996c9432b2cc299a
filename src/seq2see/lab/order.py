"""What positions are for."""

from typing import Any

import torch

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Trial
from seq2see.lab.tasks import Task
from seq2see.model.interface import Seq2Seq


def trials(plan: Plan) -> list[dict[str, Any]]:
    steps, longest = (350, 8) if plan.quick else (3000, 16)
    return [
        {
            "positions": positions,
            "task": "reverse",
            "longest": longest,
            "beyond": longest + longest // 2,
            "steps": steps,
        }
        for positions in ("none", "sinusoid", "learned", "rotary")
    ]


def measure(trial: Trial) -> Numbers:
    """Train on rows up to a length, test within it and beyond, and see what the encoder makes of a shuffled source."""
    task = Task(trial["task"], symbols=10, shortest=2, longest=trial["longest"])
    longer = Task(trial["task"], symbols=10, shortest=trial["longest"] + 1, longest=trial["beyond"])
    sizes = (task.vocabulary, task.vocabulary)
    model = learning.small_model(trial.seed, sizes, positions=trial["positions"], max_positions=64)
    course = learning.train(model, task.batches(trial.seed, pairs=64), trial["steps"], learning_rate=5e-3)
    within, beyond = (learning.accuracy(model, each.test(trial.seed, 300)) for each in (task, longer))
    return {
        "loss": course.final_loss(task.vocabulary),
        "exact": within[0],
        "tokens": within[1],
        "tokens_beyond": beyond[1],
        "unlike_shuffled": _unlike_shuffled(model, trial.seed),
    }


@torch.inference_mode()
def _unlike_shuffled(model: Seq2Seq, seed: int) -> float:
    """How far encode(shuffled) is from shuffled(encode): the largest difference, in float64, of numbers around 1."""
    dice = torch.Generator().manual_seed(seed)
    source, order = torch.randint(4, 14, (20,), generator=dice), torch.randperm(20, generator=dice)
    offsets = torch.tensor([0, 20])
    model = model.double()
    states, shuffled = (model.encode(each, offsets).states_ND for each in (source, source[order]))
    return float((shuffled - states[order]).abs().max())


CLAIM = Claim(
    name="order",
    words="Without recurrence and convolution nothing tells the model the order of the sequence, so positions must be "
    "put in. Waves and learned positions do nearly equally well.",
    source="Vaswani et al. 2017, section 3.5 and table 3, row (E); rotary positions: Su et al. 2021",
    measured="rows of random symbols to be reversed, by small models: tokens right in their place, within the lengths "
    "of training and up to half as long again; and, in float64, how far the encoder's answer to a shuffled source is "
    "from its shuffled answer",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "without positions, the encoder is permutation-equivariant, exactly",
            "largest difference without positions",
            lambda rows: rows.get("unlike_shuffled", positions="none"),
            at_most=1e-10,
            exact=True,
        ),
        Expectation(
            "with waves it is not",
            "largest difference with waves",
            lambda rows: rows.get("unlike_shuffled", positions="sinusoid"),
            at_least=1e-3,
        ),
        Expectation(
            "without positions, quality is lost",
            "tokens right, waves - none",
            lambda rows: rows.get("tokens", positions="sinusoid") - rows.get("tokens", positions="none"),
            at_least=0.2,
        ),
        Expectation(
            "waves and learned positions are nearly equal",
            "tokens right, waves - learned",
            lambda rows: rows.get("tokens", positions="sinusoid") - rows.get("tokens", positions="learned"),
            at_least=-0.1,
            at_most=0.1,
        ),
    ),
    charts=(
        Chart("tokens right, lengths of training", "tokens", "positions"),
        Chart("tokens right, longer than in training", "tokens_beyond", "positions"),
    ),
)
