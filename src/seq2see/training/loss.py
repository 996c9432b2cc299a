"""The loss that ignores padding (paper, section 5.4), with the output layer folded in.

Scores over the vocabulary are the largest tensors of a step by far, so they are made, used and dropped a few rows at a
time, and their gradient is taken on the way: no more than `CHUNK_NUMBERS` of them ever exist.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see import special

CHUNK_NUMBERS = 8_000_000
"""Scores made at once: 32 MB in float32. Fewer make the matrix products thin, more only cost memory (docs/log.md)."""


class Loss(NamedTuple):
    """Sums, not means: whoever knows the token count of all parts divides once."""

    total: Tensor
    """Cross entropy with label smoothing, in nats; differentiable."""
    plain: Tensor
    """Cross entropy without smoothing: its mean's exponential is the perplexity."""
    tokens: Tensor
    """Tokens that are not padding."""


def smoothed_cross_entropy(hidden_ND: Tensor, output: nn.Linear, labels_N: Tensor, smoothing: float = 0.0) -> Loss:
    """How badly `output(hidden)` predicts the labels, padding left out.

    With smoothing e the label distribution is 1 - e on the label plus e spread evenly over the vocabulary.
    """
    learning = torch.is_grad_enabled()  # asked here: inside a Function it is always off
    total, plain = _OutputLoss.apply(hidden_ND, output.weight, output.bias, labels_N, smoothing, learning)  # type: ignore[no-untyped-call]
    return Loss(total, plain, (labels_N != special.PAD).sum())


class _OutputLoss(torch.autograd.Function):
    """Output layer and loss in pieces; each piece leaves behind only its share of the gradients."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        labels_N: Tensor,
        smoothing: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        hidden_gradient = torch.empty_like(hidden_ND) if learning else None
        weight_gradient = torch.zeros_like(weight_VD) if learning else None
        bias_gradient = torch.zeros_like(bias_V) if learning and bias_V is not None else None
        total, plain = hidden_ND.new_zeros((), dtype=torch.float32), hidden_ND.new_zeros((), dtype=torch.float32)
        V = len(weight_VD)
        rows = max(1, CHUNK_NUMBERS // V)
        # A row's mean score is the score of the mean weights: smoothing needs no pass over the vocabulary.
        mean_weight_D = weight_VD.float().mean(0)
        mean_bias = 0.0 if bias_V is None else bias_V.float().mean()
        for first in range(0, len(hidden_ND), rows):
            here = slice(first, first + rows)
            labels_C1 = labels_N[here, None]
            real_C1 = labels_C1 != special.PAD
            hidden_CD = hidden_ND[here]
            scores_CV = F.linear(hidden_CD, weight_VD, bias_V).float()
            label_score_C1 = scores_CV.gather(1, labels_C1)
            logs_CV = scores_CV.log_softmax(-1)
            label_log_C1 = logs_CV.gather(1, labels_C1)
            plain = plain - (label_log_C1 * real_C1).sum()
            surprise_C1 = -label_log_C1
            if smoothing:
                mean_log_C1 = (hidden_CD.float() @ mean_weight_D)[:, None] + mean_bias - label_score_C1 + label_log_C1
                surprise_C1 = (1 - smoothing) * surprise_C1 - smoothing * mean_log_C1
            total = total + (surprise_C1 * real_C1).sum()
            if hidden_gradient is None or weight_gradient is None:
                continue
            # d loss / d scores = softmax - (1 - e) on the label - e / V everywhere. The last is the same for all words,
            # so it acts through the mean weights; padding is left out where rows are narrow.
            gradient_CV = logs_CV.exp_()
            gradient_CV.scatter_add_(1, labels_C1, torch.full_like(label_log_C1, smoothing - 1))
            gradient_CV = gradient_CV.to(hidden_ND.dtype)
            real_hidden_CD = hidden_CD * real_C1
            hidden_gradient[here] = (
                gradient_CV @ weight_VD - (smoothing * mean_weight_D).to(hidden_CD.dtype)
            ) * real_C1
            weight_gradient.addmm_(gradient_CV.T, real_hidden_CD)
            if smoothing:
                weight_gradient -= real_hidden_CD.sum(0) * (smoothing / V)
            if bias_gradient is not None:
                bias_gradient += gradient_CV.T @ real_C1[:, 0].to(gradient_CV.dtype) - real_C1.sum() * (smoothing / V)
        if learning:
            ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        scaled = (None if part is None else part * gradient.to(part.dtype) for part in ctx.saved_tensors)
        return (*scaled, None, None, None)
