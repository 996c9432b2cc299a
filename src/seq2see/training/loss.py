"""Label-smoothed cross entropy that ignores padding (Vaswani et al., 2017, section 5.4), with the output layer.

Read `written_out` first: it is the definition. `smoothed_cross_entropy` computes the same, and is used in training.
Logits over the vocabulary are by far the largest tensors of a step, so they are computed, used and freed a few rows at
a time, together with their gradient: about `CHUNK_NUMBERS` of them exist at once (`CHUNK_BYTES_ON_GPU` on a GPU), and
with R-Drop or in bfloat16 two or three times as many.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see import special
from seq2see.kernels import loading
from seq2see.model.interface import Seq2Seq
from seq2see.model.packing import Packing
from seq2see.training import guided_alignment

CHUNK_NUMBERS = 6_000_000
"""Approximate number of logits in a chunk of rows on a CPU: 24 MB in float32. With fewer, matrix multiplications are
slow; more take memory (docs/log.md).
"""

CHUNK_BYTES_ON_GPU = 512_000_000
"""Approximate size of the logits of a chunk of rows on a GPU, where every kernel launch takes time."""


class Loss(NamedTuple):
    """Sums over target tokens, not means: the loop divides once, by the number of tokens of all micro-batches.

    With R-Drop, they are half of the sums over both forward passes.
    """

    total: Tensor
    """The loss that training minimises, in nats: the sum of the label-smoothed cross entropies and, if they are used,
    of the weighted losses of R-Drop and guided alignment. It is differentiable.
    """
    plain: Tensor
    """Sum of the cross entropies without label smoothing, in nats; the exponential of its mean is the perplexity."""
    tokens: Tensor
    """Number of target tokens that are not padding, by which `total` and `plain` are divided for a mean."""


def written_out(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> Tensor:
    """Return the sum over tokens of -(1 - e) log p(label) - e * mean over the vocabulary of log p, with e = smoothing.

    This is the cross entropy of p and a distribution of 1 - e on the label plus e spread evenly over the vocabulary.
    Padding is not part of the sum.
    """
    logs_NV = logits_NV.log_softmax(-1)
    label_N, mean_N = logs_NV.gather(1, labels_N[:, None])[:, 0], logs_NV.mean(-1)
    losses_N = -(1 - smoothing) * label_N - smoothing * mean_N
    return losses_N[labels_N != special.PAD].sum()


def smoothed_cross_entropy(
    hidden_ND: Tensor, output: nn.Linear, labels_N: Tensor, smoothing: float = 0.0, agreement: float = 0.0
) -> Loss:
    """Return the label-smoothed cross entropy of `output(hidden)` and the labels (see `written_out`), by chunks.

    If `agreement` (the weight of R-Drop, Liang et al. 2021) is not 0, the second half of the rows must be the first
    half again, with another dropout mask. With p and q, the outputs of the halves, the loss is the mean of their cross
    entropies plus `agreement` times (KL(p, q) + KL(q, p)) / 2.
    """
    learning = torch.is_grad_enabled()  # asked here: inside a Function it is always off
    total, plain = _OutputLoss.apply(  # type: ignore[no-untyped-call]
        hidden_ND, output.weight, output.bias, labels_N, smoothing, agreement, learning
    )
    passes = 2 if agreement else 1
    return Loss(total / passes, plain / passes, (labels_N != special.PAD).sum() // passes)


def teacher_forced(
    model: Seq2Seq,
    source_N: Tensor,
    sources: Tensor | Packing,
    inputs_N: Tensor,
    targets: Tensor | Packing,
    labels_N: Tensor,
    smoothing: float = 0.0,
    agreement: float = 0.0,
    links_N: Tensor | None = None,
    alignment_weight: float = 0.0,
) -> Loss:
    """Return the loss with teacher forcing: each target token is predicted from the true tokens before it.

    If `links_N` is given, `alignment_weight` times the loss of the head that learns this word alignment is added.

    Args:
        sources: Offsets of the sequences in `source_N` (see `Batch`), or a `Packing` made of them.
        targets: The same for `inputs_N`, the decoder inputs, and `labels_N`, the tokens to predict.
        smoothing: Share of label smoothing, from 0 to 1.
        agreement: Weight of R-Drop; see `smoothed_cross_entropy`.
    """
    if links_N is None or not alignment_weight:
        hidden_ND = model.decode(inputs_N, targets, model.encode(source_N, sources))
        return smoothed_cross_entropy(hidden_ND, model.output, labels_N, smoothing, agreement)
    with guided_alignment.observed(model) as seen:
        hidden_ND = model.decode(inputs_N, targets, model.encode(source_N, sources))
    loss = smoothed_cross_entropy(hidden_ND, model.output, labels_N, smoothing, agreement)
    passes = 2 if agreement else 1
    return loss._replace(total=loss.total + seen.loss(links_N) * (alignment_weight / passes))


class _OutputLoss(torch.autograd.Function):
    """Output layer and loss, computed in chunks of rows with their gradients, so that no chunk's logits are kept."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        labels_N: Tensor,
        smoothing: float,
        agreement: float,
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
            if bias_V is not None and ctx.needs_input_grad[2]:
                bias_gradient = (real_N1.sum() * (-smoothing / V)).to(bias_V.dtype).repeat(V)
        total, plain = hidden_ND.new_zeros((), dtype=torch.float32), hidden_ND.new_zeros((), dtype=torch.float32)
        # Under autocast, which is for GPUs only, cast once and not for each chunk; the sum of gradients stays as exact
        # as the weights.
        exact = loading.compute_dtype(hidden_ND) if hidden_ND.is_cuda else hidden_ND.dtype
        output_weight_VD, output_bias_V = weight_VD.to(exact), None if bias_V is None else bias_V.to(exact)
        passes = 2 if agreement else 1
        once = len(hidden_ND) // passes
        numbers = CHUNK_BYTES_ON_GPU // exact.itemsize if hidden_ND.is_cuda else CHUNK_NUMBERS
        rows = max(1, numbers // (V * passes))
        for first in range(0, once, rows):
            last = min(first + rows, once)
            places = [slice(first + before, last + before) for before in range(0, passes * once, once)]
            labels_C1, real_C1 = labels_N[first:last, None], real_N1[first:last]  # the same in both passes
            scores = [F.linear(hidden_ND[here], output_weight_VD, output_bias_V) for here in places]
            label_scores, label_logs, difference_C1 = _to_gradients_(scores, labels_C1, smoothing, agreement, learning)
            for here, label_score_C1, label_log_C1 in zip(places, label_scores, label_logs, strict=True):
                plain = plain - (label_log_C1 * real_C1).sum()
                surprise_C1 = -label_log_C1
                if mean_weight_D is not None:
                    # Not a matrix product: those are bfloat16 under autocast.
                    mean_score_C1 = (hidden_ND[here].float() * mean_weight_D).sum(-1, keepdim=True) + mean_bias
                    mean_log_C1 = mean_score_C1 - label_score_C1 + label_log_C1
                    surprise_C1 = (1 - smoothing) * surprise_C1 - smoothing * mean_log_C1
                total = total + (surprise_C1 * real_C1).sum()
            if agreement:
                total = total + (difference_C1 * real_C1).sum()
            for here in places if learning else []:
                # The part of the gradient that is the same for all words is added here. Padding is masked in the D-wide
                # tensors, not in the V-wide ones.
                gradient_CV = scores.pop(0)
                hidden_part_CD = gradient_CV @ output_weight_VD
                if mean_weight_D is not None:
                    hidden_part_CD = hidden_part_CD - (smoothing * mean_weight_D).to(exact)
                assert hidden_gradient is not None
                assert weight_gradient is not None
                hidden_gradient[here] = hidden_part_CD * real_C1
                known_CD = (hidden_ND[here] * real_C1).to(exact)
                if exact == weight_gradient.dtype:
                    weight_gradient.addmm_(gradient_CV.T, known_CD)
                else:
                    weight_gradient += gradient_CV.T @ known_CD
                if bias_gradient is not None:
                    bias_gradient += gradient_CV.T @ real_C1[:, 0].to(exact)
                del gradient_CV
        if learning:
            ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        # In place: they are nobody else's, and a copy of the weights' gradient would be the peak of a step's memory.
        scaled = (None if part is None else part.mul_(gradient) for part in ctx.saved_tensors)
        return (*scaled, None, None, None, None)


def _to_gradients_(
    scores: list[Tensor], labels_C1: Tensor, smoothing: float, agreement: float, learning: bool
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return the label's logit and log-probability in each forward pass, and the R-Drop loss of two passes, per row.

    `scores` holds the logits of one pass, or of two with R-Drop, and is overwritten: if `learning`, by the gradient of
    the loss, which is the softmax, minus 1 - e at the label (e is the smoothing), plus the gradient of the R-Drop loss.
    The rest of the gradient, -e / V for every word of the vocabulary, is left to the caller.
    """
    if scores[0].is_cuda and loading.are_available(scores[0]):
        return loading.rows().to_gradients_(scores, labels_C1, 1 - smoothing, agreement, learning)  # type: ignore[no-any-return]
    label_scores = [scores_CV.gather(1, labels_C1).float() for scores_CV in scores]
    given = scores[0].dtype
    for place, scores_CV in enumerate(scores):  # in place where they are float32: a copy would take as long again
        scores[place] = torch.log_softmax(scores_CV.float(), -1, out=scores_CV if given == torch.float32 else None)
    label_logs = [logs_CV.gather(1, labels_C1) for logs_CV in scores]
    difference_C1 = labels_C1.new_zeros(())
    if agreement:
        difference_C1 = _disagree(scores, agreement)
    elif learning:
        scores[0].exp_()
    if learning:
        right_C1 = torch.full_like(labels_C1, smoothing - 1, dtype=torch.float32)
        for place, gradient_CV in enumerate(scores):
            scores[place] = gradient_CV.scatter_add_(1, labels_C1, right_C1).to(given)
    return label_scores, label_logs, difference_C1


def _disagree(logs: list[Tensor], weight: float) -> Tensor:
    """Return the R-Drop loss of two forward passes, weight * (KL(p, q) + KL(q, p)), for each row.

    `logs` holds the log-probabilities log p and log q. Each is replaced by a gradient with respect to the logits of
    its pass: that of this loss, which is weight * (p * (log(p / q) - KL(p, q) + 1) - q) for p, plus the part of the
    gradient of the cross entropy that does not depend on the label: the softmax, p.
    """
    ratio_CV = logs[0] - logs[1]
    p_CV, q_CV = logs[0].exp_(), logs[1].exp_()
    first_C1, second_C1 = (p_CV * ratio_CV).sum(-1, keepdim=True), -(q_CV * ratio_CV).sum(-1, keepdim=True)
    logs[0] = p_CV * (ratio_CV * weight + (1 + weight - weight * first_C1)) - weight * q_CV
    logs[1] = q_CV * (ratio_CV * -weight + (1 + weight - weight * second_C1)) - weight * p_CV
    return weight * (first_C1 + second_C1)
