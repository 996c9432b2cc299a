"""The loss that ignores padding (paper, section 5.4), with the output layer folded in.

Scores over the vocabulary are the largest tensors of a step by far, so they are made, used and dropped a few rows at a
time, and their gradient is taken on the way: at most twice `CHUNK_NUMBERS` of them exist at a time.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see import special

CHUNK_NUMBERS = 6_000_000
"""Scores made at once: 24 MB in float32. Fewer make the matrix products thin, more only cost memory (docs/log.md)."""


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
        V = len(weight_VD)
        real_N1 = (labels_N != special.PAD)[:, None]
        # The even part of smoothing is the same for all words, so it needs no pass over the vocabulary: a row's mean
        # score is the score of the mean weights, and every word's weights begin with the same share of the gradient.
        mean_weight_D = weight_VD.float().mean(0) if smoothing else None
        mean_bias = bias_V.float().mean() if smoothing and bias_V is not None else 0.0
        hidden_gradient = torch.empty_like(hidden_ND) if learning else None
        weight_gradient = bias_gradient = None
        if learning:
            even_D = (hidden_ND * real_N1).sum(0, dtype=torch.float32) * (-smoothing / V)
            weight_gradient = even_D.to(weight_VD.dtype).repeat(V, 1)
            if bias_V is not None:
                bias_gradient = (real_N1.sum() * (-smoothing / V)).to(bias_V.dtype).repeat(V)
        total, plain = hidden_ND.new_zeros((), dtype=torch.float32), hidden_ND.new_zeros((), dtype=torch.float32)
        rows = max(1, CHUNK_NUMBERS // V)
        for first in range(0, len(hidden_ND), rows):
            here = slice(first, first + rows)
            labels_C1, real_C1, hidden_CD = labels_N[here, None], real_N1[here], hidden_ND[here]
            scores_CV = F.linear(hidden_CD, weight_VD, bias_V).float()
            label_score_C1 = scores_CV.gather(1, labels_C1)
            logs_CV = scores_CV.log_softmax(-1)
            del scores_CV
            label_log_C1 = logs_CV.gather(1, labels_C1)
            plain = plain - (label_log_C1 * real_C1).sum()
            surprise_C1 = -label_log_C1
            if mean_weight_D is not None:
                # Not a matrix product: those are bfloat16 under autocast.
                mean_score_C1 = (hidden_CD.float() * mean_weight_D).sum(-1, keepdim=True) + mean_bias
                mean_log_C1 = mean_score_C1 - label_score_C1 + label_log_C1
                surprise_C1 = (1 - smoothing) * surprise_C1 - smoothing * mean_log_C1
            total = total + (surprise_C1 * real_C1).sum()
            if hidden_gradient is None or weight_gradient is None:
                continue
            # d loss / d scores = softmax - (1 - e) on the label - e / V everywhere, the last as said above. Padding is
            # masked in the D-wide tensors, not in the V-wide ones.
            gradient_CV = logs_CV.exp_()
            gradient_CV.scatter_add_(1, labels_C1, torch.full_like(label_log_C1, smoothing - 1))
            gradient_CV = gradient_CV.to(hidden_ND.dtype)
            hidden_part_CD = gradient_CV @ weight_VD
            if mean_weight_D is not None:
                hidden_part_CD = hidden_part_CD - (smoothing * mean_weight_D).to(hidden_part_CD.dtype)
            hidden_gradient[here] = hidden_part_CD * real_C1
            weight_gradient.addmm_(gradient_CV.T, hidden_CD * real_C1)
            if bias_gradient is not None:
                bias_gradient += (gradient_CV * real_C1).sum(0)
            del logs_CV, gradient_CV  # else they would live on while the next scores are made
        if learning:
            ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        # In place: they are nobody else's, and a copy of the weights' gradient would be the peak of a step's memory.
        scaled = (None if part is None else part.mul_(gradient) for part in ctx.saved_tensors)
        return (*scaled, None, None, None)
