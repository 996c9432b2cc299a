"""Operations on whole rows on a GPU, in Triton. Memory bandwidth limits them, so each number is read once or twice.

`norm_of_sum`: dropout, residual sum and layer norm in one pass.

`rotated`: rotary positions, applied to the queries and keys among the columns of each row.

`to_gradients_`: from logits over the vocabulary to the gradient of the loss with respect to them, in place, in two
passes.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seq2see.kernels.loading import is_collecting, launch, tried_once
from seq2see.kernels.packed_attention import works_on

ROW_TILE = 4096
"""Number of elements, in whole rows, that a Triton program of `norm_of_sum` processes at a time; at least one row."""
MOST_PROGRAMS = 1024
"""Maximum number of Triton programs in the backward pass of `norm_of_sum`; each sums the gradient of the norm's weights
over its own rows.
"""


@tried_once
def works(device: torch.device) -> bool:
    """Return whether a GPU can run Triton kernels at all, by trying one; Triton needs a C compiler."""

    def trial() -> Tensor:
        rows = torch.zeros(16, 16, device=device)
        return norm_of_sum(rows, rows, nn.LayerNorm(16, device=device), 0.0, torch.float32)

    return works_on(trial, device, learning=False)  # nothing else uses a kernel of this width


def norm_of_sum(
    x_ND: Tensor, added_ND: Tensor | None, norm: nn.LayerNorm | None, dropout: float, dtype: torch.dtype
) -> Tensor:
    """Return LayerNorm(x + dropout(added)); the sum or the norm is left out if `added` or `norm` is None.

    Args:
        dtype: the type of the normalised output; a sum without norm has that of `x`.
    """
    weight, bias, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    return _NormOfSum.apply(x_ND, added_ND, weight, bias, epsilon, dropout, dtype)  # type: ignore[no-untyped-call, no-any-return]


def to_gradients_(
    scores: list[Tensor], labels_C1: Tensor, right: float, agreement: float, learning: bool
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """If `learning`, replace the logits of one or two forward passes by the gradient of the loss (`training/loss.py`).

    The part of the gradient that label smoothing makes equal for all tokens is left out. Return, C1 each: the labels'
    logits and their log-probabilities, for each pass, and the R-Drop loss agreement * (KL(p, q) + KL(q, p)), 0 for one
    pass.

    Args:
        right: 1 - label smoothing, which is subtracted from the gradient at the label.
    """
    count, V = scores[0].shape
    found_5C1 = torch.zeros(5, count, 1, device=scores[0].device)
    first, second = scores[0], scores[-1]
    block = min(4096 // len(scores), triton.next_power_of_2(V))
    fixed = {"TWO": len(scores) == 2, "LEARNING": learning, "BLOCK": block, "num_warps": 8}
    given = first, second, labels_C1, found_5C1, count, V, first.stride(0), right, agreement
    launch(_to_gradients, (count,), *given, **fixed)
    return list(found_5C1[: len(scores)]), list(found_5C1[2 : 2 + len(scores)]), found_5C1[4]


def rotated(rows_NE: Tensor, places_N: Tensor, turns_LK2: Tensor, columns: int) -> Tensor:
    """Rotate the first `columns` columns of each row by its position (see `model.layers.rotate`); copy the others.

    Args:
        turns_LK2: For each position and pair of columns of a head, the complex number to multiply by.
        columns: Number of columns to rotate, a multiple of the width of a head.
    """
    return _Rotated.apply(rows_NE, places_N, torch.view_as_real(turns_LK2), columns)  # type: ignore[no-untyped-call, no-any-return]


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows_NE: Tensor, places_N: Tensor, turns_LK22: Tensor, columns: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(places_N, turns_LK22)
        ctx.columns = columns
        return _rotate_rows(rows_NE, places_N, turns_LK22, columns, inverse=False)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient_NE: Tensor) -> tuple[Any, ...]:  # type: ignore[no-untyped-def]
        places_N, turns_LK22 = ctx.saved_tensors
        return _rotate_rows(gradient_NE, places_N, turns_LK22, ctx.columns, inverse=True), None, None, None


def _rotate_rows(rows_NE: Tensor, places_N: Tensor, turns_LK22: Tensor, columns: int, inverse: bool) -> Tensor:
    rows_NE = rows_NE.contiguous()
    N, E = rows_NE.shape
    output_NE = torch.empty_like(rows_NE)
    width = 2 * turns_LK22.shape[1]
    tile = {"ROWS": 32, "COLUMNS": 128}
    grid = triton.cdiv(N, tile["ROWS"]), triton.cdiv(E, tile["COLUMNS"])
    given = rows_NE, output_NE, places_N, turns_LK22, N
    launch(_rotate, grid, *given, E=E, columns=columns, WIDTH=width, INVERSE=inverse, **tile)
    return output_NE


class _NormOfSum(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        x_ND: Tensor,
        added_ND: Tensor | None,
        weight_D: Tensor | None,
        bias_D: Tensor | None,
        epsilon: float,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        N, D = x_ND.shape
        x_ND = x_ND.contiguous()
        sum_ND = x_ND if added_ND is None else torch.empty_like(x_ND)
        output_ND = sum_ND if weight_D is None else torch.empty_like(x_ND, dtype=dtype)
        mean_N, scale_N = (torch.empty(N, device=x_ND.device) for _ in range(2))
        seed = _draw_seed(x_ND.device) if added_ND is not None and dropout else None
        columns = max(16, triton.next_power_of_2(D))
        rows = max(1, ROW_TILE // columns)
        ctx.fixed = {
            "D": D,
            "SUM": added_ND is not None,
            "NORM": weight_D is not None,
            "DROPS": seed is not None,
            "ROWS": rows,
            "COLUMNS": columns,
        }
        ctx.dropout, ctx.added_dtype = dropout, None if added_ND is None else added_ND.dtype
        added = None if added_ND is None else added_ND.contiguous()
        given = x_ND, added, weight_D, bias_D, seed, sum_ND, output_ND, mean_N, scale_N, N, epsilon, dropout
        launch(_sum_and_norm, (triton.cdiv(N, rows),), *given, **ctx.fixed)
        ctx.save_for_backward(sum_ND if weight_D is not None else None, weight_D, seed, mean_N, scale_N)
        return output_ND

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient_ND: Tensor) -> tuple[Any, ...]:  # type: ignore[no-untyped-def]
        sum_ND, weight_D, seed, mean_N, scale_N = ctx.saved_tensors
        gradient_ND = gradient_ND.contiguous()
        N, D = gradient_ND.shape
        by_sum_ND = gradient_ND if weight_D is None else torch.empty_like(sum_ND)
        by_added_ND = None
        if ctx.fixed["SUM"]:
            by_added_ND = torch.empty(N, D, dtype=ctx.added_dtype, device=gradient_ND.device)
        rows = ctx.fixed["ROWS"]
        programs = min(triton.cdiv(N, rows), MOST_PROGRAMS)
        parts = None if weight_D is None else torch.empty(2, programs, D, device=gradient_ND.device)
        given = gradient_ND, sum_ND, weight_D, seed, mean_N, scale_N, by_sum_ND, by_added_ND, parts, N, ctx.dropout
        launch(_sum_and_norm_backward, (programs,), *given, **ctx.fixed)
        by_weight, by_bias = (None, None) if parts is None else parts.sum(1)
        return by_sum_ND, by_added_ND, by_weight, by_bias, None, None, None


def _draw_seed(device: torch.device) -> Tensor:
    """Draw a seed for dropout on the GPU, so that a pass captured in a CUDA graph draws a new one at each replay.

    Inside `compiled_ahead` it is 0 and nothing is drawn, so that the random numbers of other threads stay as they are.
    """
    if is_collecting():
        return torch.zeros(1, dtype=torch.int64, device=device)
    return torch.randint(2**31 - 1, (1,), device=device)


@triton.jit
def _kept(seed, first_row, dropout, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the dropout factors (0 or 1 / keep probability) of the tile from row `first_row` on, as `seed` decides."""
    quarter: tl.constexpr = COLUMNS // 4
    places = (first_row + tl.arange(0, ROWS))[:, None] * quarter + tl.arange(0, quarter)[None, :]
    a, b, c, d = tl.rand4x(tl.load(seed), places, n_rounds=7)
    draws = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [ROWS, COLUMNS])
    return tl.where(draws >= dropout, 1.0 / (1.0 - dropout), 0.0)


