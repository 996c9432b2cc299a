"""Claim: without the look-ahead mask, a decoder learns to copy its input, which contains the target."""

from typing import Any

from seq2see.lab import learning, models
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value
from seq2see.lab.tasks import SymbolTask


def trials(plan: Plan) -> list[dict[str, Any]]:
    steps = 300 if plan.quick else 600
    systems = ((True, 1), (False, 1), (True, 2))  # the last one is the control
    return [{"mask": mask, "weights": weights, "longest": 8, "steps": steps} for mask, weights in systems]


def measure(trial: Trial) -> Numbers:
    """Train with or without the look-ahead mask, and measure loss and accuracy."""
    task, steps = SymbolTask("reverse", symbols=10, shortest=4, longest=trial["longest"]), trial["steps"]
    model = models.small_model(trial.seed + (trial["weights"] - 1) * models.OTHER_WEIGHTS, task.vocabularies)
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


def _usual(rows: Measurements, number: str) -> float:
    return rows.get(number, mask=True, weights=1)


VALUES: dict[str, Value] = {
    "loss": lambda rows: rows.get("loss_early", mask=False) / _usual(rows, "loss_early"),
    "generation": lambda rows: _usual(rows, "tokens") - rows.get("tokens", mask=False),
}
CONTROLS: dict[str, Value] = {
    "loss": lambda rows: rows.get("loss_early", weights=2) / _usual(rows, "loss_early"),
    "generation": lambda rows: _usual(rows, "tokens") - rows.get("tokens", weights=2),
}
