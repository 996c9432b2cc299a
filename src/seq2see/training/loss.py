"""The loss that ignores padding (paper, section 5.4), with the output layer folded in.

Scores over the vocabulary are the largest tensors of a step by far, so they are made, used and dropped a few rows at a
time, and their gradient is taken on the way: no more than `CHUNK_NUMBERS` of them ever exist.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see import special

CHUNK_NUMBERS = 4_000_000
"""Scores made at once. 16 MB in float32: small enough for a processor's cache, large enough for its matrix units."""


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
        for first in range(0, len(hidden_ND), rows):
            here = slice(first, first + rows)
            labels_C1 = labels_N[here, None]
            real_C1 = labels_C1 != special.PAD
            scores_CV = F.linear(hidden_ND[here], weight_VD, bias_V).float()
            normalizer_C1 = scores_CV.logsumexp(-1, keepdim=True)
            surprise_C1 = (normalizer_C1 - scores_CV.gather(1, labels_C1)) * real_C1
            plain = plain + surprise_C1.sum()
            if smoothing:
                evenly_C1 = (normalizer_C1 - scores_CV.mean(-1, keepdim=True)) * real_C1
                surprise_C1 = (1 - smoothing) * surprise_C1 + smoothing * evenly_C1
            total = total + surprise_C1.sum()
            if hidden_gradient is None or weight_gradient is None:
                continue
            # d loss / d scores = softmax - label distribution, built in the memory of the scores.
            gradient_CV = scores_CV.sub_(normalizer_C1).exp_()
            if smoothing:
                gradient_CV.sub_(smoothing / V)
            gradient_CV.scatter_add_(1, labels_C1, torch.full_like(normalizer_C1, smoothing - 1))
            gradient_CV.mul_(real_C1)
            gradient_CV = gradient_CV.to(hidden_ND.dtype)
            hidden_gradient[here] = gradient_CV @ weight_VD
            weight_gradient.addmm_(gradient_CV.T, hidden_ND[here])
            if bias_gradient is not None:
                bias_gradient += gradient_CV.sum(0)
        if learning:
            ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        scaled = (None if part is None else part * gradient.to(part.dtype) for part in ctx.saved_tensors)
        return (*scaled, None, None, None)
