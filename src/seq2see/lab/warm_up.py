"""What warm-up is for, and who can do without."""

import math
from functools import partial
from typing import Any

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.tasks import Task
from seq2see.training import schedule

DEEP = 6
"""Layers of each stack in the models that are judged, as in the paper; the others show where training fails."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    depths, steps = ((1, DEEP, 12), 150) if plan.quick else ((1, 2, 4, DEEP, 12, 18), 2000)
    return [
        {"norm": norm, "warm_up": warm_up, "depth": depth, "steps": steps, "rate": 3e-3}
        for norm in ("post", "pre")
        for depth in depths
        for warm_up in (True, False)
    ]


def measure(trial: Trial) -> Numbers:
    """The same training with and without: only the first quarter of the steps has another rate. Nothing is clipped."""
    task = Task("copy", symbols=10, shortest=2, longest=6)
    depth, steps = trial["depth"], trial["steps"]
    changes = {"encoder_layers": depth, "decoder_layers": depth, "norm": trial["norm"], "d_model": 32, "d_ff": 64}
    model = learning.small_model(trial.seed, (task.vocabulary, task.vocabulary), **changes)
    batches = task.batches(trial.seed, pairs=32)
    rate = partial(rate_at, steps=steps, peak=trial["rate"], warm_up=trial["warm_up"])
    course = learning.train(model, batches, steps, rate=rate, clip_norm=0.0)
    loss = course.final_loss(task.vocabulary)
    return {"loss": loss, "failed": loss > 0.9 * math.log(10)}


def rate_at(step: int, steps: int, peak: float, warm_up: bool) -> float:
    """Up in a line for a quarter of the steps, then cosine to 0; without warm-up, the peak in place of the line."""
    ramp = max(1, steps // 4)
    place = step if warm_up else max(step, ramp)
    return schedule.rate(place, schedule="cosine", peak=peak, d_model=0, warmup_steps=ramp, max_steps=steps)


def _lost(norm: str, rows: Rows) -> float:
    """What a deep model loses without warm-up."""
    deep = rows.where(norm=norm, depth=DEEP)
    return deep.get("loss", warm_up=False) - deep.get("loss", warm_up=True)


CLAIM = Claim(
    name="warm-up",
    words="The learning rate must rise over the first steps. (Later work: post-norm needs that, pre-norm does not.)",
    source="Vaswani et al. 2017, section 5.3; Xiong et al. 2020",
    measured="models of growing depth learn to copy rows of symbols, gradients not clipped; without warm-up, the first "
    "quarter of the steps has the peak rate, all others have the same rate: the loss at the end, and whether that is "
    "hardly better than guessing (failed)",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "deep post-norm models are worse off without warm-up",
            f"loss of {DEEP} + {DEEP} layers, post-norm, without warm-up - with",
            lambda rows: _lost("post", rows),
            at_least=0.1,
        ),
        Expectation(
            "deep pre-norm models are not",
            f"loss of {DEEP} + {DEEP} layers, pre-norm, without warm-up - with",
            lambda rows: _lost("pre", rows),
            at_most=0.1,
        ),
    ),
    charts=(
        Chart("post-norm: loss at the end", "loss", "depth", ("warm_up",), {"norm": "post"}, log_x=True),
        Chart("pre-norm: loss at the end", "loss", "depth", ("warm_up",), {"norm": "pre"}, log_x=True),
        Chart("share of trainings that failed", "failed", "depth", ("norm", "warm_up"), log_x=True),
    ),
)