@triton.jit(do_not_specialize=["N"])
def _rotate(  # type: ignore[no-untyped-def]
    x, output, places, turns, N, E, columns,
    WIDTH: tl.constexpr, INVERSE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Multiply pairs of columns (a, b), as a + bi, by cos + i sin; with INVERSE, by cos - i sin."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < N)[:, None] & (here < E)[None, :]
    first = x + rows[:, None].to(tl.int64) * E
    own = tl.load(first + here[None, :], mask=inside, other=0.0).to(tl.float32)
    turning = inside & (here < columns)[None, :]
    other = tl.load(first + (here ^ 1)[None, :], mask=turning, other=0.0).to(tl.float32)
    place = tl.load(places + rows, mask=rows < N, other=0)
    turn = turns + place[:, None] * WIDTH + ((here % WIDTH) // 2 * 2)[None, :]
    cosine = tl.load(turn, mask=turning, other=1.0)
    sine = tl.load(turn + 1, mask=turning, other=0.0)
    is_first = (here % 2 == 0)[None, :]
    if INVERSE:
        is_first = (here % 2 == 1)[None, :]
    found = own * cosine + tl.where(is_first, -other, other) * sine
    there = output + rows[:, None].to(tl.int64) * E + here[None, :]
    tl.store(there, found.to(output.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N"])
def _sum_and_norm(  # type: ignore[no-untyped-def]
    x, added, weight, bias, seed, sums, output, means, scales, N, epsilon, dropout, D,
    SUM: tl.constexpr, NORM: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * ROWS
    rows, columns = first_row + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (rows < N)[:, None] & (columns < D)[None, :]
    places = rows[:, None].to(tl.int64) * D + columns[None, :]
    total = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    if SUM:
        some = tl.load(added + places, mask=inside, other=0.0).to(tl.float32)
        if DROPS:
            some *= _kept(seed, first_row, dropout, ROWS, COLUMNS)
        total += some
        tl.store(sums + places, total.to(sums.dtype.element_ty), mask=inside)
    if NORM:
        mean = tl.sum(total, 1) / D
        apart = tl.where(inside, total - mean[:, None], 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / D + epsilon)
        tl.store(means + rows, mean, mask=rows < N)
        tl.store(scales + rows, scale, mask=rows < N)
        slope = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
        shift = tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)
        normed = apart * scale[:, None] * slope[None, :] + shift[None, :]
        tl.store(output + places, normed.to(output.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N"])
def _sum_and_norm_backward(  # type: ignore[no-untyped-def]
    gradient, sums, weight, seed, means, scales, by_sum, by_added, parts, N, dropout, D,
    SUM: tl.constexpr, NORM: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)
    if NORM:
        slope = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
        by_slope, by_shift = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    for first_row in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        rows = first_row + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < D)[None, :]
        places = rows[:, None].to(tl.int64) * D + columns[None, :]
        found = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            mean = tl.load(means + rows, mask=rows < N, other=0.0)
            scale = tl.load(scales + rows, mask=rows < N, other=0.0)
            total = tl.load(sums + places, mask=inside, other=0.0).to(tl.float32)
            normed = tl.where(inside, (total - mean[:, None]) * scale[:, None], 0.0)
            by_slope += tl.sum(found * normed, 0)
            by_shift += tl.sum(found, 0)
            found *= slope[None, :]
            along, level = tl.sum(found * normed, 1) / D, tl.sum(found, 1) / D
            found = (found - level[:, None] - normed * along[:, None]) * scale[:, None]
            tl.store(by_sum + places, found.to(by_sum.dtype.element_ty), mask=inside)
        if SUM:
            if DROPS:
                found *= _kept(seed, first_row, dropout, ROWS, COLUMNS)
            tl.store(by_added + places, found.to(by_added.dtype.element_ty), mask=inside)
    if NORM:
        here = parts + tl.program_id(0) * D + columns
        tl.store(here, by_slope, mask=columns < D)
        tl.store(here + tl.num_programs(0) * D, by_shift, mask=columns < D)


@triton.jit(do_not_specialize=["C"])
def _to_gradients(  # type: ignore[no-untyped-def]
    first, second, labels, found, C, V, stride, right, agreement,
    TWO: tl.constexpr, LEARNING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first += row * stride
    second += row * stride
    columns = tl.arange(0, BLOCK)
    # Each lane keeps the maximum and the sums of its own columns; lanes are combined once.
    p_best = tl.full([BLOCK], -1e30, tl.float32)
    q_best = tl.full([BLOCK], -1e30, tl.float32)
    p_sum, q_sum = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    p_apart, q_apart = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        inside = start + columns < V
        p_scores = tl.load(first + start + columns, mask=inside, other=-1e30).to(tl.float32)
        higher = tl.maximum(p_best, p_scores)
        shrink, part = tl.exp(p_best - higher), tl.where(inside, tl.exp(p_scores - higher), 0.0)
        p_sum, p_best = p_sum * shrink + part, higher
        if TWO:
            q_scores = tl.load(second + start + columns, mask=inside, other=-1e30).to(tl.float32)
            p_apart = p_apart * shrink + part * (p_scores - q_scores)
            higher = tl.maximum(q_best, q_scores)
            shrink, part = tl.exp(q_best - higher), tl.where(inside, tl.exp(q_scores - higher), 0.0)
            q_sum, q_best = q_sum * shrink + part, higher
            q_apart = q_apart * shrink + part * (p_scores - q_scores)
    label = tl.load(labels + row)
    p_highest = tl.max(p_best, 0)
    p_lanes = tl.exp(p_best - p_highest)
    p_total = tl.sum(p_sum * p_lanes, 0)
    p_log = p_highest + tl.log(p_total)
    p_label = tl.load(first + label).to(tl.float32)
    tl.store(found + row, p_label)
    tl.store(found + 2 * C + row, p_label - p_log)
    if TWO:
        q_highest = tl.max(q_best, 0)
        q_lanes = tl.exp(q_best - q_highest)
        q_total = tl.sum(q_sum * q_lanes, 0)
        q_log = q_highest + tl.log(q_total)
        q_label = tl.load(second + label).to(tl.float32)
        tl.store(found + C + row, q_label)
        tl.store(found + 3 * C + row, q_label - q_log)
        p_from_q = tl.sum(p_apart * p_lanes, 0) / p_total - (p_log - q_log)
        q_from_p = (p_log - q_log) - tl.sum(q_apart * q_lanes, 0) / q_total
        tl.store(found + 4 * C + row, agreement * (p_from_q + q_from_p))
    if LEARNING:
        tl.debug_barrier()  # all threads have read the score of the label before it is overwritten
        for start in range(0, V, BLOCK):
            here = start + columns
            inside = here < V
            taken = tl.where(here == label, right, 0.0)
            p_logs = tl.load(first + here, mask=inside, other=0.0).to(tl.float32) - p_log
            p = tl.exp(p_logs)
            if TWO:
                q_logs = tl.load(second + here, mask=inside, other=0.0).to(tl.float32) - q_log
                q, ratio = tl.exp(q_logs), p_logs - q_logs
                by_p = p * (1.0 + agreement * (1.0 + ratio - p_from_q)) - agreement * q - taken
                by_q = q * (1.0 + agreement * (1.0 - ratio - q_from_p)) - agreement * p - taken
                tl.store(second + here, by_q.to(second.dtype.element_ty), mask=inside)
            else:
                by_p = p - taken
            tl.store(first + here, by_p.to(first.dtype.element_ty), mask=inside)
