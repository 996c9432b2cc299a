"""Why scores are divided by sqrt(d_k)."""

import math
from typing import Any

import torch

from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.model.attention import scaled_dot_product_attention

KEYS = 64
QUERIES = 2000


def trials(plan: Plan) -> list[dict[str, Any]]:
    widths = (4, 16, 64, 256) if plan.quick else (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    return [
        {"d_k": width, "scaled": scaled, "keys": KEYS, "queries": QUERIES}
        for width in widths
        for scaled in (True, False)
    ]


def measure(trial: Trial) -> Numbers:
    """Queries and keys of independent components with mean 0 and variance 1, as the paper assumes."""
    torch.manual_seed(trial.seed)
    d_k = trial["d_k"]
    query = torch.randn(trial["queries"], d_k)
    key, value = torch.randn(trial["keys"], d_k), torch.randn(trial["keys"], 1)
    factor = 1.0 if trial["scaled"] else math.sqrt(d_k)  # undoes the division inside
    _, weights = scaled_dot_product_attention(query * factor, key, value)
    scores = query @ key.T / (math.sqrt(d_k) if trial["scaled"] else 1.0)
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1) / math.log(trial["keys"])
    # What reaches the scores through the softmax: its Jacobian, diag(w) - w w^T, has this Frobenius norm.
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return {
        "variance": float(scores.var()),
        "entropy": float(entropy.mean()),
        "softmax_gradient": float(jacobian.flatten(1).norm(dim=1).median()),
        "largest_weight": float(weights.max(-1).values.mean()),
    }


def _widest(rows: Rows) -> int:
    return int(max(rows.values("d_k")))


CLAIM = Claim(
    name="scaling",
    words="Dot products grow with d_k and push the softmax to where its gradient is extremely small; dividing by "
    "sqrt(d_k) counteracts that.",
    source="Vaswani et al. 2017, section 3.2.1 and footnote 4",
    measured="2,000 random queries on 64 random keys of variance 1: variance of the scores, entropy of the weights (1: "
    "all alike), norm of the softmax's Jacobian (the median query), which is how much gradient gets through",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "without scaling, the variance of the scores is d_k",
            "variance / d_k at the largest d_k",
            lambda rows: rows.get("variance", d_k=_widest(rows), scaled=False) / _widest(rows),
            at_least=0.9,
            at_most=1.1,
        ),
        Expectation(
            "with scaling it stays 1",
            "exponent of the variance in d_k",
            lambda rows: rows.slope("variance", "d_k", scaled=True),
            at_least=-0.05,
            at_most=0.05,
        ),
        Expectation(
            "without scaling, the softmax saturates, and its gradient vanishes",
            "gradient through the softmax at the largest d_k, without scaling / with",
            lambda rows: (
                rows.get("softmax_gradient", d_k=_widest(rows), scaled=False)
                / rows.get("softmax_gradient", d_k=_widest(rows), scaled=True)
            ),
            at_most=0.5,
        ),
        Expectation(
            "with scaling it does not",
            "entropy of the weights at the largest d_k, of 1",
            lambda rows: rows.get("entropy", d_k=_widest(rows), scaled=True),
            at_least=0.8,
        ),
    ),
    charts=(
        Chart("variance of the scores", "variance", "d_k", ("scaled",), log_x=True, log_y=True),
        Chart("entropy of the weights", "entropy", "d_k", ("scaled",), log_x=True),
        Chart("gradient through the softmax", "softmax_gradient", "d_k", ("scaled",), log_x=True),
    ),
)
