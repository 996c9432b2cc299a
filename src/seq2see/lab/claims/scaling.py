"""Claim: dividing attention scores by sqrt(d_k) keeps the gradient of the softmax from vanishing at large d_k."""

import math
from functools import partial
from typing import Any

import torch

from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.model.attention import scaled_dot_product_attention

USUAL, SMALL = "of variance 1", "of variance 1/d_k"
"""Distributions of the queries' components: that of the paper, and the control, in which scores do not grow
with d_k.
"""
SHARING = 100
"""Number of random queries that are compared with the same keys: few, so that the mean over all queries covers many
random sets of keys.
"""


def trials(plan: Plan) -> list[dict[str, Any]]:
    widths = (4, 16, 64, 256) if plan.quick else (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    return grid(queries_are=(USUAL, SMALL), d_k=widths, scaled=(True, False), keys=64, queries=2000)


def measure(trial: Trial) -> Numbers:
    """Measure scores and softmax gradients for random queries and keys with independent components of mean 0.

    The variance of the components is 1; for the queries of the control, it is 1/d_k.
    """
    torch.manual_seed(trial.seed)
    d_k = trial["d_k"]
    sets = max(1, trial["queries"] // SHARING)
    query = torch.randn(sets, SHARING, d_k) / (1.0 if trial["queries_are"] == USUAL else math.sqrt(d_k))
    key, value = torch.randn(sets, trial["keys"], d_k), torch.randn(sets, trial["keys"], 1)
    factor = 1.0 if trial["scaled"] else math.sqrt(d_k)  # undoes the division inside
    weights = scaled_dot_product_attention(query * factor, key, value)[1].flatten(0, 1)
    scores = query @ key.transpose(1, 2) / (math.sqrt(d_k) if trial["scaled"] else 1.0)
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1) / math.log(trial["keys"])
    # The gradient reaches the scores through the Jacobian of the softmax, diag(w) - w w^T: its Frobenius norm.
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return {
        "variance": float(scores.var()),
        "entropy": float(entropy.mean()),
        "softmax_gradient": float(jacobian.flatten(1).norm(dim=1).median()),
        "largest_weight": float(weights.max(-1).values.mean()),
    }


def _widest(rows: Measurements, number: str, scaled: bool, queries_are: str = USUAL) -> float:
    return rows.get(number, d_k=max(rows.values("d_k")), scaled=scaled, queries_are=queries_are)


def _gradient_left(rows: Measurements, queries_are: str = USUAL) -> float:
    without, with_it = (_widest(rows, "softmax_gradient", scaled, queries_are) for scaled in (False, True))
    return without / with_it


def _entropy_lost(rows: Measurements) -> float:
    narrowest = rows.get("entropy", d_k=min(rows.values("d_k")), scaled=True, queries_are=USUAL)
    return narrowest - _widest(rows, "entropy", scaled=True)


VALUES: dict[str, Value] = {
    "variance": lambda rows: _widest(rows, "variance", scaled=False) / max(rows.values("d_k")),
    "growth": lambda rows: rows.slope("variance", "d_k", scaled=True, queries_are=USUAL),
    "gradient": _gradient_left,
    "entropy": _entropy_lost,
}
CONTROLS: dict[str, Value] = {"gradient": partial(_gradient_left, queries_are=SMALL)}
