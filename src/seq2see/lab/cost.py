"""What a layer costs: the paper's table 1, measured."""

import math
import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.model.attention import attend
from seq2see.model.packing import EVERYWHERE
from seq2see.model.recording import RecordingPoint

REPEATED_FOR = 0.4
"""Seconds, of which the best repetition counts."""
LAYERS = ("attention", "fused attention", "recurrent")


def trials(plan: Plan) -> list[dict[str, Any]]:
    """The length grows with the width fixed, and the other way round."""
    n, d = [256, 512, 1024, 2048], [256, 512, 1024, 2048]
    if not plan.quick:
        n, d = [*n, 4096], [*d, 4096]
    along_n = [{"layer": layer, "growing": "n", "n": each, "d": 64, "threads": 1} for layer in LAYERS for each in n]
    along_d = [{"layer": layer, "growing": "d", "n": 64, "d": each, "threads": 1} for layer in LAYERS for each in d]
    return along_n + along_d


def measure(trial: Trial) -> Numbers:
    """With as many threads as the trial says: how well many of them share the work is another question."""
    before = torch.get_num_threads()
    torch.set_num_threads(trial["threads"])
    try:
        return _measure(trial)
    finally:
        torch.set_num_threads(before)


def _measure(trial: Trial) -> Numbers:
    """One layer forward, its bytes kept for the gradient, its longest chain of operations, and one core's time."""
    torch.manual_seed(trial.seed)
    forward, weights = _layer(trial["layer"], trial["n"], trial["d"])
    kept: dict[int, int] = {}

    def weigh(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
        output = forward()
    for weight in weights:  # they are there anyway
        kept.pop(weight.untyped_storage().data_ptr(), None)
    numbers = {"bytes": float(sum(kept.values())), "chain": float(_longest_chain(output)), "seconds": _seconds(forward)}
    if trial["layer"] != "fused attention":  # whose products the counter does not see on every processor
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            forward()
        numbers["multiplications"] = counter.get_total_flops() / 2
    return numbers


def _layer(kind: str, n: int, d: int) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """What the table counts, and its weights: attention's two products, or the steps of an RNN with its inputs ready.

    The simplest RNN there is, one sequence, a loop: whose chain, products and bytes can be counted as attention's are.
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
    query, key, value = (torch.randn(1, 1, n, d, requires_grad=True) for _ in range(3))
    inside = RecordingPoint()
    if kind == "attention":
        inside.register_forward_hook(lambda *_: None)  # while somebody listens, it is written out
    return lambda: attend(query, key, value, EVERYWHERE, inside), []


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


ABOUT: Final = {0: (-0.3, 0.3), 1: (0.7, 1.3), 2: (1.5, 2.5)}
"""Where an exponent may lie that smaller terms, caches and the cost of a call have a part in."""


def _exponent(words: str, layer: str, number: str, along: str, power: int) -> Expectation:
    """What is counted is exact; n² numbers beside 4 n d of them are n² only about."""
    counted = number in ("multiplications", "chain")
    low, high = (power - 0.05, power + 0.05) if counted else ABOUT[power]
    return Expectation(
        words,
        f"{layer}: exponent of {number} in {along}",
        lambda rows: rows.slope(number, along, layer=layer, growing=along),
        low,
        high,
        exact=number != "seconds",
    )


CLAIM = Claim(
    name="cost",
    words="Table 1: a self-attention layer takes O(n² d) operations and O(1) steps that wait for each other, a "
    "recurrent layer O(n d²) and O(n). (Later work: written out, attention keeps n² weights in memory; fused, it keeps "
    "O(n d) numbers.)",
    source="Vaswani et al. 2017, section 4 and table 1; memory: Dao et al. 2022",
    measured="one head of attention and one plain recurrent layer, h = tanh(W h + x) in a loop, one sequence, against "
    "length n (d 64) and width d (n 64): counted multiplications, the longest chain of operations, seconds of one core "
    "alone on the machine, and bytes kept for the gradient, weights apart; exponents are fitted to the logarithms",
    trials=trials,
    measure=measure,
    expectations=(
        *(
            _exponent(words, layer, number, along, power)
            for words, layer, number, along, power in (
                ("table 1, self-attention: n² d operations", "attention", "multiplications", "n", 2),
                ("table 1, self-attention: n² d operations", "attention", "multiplications", "d", 1),
                ("table 1, recurrent: n d² operations", "recurrent", "multiplications", "n", 1),
                ("table 1, recurrent: n d² operations", "recurrent", "multiplications", "d", 2),
                ("table 1, self-attention: 1 sequential step", "attention", "chain", "n", 0),
                ("table 1, recurrent: n sequential steps", "recurrent", "chain", "n", 1),
                ("by the clock, too: n² d", "attention", "seconds", "n", 2),
                ("by the clock, too: n² d", "attention", "seconds", "d", 1),
                ("by the clock, too: n d²", "recurrent", "seconds", "n", 1),
                ("by the clock, too: n d²", "recurrent", "seconds", "d", 2),
                ("written out, attention keeps n² weights", "attention", "bytes", "n", 2),
                ("and n d inputs and outputs", "attention", "bytes", "d", 1),
                ("fused, it keeps n d numbers", "fused attention", "bytes", "n", 1),
                ("fused, it keeps n d numbers", "fused attention", "bytes", "d", 1),
                ("recurrence keeps n states of d numbers", "recurrent", "bytes", "n", 1),
                ("recurrence keeps n states of d numbers", "recurrent", "bytes", "d", 1),
            )
        ),
        Expectation(
            "fused attention needs less memory",
            "bytes kept at the largest n, fused / written out",
            lambda rows: _longest(rows, "fused attention") / _longest(rows, "attention"),
            at_most=0.5,
            exact=True,
        ),
    ),
    charts=(
        *(
            Chart(title, number, along, ("layer",), {"growing": along}, log_x=True, log_y=True)
            for title, number, along in (
                ("seconds of one core", "seconds", "n"),
                ("bytes kept for the gradient", "bytes", "n"),
                ("longest chain of operations", "chain", "n"),
                ("seconds of one core", "seconds", "d"),
                ("bytes kept for the gradient", "bytes", "d"),
            )
        ),
    ),
    alone=True,
)
