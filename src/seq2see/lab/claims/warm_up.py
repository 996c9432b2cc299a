"""Claim: deep post-norm models need warm-up, pre-norm models do not."""

import math
from functools import partial
from typing import Any

from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import small_model
from seq2see.lab.tasks import SymbolTask
from seq2see.training import schedule

DEEP = 6
"""Number of layers of the encoder, and of the decoder, as in the paper, in the models that decide the verdict; models
of other depths show where training fails.
"""


def trials(plan: Plan) -> list[dict[str, Any]]:
    depths, steps = ((1, DEEP), 150) if plan.quick else ((1, 2, DEEP, 12), 300)
    return grid(norm=("post", "pre"), depth=depths, warm_up=(True, False), steps=steps, rate=3e-3)


def measure(trial: Trial) -> Numbers:
    """Train with or without warm-up; the learning rates differ only in the first quarter of the steps (`rate_at`).

    Gradients are not clipped.
    """
    task = SymbolTask("copy", symbols=10, shortest=2, longest=6)
    depth, steps = trial["depth"], trial["steps"]
    changes = {"encoder_layers": depth, "decoder_layers": depth, "norm": trial["norm"], "d_model": 32, "d_ff": 64}
    model = small_model(trial.seed, task.vocabularies, **changes)
    rate = partial(rate_at, steps=steps, peak=trial["rate"], warm_up=trial["warm_up"])
    losses = learning.train(model, task.batches(trial.seed, pairs=32), steps, rate=rate, clip_norm=0.0)
    loss = learning.final_loss(losses, task.vocabularies)
    return {"loss": loss, "failed": loss > 0.9 * math.log(10)}


def rate_at(step: int, steps: int, peak: float, warm_up: bool) -> float:
    """Return the learning rate of a step: in the first quarter, a linear rise or, without warm-up, the peak; then
    cosine decay to 0.
    """
    ramp = max(1, steps // 4)
    place = step if warm_up else max(step, ramp)
    return schedule.rate(place, schedule="cosine", peak=peak, d_model=0, warmup_steps=ramp, max_steps=steps)


def _lost(rows: Measurements, norm: str, depth: int = DEEP) -> float:
    """Return the final training loss without warm-up minus that with warm-up."""
    own = rows.where(norm=norm, depth=depth)
    return own.get("loss", warm_up=False) - own.get("loss", warm_up=True)


VALUES: dict[str, Value] = {"post": partial(_lost, norm="post"), "pre": partial(_lost, norm="pre")}
CONTROLS: dict[str, Value] = {"post": partial(_lost, norm="post", depth=1)}
