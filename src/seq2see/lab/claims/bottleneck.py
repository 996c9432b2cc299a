"""Claim: an RNN without attention must represent a whole sentence in one vector."""

from functools import partial
from typing import Any

from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import ARCHITECTURES, WITH_ATTENTION, WITHOUT_ATTENTION, small_model
from seq2see.lab.tasks import SymbolTask

PLACES = "length"


def trials(plan: Plan) -> list[dict[str, Any]]:
    longest, steps = (12, 400) if plan.quick else (16, 800)
    reverse = grid(task="reverse", model=ARCHITECTURES, longest=longest, steps=steps)
    return reverse + grid(task="last", model=("transformer", *WITHOUT_ATTENTION), longest=longest, steps=steps)


def measure(trial: Trial) -> Numbers:
    """Train a model on sequences that are the same for all models, and measure its token accuracy at four lengths.

    The learning rate is 5e-3. With 3e-3, the loss of the RNN without attention was 1.5 times as high, and the losses of
    the Transformer and of the RNN with attention were the same.
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


def _lost(rows: Measurements, model: str, task: str = "reverse") -> float:
    """Return the token accuracy of a model on the shortest tested sequences minus that on the longest ones."""
    own, lengths = rows.where(model=model, task=task), rows.values("length")
    return own.get("right", length=min(lengths)) - own.get("right", length=max(lengths))


def _loses_more(rows: Measurements, model: str, task: str = "reverse") -> float:
    return _lost(rows, model, task) - _lost(rows, "transformer", task)


VALUES: dict[str, Value] = {
    **{f"{model}-loses": partial(_loses_more, model=model) for model in WITHOUT_ATTENTION},
    **{f"{model}-keeps": partial(_lost, model=model) for model in WITH_ATTENTION},
}
CONTROLS: dict[str, Value] = {
    f"{model}-loses": partial(_loses_more, model=model, task="last") for model in WITHOUT_ATTENTION
}
