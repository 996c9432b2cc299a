"""Claim: without the look-ahead mask, a model learns to copy its input."""

from typing import Any

from seq2see.lab import learning, models
from seq2see.lab.claim import Numbers, Plan, Trial, Value, grid
from seq2see.lab.tasks import SymbolTask


def trials(plan: Plan) -> list[dict[str, Any]]:
    return grid(mask=(True, False), task="reverse", longest=8, steps=300 if plan.quick else 3000)


def measure(trial: Trial) -> Numbers:
    """Train twice, with the mask and without it."""
    task, steps = SymbolTask(trial["task"], symbols=10, shortest=4, longest=trial["longest"]), trial["steps"]
    model = models.small_model(trial.seed, task.vocabularies)
    if not trial["mask"]:
        models.without_look_ahead_mask(model)
    losses = learning.train(model, task.batches(trial.seed, pairs=64), steps, learning_rate=5e-3)
    exact, tokens = learning.accuracy(model, task.test(trial.seed, 300))
    early = losses[steps // 5 : steps // 4]
    return {
        "loss": learning.final_loss(losses, task.vocabularies),
        "loss_early": sum(early) / len(early),
        "exact": exact,
        "tokens": tokens,
    }


VALUES: dict[str, Value] = {
    "loss": lambda rows: rows.get("loss_early", mask=False) / rows.get("loss_early", mask=True),
    "generation": lambda rows: rows.get("tokens", mask=True) - rows.get("tokens", mask=False),
}
