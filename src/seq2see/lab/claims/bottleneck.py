"""Claim: an RNN without attention has one vector for a whole sentence."""

from functools import partial
from typing import Any

from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import ARCHITECTURES, small_model
from seq2see.lab.tasks import SymbolTask

PLACES = "length"


def trials(plan: Plan) -> list[dict[str, Any]]:
    longest, steps = (12, 600) if plan.quick else (24, 5000)
    return grid(model=ARCHITECTURES, task="reverse", longest=longest, steps=steps)


def measure(trial: Trial) -> Numbers:
    """Train each model on the same sequences in the same order, then score it length by length.

    The learning rate suits all three: at 3e-3 the loss of the RNN without attention is 1.5 times as high, and the
    losses of the others are the same.
    """
    longest = trial["longest"]
    task = SymbolTask(trial["task"], symbols=10, shortest=2, longest=longest)
    model = small_model(trial.seed, task.vocabularies, trial["model"])
    losses = learning.train(model, task.batches(trial.seed, pairs=48), trial["steps"], learning_rate=5e-3)
    parameters = sum(weight.numel() for weight in model.parameters())
    numbers = {"loss": learning.final_loss(losses, task.vocabularies), "parameters": float(parameters)}
    for length in range(longest // 4, longest + 1, longest // 4):
        tests = SymbolTask(trial["task"], symbols=10, shortest=length, longest=length).test(trial.seed, 200)
        numbers[f"right@{length}"] = learning.accuracy(model, tests)[1]
    return numbers


def _lost(rows: Measurements, model: str) -> float:
    """Return what is lost from the shortest to the longest sequences."""
    lengths = rows.values("length")
    return rows.get("right", model=model, length=min(lengths)) - rows.get("right", model=model, length=max(lengths))


VALUES: dict[str, Value] = {
    "rnn-attention": lambda rows: _lost(rows, "rnn") - _lost(rows, "rnn-attention"),
    "transformer": lambda rows: _lost(rows, "rnn") - _lost(rows, "transformer"),
    "rnn-attention-keeps": partial(_lost, model="rnn-attention"),
    "transformer-keeps": partial(_lost, model="transformer"),
}
