"""What warm-up is for, and who can do without."""

import math
from typing import Any

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.tasks import Task


def trials(plan: Plan) -> list[dict[str, Any]]:
    depths, steps = ((1, 4), 150) if plan.quick else ((1, 2, 4, 6, 12), 2000)
    return [
        {"norm": norm, "warm_up": warm_up, "depth": depth, "steps": steps, "rate": 5e-3}
        for norm in ("post", "pre")
        for depth in depths
        for warm_up in (True, False)
    ]


def measure(trial: Trial) -> Numbers:
    """The same training with and without: only the first quarter of the steps has another rate."""
    task = Task("copy", symbols=10, shortest=2, longest=6)
    depth, steps = trial["depth"], trial["steps"]
    changes = {"encoder_layers": depth, "decoder_layers": depth, "norm": trial["norm"], "d_model": 32, "d_ff": 64}
    model = learning.small_model(trial.seed, (task.vocabulary, task.vocabulary), **changes)
    batches = task.batches(trial.seed, pairs=32)
    warm = steps // 4 if trial["warm_up"] else 1
    course = learning.train(model, batches, steps, learning_rate=trial["rate"], warmup_steps=warm, clip_norm=0.0)
    loss = course.final_loss(task.vocabulary)
    return {"loss": loss, "failed": loss > 0.9 * math.log(10)}


def _lost(norm: str, rows: Rows) -> float:
    """What the deepest model loses without warm-up."""
    deepest = rows.where(norm=norm, depth=max(rows.values("depth")))
    return deepest.get("loss", warm_up=False) - deepest.get("loss", warm_up=True)


CLAIM = Claim(
    name="warm-up",
    words="The learning rate must rise over the first steps. (Later work: post-norm needs that, the more the deeper it "
    "is; pre-norm does not.)",
    source="Vaswani et al. 2017, section 5.3; Xiong et al. 2020",
    measured="models of growing depth learn to copy rows of symbols, at the same peak rate with and without warm-up, "
    "gradients not clipped: the loss at the end, and whether it is no better than guessing (failed)",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "deep post-norm models are worse off without warm-up",
            "loss of the deepest post-norm, without warm-up - with",
            lambda rows: _lost("post", rows),
            at_least=0.1,
        ),
        Expectation(
            "deep pre-norm models lose less",
            "what is lost without warm-up, post-norm - pre-norm",
            lambda rows: _lost("post", rows) - _lost("pre", rows),
            at_least=0.1,
        ),
    ),
    charts=(
        Chart("post-norm: loss at the end", "loss", "depth", ("warm_up",), {"norm": "post"}, log_x=True),
        Chart("pre-norm: loss at the end", "loss", "depth", ("warm_up",), {"norm": "pre"}, log_x=True),
    ),
)
