"""Find where a loss or a gradient stops being finite: which pairs of a batch, and which layer of the model."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from seq2see.tokens.store import Int64s


@dataclass(eq=False)
class NotFinite(Exception):  # noqa: N818
    """Raised if the loss or gradient of consecutive updates up to `step` was not finite, and returning to a checkpoint
    did not help or is impossible.
    """

    step: int
    updates: int
    """Number of consecutive updates whose loss or gradient was not finite."""
    slowed: int
    """Number of times that training returned to a checkpoint before, each time with half the learning rate."""
    place: str
    """Where numbers were first not finite: the name of a layer, `the loss itself` or `the gradient of` a weight; or a
    text that says that only the sum over all forward and backward passes is not finite.
    """
    pairs: list[int]
    """Indices in the store of up to three pairs, each of which alone causes the failure; empty if no single
    pair does.
    """
    batch: int
    """Number of pairs in the last batch whose loss or gradient was not finite."""


def find(model: nn.Module, micro_batches: list[Int64s], loss: Callable[[Int64s], Tensor]) -> tuple[str, list[int]]:
    """Return `NotFinite.place`, and up to three pairs, each of which alone makes numbers not finite.

    Args:
        micro_batches: The indices of the pairs of a batch, which may not fit into memory at once.
        loss: Function that runs the model on the pairs with these indices and returns their loss.
    """
    alone = (some[at : at + 1] for some in micro_batches for at in range(len(some)))
    guilty = list(islice((pair for pair in alone if place(model, pair, loss)), 3))
    places = (place(model, each, loss) for each in guilty[:1] or micro_batches)
    return next(filter(None, places), "the sum over all passes, in no single layer"), [int(pair[0]) for pair in guilty]


def place(model: nn.Module, pairs: Int64s, loss: Callable[[Int64s], Tensor]) -> str:
    """Return where numbers are first not finite in a forward and backward pass over `pairs`; "" if all are finite.

    This is the name of the first layer whose output is not finite, or `the loss itself`, or `the gradient of` a weight.
    """
    met: list[str] = []

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not bool(output.isfinite().all()):
                met.append(name)

        return hook

    hooks = [module.register_forward_hook(note(name)) for name, module in model.named_modules() if name]
    try:
        with torch.enable_grad():
            total = loss(pairs)
            if met:
                return met[0]
            if not bool(total.isfinite()):
                return "the loss itself"
            total.backward()  # type: ignore[no-untyped-call]
        broken = [n for n, w in model.named_parameters() if w.grad is not None and not bool(w.grad.isfinite().all())]
        return f"the gradient of {broken[-1]}" if broken else ""  # gradients flow from the last to the first
    finally:
        for hook in hooks:
            hook.remove()
        for weight in model.parameters():
            weight.grad = None
