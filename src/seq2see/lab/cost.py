"""What a layer costs: the paper's table 1, measured."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.model.attention import EVERYWHERE, Point, attend

REPEATED_FOR = 0.4
"""Seconds, of which the best repetition counts."""
LAYERS = ("attention", "fused attention", "recurrent")


def trials(plan: Plan) -> list[dict[str, Any]]:
    """The length grows with the width fixed, and the other way round."""
    n, d = [256, 512, 1024, 2048], [128, 256, 512, 1024]
    if not plan.quick:
        n, d = [*n, 4096], [*d, 2048]
    along_n = [{"layer": layer, "growing": "n", "n": each, "d": 64} for layer in LAYERS for each in n]
    along_d = [{"layer": layer, "growing": "d", "n": 64, "d": each} for layer in LAYERS for each in d]
    return along_n + along_d


def measure(trial: Trial) -> Numbers:
    """One layer forward, its bytes kept for the gradient, its longest chain of operations, and one core's time."""
    torch.manual_seed(trial.seed)
    forward = _layer(trial["layer"], trial["n"], trial["d"])
    kept: dict[int, int] = {}

    def weigh(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
        output = forward()
    numbers = {"bytes": float(sum(kept.values())), "chain": float(_longest_chain(output)), "seconds": _seconds(forward)}
    if trial["layer"] != "fused attention":  # whose products the counter does not see on every processor
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            forward()
        numbers["multiplications"] = counter.get_total_flops() / 2
    return numbers


def _layer(kind: str, n: int, d: int) -> Callable[[], Tensor]:
    """What the table counts: the two products of attention, or the steps of a recurrent layer with its inputs ready."""
    if kind == "recurrent":
        x = torch.randn(n, 1, d, requires_grad=True)
        w_h = torch.randn(d, d, requires_grad=True)

        def recur() -> Tensor:
            state = x[0]
            for step in range(1, n):
                state = torch.tanh(state @ w_h / math.sqrt(d) + x[step])
            return state

        return recur
    query, key, value = (torch.randn(1, 1, n, d, requires_grad=True) for _ in range(3))
    inside = Point()
    if kind == "attention":
        inside.register_forward_hook(lambda *_: None)  # while somebody listens, it is written out
    return lambda: attend(query, key, value, EVERYWHERE, inside)


def _longest_chain(output: Tensor) -> int:
    """Operations that must wait for each other, the longest such chain: steps that no parallel machine can save."""
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


def _seconds(forward: Callable[[], Tensor]) -> float:
    """Of one core, which hears little of what others do on the machine; the best of several."""
    best = math.inf
    until = time.monotonic() + REPEATED_FOR
    with torch.no_grad():
        forward()
        while best == math.inf or time.monotonic() < until:
            began = time.thread_time()
            forward()
            best = min(best, time.thread_time() - began)
    return best


def _longest(rows: Rows, layer: str) -> float:
    return rows.get("bytes", layer=layer, growing="n", n=max(rows.where(growing="n").values("n")))


def _exponent(layer: str, number: str, along: str) -> Callable[[Rows], float]:
    return lambda rows: rows.slope(number, along, layer=layer, growing=along)


CLAIM = Claim(
    name="cost",
    words="A self-attention layer takes O(n² d) operations and O(1) steps that wait for each other, a recurrent layer "
    "O(n d²) and O(n). (Later work: attention need not keep its n² weights in memory.)",
    source="Vaswani et al. 2017, section 4 and table 1; fused attention: Dao et al. 2022",
    measured="one head of attention and one plain recurrent layer, against length n (d 64) and width d (n 64): counted "
    "multiplications, seconds of one core, bytes kept for the gradient, the longest chain of operations; exponents are "
    "fitted to the logarithms",
    trials=trials,
    measure=measure,
    expectations=(
        *(
            Expectation(
                words,
                f"{layer}: exponent of {number} in {along}",
                _exponent(layer, number, along),
                low,
                high,
                tolerance,
            )
            for words, layer, number, along, low, high, tolerance in (
                ("attention: n²", "attention", "multiplications", "n", 1.95, 2.05, 0.0),
                ("attention: d", "attention", "multiplications", "d", 0.95, 1.05, 0.0),
                ("recurrence: n", "recurrent", "multiplications", "n", 0.95, 1.05, 0.0),
                ("recurrence: d²", "recurrent", "multiplications", "d", 1.95, 2.05, 0.0),
                ("attention: no longer chain for longer texts", "attention", "chain", "n", -0.05, 0.05, 0.0),
                ("recurrence: a chain as long as the text", "recurrent", "chain", "n", 0.95, 1.05, 0.0),
                ("by the clock, too: n²; more where caches overflow", "attention", "seconds", "n", 1.5, 3.0, 0.05),
                ("by the clock, too: n", "recurrent", "seconds", "n", 0.5, 1.5, 0.05),
                ("written out, attention keeps n² numbers", "attention", "bytes", "n", 1.5, 2.05, 0.0),
                ("fused, it keeps n", "fused attention", "bytes", "n", 0.95, 1.05, 0.0),
            )
        ),
        Expectation(
            "fused attention needs less memory",
            "bytes kept at the largest n, fused / written out",
            lambda rows: _longest(rows, "fused attention") / _longest(rows, "attention"),
            at_most=0.5,
        ),
    ),
    charts=(
        Chart("seconds of one core", "seconds", "n", ("layer",), {"growing": "n"}, log_x=True, log_y=True),
        Chart("bytes kept for the gradient", "bytes", "n", ("layer",), {"growing": "n"}, log_x=True, log_y=True),
        Chart("longest chain of operations", "chain", "n", ("layer",), {"growing": "n"}, log_x=True, log_y=True),
        Chart("seconds of one core", "seconds", "d", ("layer",), {"growing": "d"}, log_x=True, log_y=True),
        Chart("bytes kept for the gradient", "bytes", "d", ("layer",), {"growing": "d"}, log_x=True, log_y=True),
    ),
)
