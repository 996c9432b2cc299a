"""Claim: dividing attention scores by sqrt(d_k) keeps the gradient of the softmax from vanishing at large d_k."""

import math
from typing import Any

import torch

from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.model.attention import scaled_dot_product_attention


def trials(plan: Plan) -> list[dict[str, Any]]:
    widths = (4, 16, 64, 256) if plan.quick else (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    return grid(d_k=widths, scaled=(True, False), keys=64, queries=2000)


def measure(trial: Trial) -> Numbers:
    """Draw queries and keys with independent components of mean 0 and variance 1, as the paper assumes."""
    torch.manual_seed(trial.seed)
    d_k = trial["d_k"]
    query = torch.randn(trial["queries"], d_k)
    key, value = torch.randn(trial["keys"], d_k), torch.randn(trial["keys"], 1)
    factor = 1.0 if trial["scaled"] else math.sqrt(d_k)  # undoes the division inside
    _, weights = scaled_dot_product_attention(query * factor, key, value)
    scores = query @ key.T / (math.sqrt(d_k) if trial["scaled"] else 1.0)
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1) / math.log(trial["keys"])
    # The gradient reaches the scores through the Jacobian of the softmax, diag(w) - w w^T: its Frobenius norm.
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return {
        "variance": float(scores.var()),
        "entropy": float(entropy.mean()),
        "softmax_gradient": float(jacobian.flatten(1).norm(dim=1).median()),
        "largest_weight": float(weights.max(-1).values.mean()),
    }


def _widest(rows: Measurements, number: str, scaled: bool) -> float:
    return rows.get(number, d_k=max(rows.values("d_k")), scaled=scaled)


VALUES: dict[str, Value] = {
    "variance": lambda rows: _widest(rows, "variance", scaled=False) / max(rows.values("d_k")),
    "growth": lambda rows: rows.slope("variance", "d_k", scaled=True),
    "gradient": lambda rows: (
        _widest(rows, "softmax_gradient", scaled=False) / _widest(rows, "softmax_gradient", scaled=True)
    ),
    "entropy": lambda rows: _widest(rows, "entropy", scaled=True),
}
