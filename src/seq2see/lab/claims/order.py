"""Claim: without positions, a model does not know the order of its input."""

from typing import Any

import torch

from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import small_model
from seq2see.lab.tasks import SymbolTask
from seq2see.model.interface import Seq2Seq


def trials(plan: Plan) -> list[dict[str, Any]]:
    steps, longest = (350, 8) if plan.quick else (700, 12)
    sizes = {"longest": longest, "beyond": longest + longest // 2, "steps": steps}
    reverse = grid(task="reverse", positions=("none", "sinusoid", "learned", "rotary"), **sizes)
    return reverse + grid(task="sort", positions=("none", "sinusoid"), **sizes)


def measure(trial: Trial) -> Numbers:
    """Train on sequences up to a length, test within and beyond that length, and encode a shuffled source."""
    task = SymbolTask(trial["task"], symbols=10, shortest=2, longest=trial["longest"])
    longer = SymbolTask(trial["task"], symbols=10, shortest=trial["longest"] + 1, longest=trial["beyond"])
    model = small_model(trial.seed, task.vocabularies, positions=trial["positions"], max_positions=64)
    losses = learning.train(model, task.batches(trial.seed, pairs=64), trial["steps"], learning_rate=5e-3)
    exact, tokens = learning.accuracy(model, task.test(trial.seed, 300))
    return {
        "loss": learning.final_loss(losses, task.vocabularies),
        "exact": exact,
        "tokens": tokens,
        "tokens_beyond": learning.accuracy(model, longer.test(trial.seed, 300))[1],
        "unlike_shuffled": _unlike_shuffled(model, trial.seed),
    }


@torch.inference_mode()
def _unlike_shuffled(model: Seq2Seq, seed: int) -> float:
    """Return the largest absolute difference between the encoder states of a shuffled source and the shuffled states of
    the source, in float64; elements of states are around 1.
    """
    dice = torch.Generator().manual_seed(seed)
    source, order = torch.randint(4, 14, (20,), generator=dice), torch.randperm(20, generator=dice)
    offsets = torch.tensor([0, 20])
    model = model.double()
    states, shuffled = (model.encode(each, offsets).states_ND for each in (source, source[order]))
    return float((shuffled - states[order]).abs().max())


def gain(rows: Measurements, over: str, of: str = "sinusoid", number: str = "tokens", task: str = "reverse") -> float:
    """Return the share of correct tokens with one kind of positions (`of`) minus that with another (`over`).

    Args:
        number: "tokens" for sequences of trained lengths, "tokens_beyond" for longer ones.
    """
    return rows.get(number, positions=of, task=task) - rows.get(number, positions=over, task=task)


VALUES: dict[str, Value] = {
    "equivariant": lambda rows: rows.get("unlike_shuffled", positions="none", task="reverse"),
    "ordered": lambda rows: rows.get("unlike_shuffled", positions="sinusoid", task="reverse"),
    "needed": lambda rows: gain(rows, over="none"),
    "learned": lambda rows: gain(rows, over="learned"),
}
CONTROLS: dict[str, Value] = {"needed": lambda rows: gain(rows, over="none", task="sort")}
