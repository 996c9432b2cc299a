"""Measure the cost of a layer, for which table 1 of the paper gives formulas."""

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d
from torch.utils.flop_counter import FlopCounterMode

from seq2see.kernels import threads
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.model.attention import attend
from seq2see.model.packing import EVERYWHERE
from seq2see.model.recording import RecordingPoint

ALONE = True
REPEATED_FOR = 0.4
"""Seconds for which a forward pass is repeated; the CPU time of the fastest repetition is the result."""
LAYERS = ("attention", "fused attention", "recurrent", "convolutional", "position-wise")
"""Kinds of layers; the last one is the control, since it processes each position separately."""
KERNEL = 3


def trials(plan: Plan) -> list[dict[str, Any]]:
    """Return trials with growing length at fixed width, and growing width at fixed length."""
    sizes = (256, 512, 1024, 2048, 4096)
    # Where n² scores leave the cache, between n 1,024 and 2,048, time grows faster than n² for once.
    lengths, widths = (sizes[:3], sizes[:4]) if plan.quick else (sizes, sizes)
    along_n = grid(layer=LAYERS, growing="n", n=lengths, d=64, threads=1)
    return along_n + grid(layer=LAYERS, growing="d", n=64, d=widths, threads=1)


def measure(trial: Trial) -> Numbers:
    """Measure a forward pass of one layer: bytes kept for gradients, longest chain of operations, CPU seconds,
    multiplications.
    """
    with threads.using(trial["threads"]):
        torch.manual_seed(trial.seed)
        forward, weights = _layer(trial["layer"], trial["n"], trial["d"])
        kept: dict[int, int] = {}

        def weigh(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
            output = forward()
        for weight in weights:  # they are in memory anyway
            kept.pop(weight.untyped_storage().data_ptr(), None)
        numbers = {"bytes": float(sum(kept.values())), "chain": float(_longest_chain(output))}
        numbers["seconds"] = seconds_of(forward)
        if trial["layer"] != "fused attention":  # the counter does not see its multiplications on every CPU
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                forward()
            numbers["multiplications"] = counter.get_total_flops() / 2
    return numbers


def _layer(kind: str, n: int, d: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """Return a function that performs the operations which table 1 counts for this kind of layer, and its weights.

    For attention, these are the two matrix multiplications and the softmax. The RNN is the simplest one, one sequence
    in a loop, so that its chain, operations and bytes can be counted in the same way as those of attention.
    """
    if kind == "recurrent":
        x = torch.randn(n, 1, d, requires_grad=True)
        w_h = torch.randn(d, d, requires_grad=True)

        def recur() -> Tensor:
            state = x[0]
            for step in range(1, n):
                state = torch.tanh(state @ w_h / math.sqrt(d) + x[step])
            return state

        return recur, [w_h]
    if kind in ("convolutional", "position-wise"):
        wide = torch.randn(1, d, n, requires_grad=True)
        kernel = torch.randn(d, d, KERNEL if kind == "convolutional" else 1, requires_grad=True)
        return lambda: torch.tanh(conv1d(wide, kernel, padding="same")), [kernel]
    query, key, value = (torch.randn(1, 1, n, d, requires_grad=True) for _ in range(3))
    inside = RecordingPoint()
    if kind == "attention":
        inside.register_forward_hook(lambda *_: None)  # while activations are recorded, attention is written out
    return lambda: attend(query, key, value, EVERYWHERE, inside), []


def _longest_chain(output: Tensor) -> int:
    """Return the length of the longest chain of dependent operations in the graph of an output, which no parallel
    machine can shorten.
    """
    depth: dict[Any, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [each for each, _ in node.next_functions if each is not None] if node is not None else []
        waiting = [each for each in before if each not in depth]
        if waiting:
            stack += waiting
            continue
        depth[node] = 1 + max((depth[each] for each in before), default=0)
        stack.pop()
    return depth[output.grad_fn]


def seconds_of(forward: Callable[[], Tensor]) -> float:
    """Return the CPU seconds of the fastest repetition of `forward`, which depend little on the load of the machine."""
    best = math.inf
    until = time.monotonic() + REPEATED_FOR
    with torch.no_grad():
        forward()
        while best == math.inf or time.monotonic() < until:
            began = time.thread_time()
            forward()
            best = min(best, time.thread_time() - began)
    return best


def _exponent(rows: Measurements, layer: str, number: str, along: str) -> float:
    return rows.slope(number, along, layer=layer, growing=along)


def _longest(rows: Measurements, layer: str) -> float:
    return rows.get("bytes", layer=layer, growing="n", n=max(rows.where(growing="n").values("n")))


EXPONENTS = [
    *product(("attention", "recurrent", "convolutional"), ("multiplications",), ("n", "d")),
    *product(("attention", "recurrent"), ("seconds",), ("n", "d")),
    *product(("attention", "recurrent", "convolutional"), ("chain",), ("n",)),
    *product(("attention", "fused attention", "recurrent"), ("bytes",), ("n", "d")),
]
VALUES: dict[str, Value] = {
    f"{layer} {number} {along}": partial(_exponent, layer=layer, number=number, along=along)
    for layer, number, along in EXPONENTS
} | {"fused / written out": lambda rows: _longest(rows, "fused attention") / _longest(rows, "attention")}
CONTROLS: dict[str, Value] = {
    "attention multiplications n": partial(_exponent, layer="position-wise", number="multiplications", along="n"),
    "recurrent chain n": partial(_exponent, layer="position-wise", number="chain", along="n"),
}
