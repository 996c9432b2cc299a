"""Attention over packed sentences on a GPU, in Triton: without padding, masks or copies.

Kernels made for long sequences waste most of their tiles on sentences of twenty tokens. Here a program processes one
block of the queries of one sentence and one head, and loops over the keys of that sentence; the block size is chosen by
the length of the sentences. Shapes depend only on the number of rows, so that a step can be captured in a CUDA graph
(`training/graphs.py`).
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.kernels.loading import HEAD_WIDTHS, compiled_ahead, is_collecting, launch, tried_once

SHORTEST_BLOCK, LONGEST_BLOCK = 32, 64
"""Numbers of queries or keys (rows) in one tile: the smaller one if no sequence is longer than it, else the larger one;
fewer where `TILE_BYTES` allows no more.
"""
TILE_BYTES = LONGEST_BLOCK * 256
"""Maximum size of a tile in bytes, so that five tiles fit into the on-chip memory of a GPU; with wide heads in float32,
a tile has fewer rows.
"""


@tried_once
def can_attend(width: int, dtype: torch.dtype, device: torch.device, learning: bool) -> bool:
    """Return whether a GPU can run the attention kernels with heads of this width and number type, by trying them.

    Widths in `HEAD_WIDTHS` and float32, float16 and bfloat16 are supported; older GPUs may have too little shared
    memory.

    Args:
        learning: Whether the kernels of the backward pass are needed. In float32 they take by far the longest to
            compile, and validation and translation do not use them.
    """
    if width not in HEAD_WIDTHS or dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False

    def trial() -> Tensor:
        rows = torch.zeros(LONGEST_BLOCK, 3 * width, dtype=dtype, device=device, requires_grad=learning)
        offsets = torch.tensor([0, LONGEST_BLOCK], dtype=torch.int32, device=device)
        return packed_attention(rows, None, offsets, offsets, 1, LONGEST_BLOCK, LONGEST_BLOCK)

    return works_on(trial, device, learning)


def works_on(trial: Callable[[], Tensor], device: torch.device, learning: bool) -> bool:
    """Return whether `trial`, a forward pass, works on the GPU, and with `learning` its backward pass; warn if not.

    A trial must draw no random numbers: it may run in a thread beside other work. Inside `compiled_ahead` its kernels
    are only collected, and the result is True unless that fails.
    """

    def run() -> None:
        output = trial()
        if learning:
            output.sum().backward()  # type: ignore[no-untyped-call]

    try:
        # In this order: outside of inference mode gradients are enabled.
        with torch.inference_mode(False), torch.set_grad_enabled(learning), torch.autocast("cuda", enabled=False):
            with compiled_ahead():
                run()
            if not is_collecting():
                run()
                torch.cuda.synchronize(device)
    except Exception as problem:  # compilers and drivers fail in many ways
        warnings.warn(f"Triton does not work on this GPU, so PyTorch's kernels are used: {problem}", stacklevel=3)
        return False
    return True


def packed_attention(
    rows_N3D: Tensor,
    memory_M2D: Tensor | None,
    query_offsets: Tensor,
    key_offsets: Tensor,
    heads: int,
    longest_query: int,
    longest_key: int,
    causal: bool = False,
) -> Tensor:
    """Compute attention from the queries of each sentence to its keys; return ND with the heads concatenated.

    Args:
        rows_N3D: queries, keys and values, concatenated; only queries if there is a memory.
        memory_M2D: keys and values of the memory, concatenated.
        query_offsets, key_offsets: where each sentence begins and the last one ends, on the GPU.
        longest_query, longest_key: upper bounds of the number of queries, and of keys, of a sentence.
    """
    return _PackedAttention.apply(  # type: ignore[no-untyped-call, no-any-return]
        rows_N3D, memory_M2D, query_offsets, key_offsets, heads, longest_query, longest_key, causal
    )


def _block(longest: int, row_bytes: int) -> int:
    """Return the number of rows of a tile: one of few sizes, since kernels are compiled for each."""
    return int(min(TILE_BYTES // row_bytes, SHORTEST_BLOCK if longest <= SHORTEST_BLOCK else LONGEST_BLOCK))


def _cut(rows: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Split joint projections into views of queries, keys and values; `memory`, if given, holds the keys and values."""
    if memory is None:
        query, key, value = rows.chunk(3, -1)
        return query, key, value
    key, value = memory.chunk(2, -1)
    return rows, key, value


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        rows: Tensor,
        memory: Tensor | None,
        query_offsets: Tensor,
        key_offsets: Tensor,
        heads: int,
        longest_query: int,
        longest_key: int,
        causal: bool,
    ) -> Tensor:
        query, key, value = _cut(rows, memory)
        N, D = query.shape
        output_ND = torch.empty(N, D, dtype=rows.dtype, device=rows.device)
        logs_HN = torch.empty(heads, N, dtype=torch.float32, device=rows.device)
        sentences = len(query_offsets) - 1
        columns = max(16, triton.next_power_of_2(D // heads))
        row_bytes = columns * rows.element_size()
        ctx.fixed = {
            "N": N,
            "scale": math.log2(math.e) / math.sqrt(D // heads),
            "CAUSAL": causal,
            "WIDTH": D // heads,
            "COLUMNS": columns,
            "BLOCK_M": _block(max(longest_query, longest_key), row_bytes),
            "BLOCK_N": _block(max(longest_query, longest_key), row_bytes),
            "PRECISION": "ieee" if rows.dtype == torch.float32 else "tf32",
        }
        ctx.heads, ctx.longest = heads, (longest_query, longest_key)
        grid = (triton.cdiv(longest_query, ctx.fixed["BLOCK_M"]), sentences, heads)
        strides = query.stride(0), key.stride(0)
        given = query, key, value, output_ND, logs_HN, query_offsets, key_offsets
        launch(_forward, grid, *given, *strides, **ctx.fixed)
        ctx.save_for_backward(rows, memory, output_ND, logs_HN, query_offsets, key_offsets)
        return output_ND

    @staticmethod
    def backward(ctx, grad_ND: Tensor) -> tuple[Any, ...]:  # type: ignore[no-untyped-def]
        rows, memory, output_ND, logs_HN, query_offsets, key_offsets = ctx.saved_tensors
        grad_ND = grad_ND.contiguous()
        rows_gradient = torch.empty_like(rows)
        memory_gradient = None if memory is None else torch.empty_like(memory)
        query, key, value = _cut(rows, memory)
        query_gradient, key_gradient, value_gradient = _cut(rows_gradient, memory_gradient)
        sentences = len(query_offsets) - 1
        given = (query, key, value, output_ND, grad_ND, logs_HN, query_offsets, key_offsets)
        strides = query.stride(0), key.stride(0)
        grid = (triton.cdiv(ctx.longest[0], ctx.fixed["BLOCK_M"]), sentences, ctx.heads)
        launch(_backward_queries, grid, *given, query_gradient, *strides, **ctx.fixed)
        grid = (triton.cdiv(ctx.longest[1], ctx.fixed["BLOCK_N"]), sentences, ctx.heads)
        launch(_backward_keys, grid, *given, key_gradient, value_gradient, *strides, **ctx.fixed)
        return (rows_gradient, memory_gradient, *[None] * 6)


@triton.jit
def _tile(pointer, first, places, length, stride, head, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load rows `first + places` of one head; values beyond `length` rows and `WIDTH` columns are zeros."""
    columns = tl.arange(0, COLUMNS)
    inside = (places < length)[:, None] & (columns < WIDTH)[None, :]
    return tl.load(pointer + (first + places)[:, None] * stride + head * WIDTH + columns, mask=inside, other=0.0)


@triton.jit
def _store(pointer, tile, first, places, length, stride, head, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    columns = tl.arange(0, COLUMNS)
    inside = (places < length)[:, None] & (columns < WIDTH)[None, :]
    there = pointer + (first + places)[:, None] * stride + head * WIDTH + columns
    tl.store(there, tile.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def _weights(scores, logs, rows, columns, length, CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Recompute softmax weights from scores and `logs`, the log-sum-exp of the scores of each row, both in base 2."""
    keep = (columns < length)[None, :]
    if CAUSAL:
        keep = keep & (columns[None, :] <= rows[:, None])
    return tl.where(keep, tl.exp2(scores - logs[:, None]), 0.0)


@triton.jit(do_not_specialize=["N"])
def _forward(  # type: ignore[no-untyped-def]
    query, key, value, output, logs, query_offsets, key_offsets, query_stride, key_stride, N, scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, sentence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_row, first_key = tl.load(query_offsets + sentence), tl.load(key_offsets + sentence)
    length = tl.load(query_offsets + sentence + 1) - first_row
    key_length = tl.load(key_offsets + sentence + 1) - first_key
    if block * BLOCK_M >= length:
        return
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    query_tile = _tile(query, first_row, rows, length, query_stride, head, WIDTH, COLUMNS)
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    mixed = tl.zeros([BLOCK_M, COLUMNS], tl.float32)
    end = tl.minimum(key_length, (block + 1) * BLOCK_M) if CAUSAL else key_length
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        key_tile = _tile(key, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
        scores = tl.dot(query_tile, tl.trans(key_tile), input_precision=PRECISION) * scale
        keep = (columns < key_length)[None, :]
        if CAUSAL:
            keep = keep & (columns[None, :] <= rows[:, None])
        scores = tl.where(keep, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(best - higher)
        value_tile = _tile(value, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
        mixed = tl.dot(weights.to(value_tile.dtype), value_tile, mixed * shrink[:, None], input_precision=PRECISION)
        total = total * shrink + tl.sum(weights, 1)
        best = higher
    total = tl.where(total == 0.0, 1.0, total)  # a sentence without keys gives zeros
    _store(output, mixed / total[:, None], first_row, rows, length, tl.num_programs(2) * WIDTH, head, WIDTH, COLUMNS)
    tl.store(logs + head * N + first_row + rows, best + tl.log2(total), mask=rows < length)


@triton.jit(do_not_specialize=["N"])
def _backward_queries(  # type: ignore[no-untyped-def]
    query, key, value, output, gradient, logs, query_offsets, key_offsets, query_gradient, query_stride, key_stride,
    N, scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, sentence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_row, first_key = tl.load(query_offsets + sentence), tl.load(key_offsets + sentence)
    length = tl.load(query_offsets + sentence + 1) - first_row
    key_length = tl.load(key_offsets + sentence + 1) - first_key
    if block * BLOCK_M >= length:
        return
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    D = tl.num_programs(2) * WIDTH
    query_tile = _tile(query, first_row, rows, length, query_stride, head, WIDTH, COLUMNS)
    gradient_tile = _tile(gradient, first_row, rows, length, D, head, WIDTH, COLUMNS)
    output_tile = _tile(output, first_row, rows, length, D, head, WIDTH, COLUMNS)
    shared = tl.sum(gradient_tile.to(tl.float32) * output_tile.to(tl.float32), 1)
    row_logs = tl.load(logs + head * N + first_row + rows, mask=rows < length, other=0.0)
    found = tl.zeros([BLOCK_M, COLUMNS], tl.float32)
    end = tl.minimum(key_length, (block + 1) * BLOCK_M) if CAUSAL else key_length
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        key_tile = _tile(key, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
        value_tile = _tile(value, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
        scores = tl.dot(query_tile, tl.trans(key_tile), input_precision=PRECISION) * scale
        weights = _weights(scores, row_logs, rows, columns, key_length, CAUSAL)
        by_weights = tl.dot(gradient_tile, tl.trans(value_tile), input_precision=PRECISION)
        by_scores = weights * (by_weights - shared[:, None])
        found = tl.dot(by_scores.to(key_tile.dtype), key_tile, found, input_precision=PRECISION)
    found *= scale * 0.6931471805599453  # the scale in base 2 is the plain one times log2(e)
    _store(query_gradient, found, first_row, rows, length, query_stride, head, WIDTH, COLUMNS)


@triton.jit(do_not_specialize=["N"])
def _backward_keys(  # type: ignore[no-untyped-def]
    query, key, value, output, gradient, logs, query_offsets, key_offsets, key_gradient, value_gradient,
    query_stride, key_stride, N, scale,
    CAUSAL: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, sentence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_row, first_key = tl.load(query_offsets + sentence), tl.load(key_offsets + sentence)
    length = tl.load(query_offsets + sentence + 1) - first_row
    key_length = tl.load(key_offsets + sentence + 1) - first_key
    if block * BLOCK_N >= key_length:
        return
    columns = block * BLOCK_N + tl.arange(0, BLOCK_N)
    D = tl.num_programs(2) * WIDTH
    key_tile = _tile(key, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
    value_tile = _tile(value, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
    by_key = tl.zeros([BLOCK_N, COLUMNS], tl.float32)
    by_value = tl.zeros([BLOCK_N, COLUMNS], tl.float32)
    begin = (block * BLOCK_N) // BLOCK_M * BLOCK_M if CAUSAL else 0
    for start in range(begin, length, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        query_tile = _tile(query, first_row, rows, length, query_stride, head, WIDTH, COLUMNS)
        gradient_tile = _tile(gradient, first_row, rows, length, D, head, WIDTH, COLUMNS)
        output_tile = _tile(output, first_row, rows, length, D, head, WIDTH, COLUMNS)
        shared = tl.sum(gradient_tile.to(tl.float32) * output_tile.to(tl.float32), 1)
        # Beyond the last row all scores are 0, and the weights must be, too.
        row_logs = tl.load(logs + head * N + first_row + rows, mask=rows < length, other=float("inf"))
        scores = tl.dot(query_tile, tl.trans(key_tile), input_precision=PRECISION) * scale
        weights = _weights(scores, row_logs, rows, columns, key_length, CAUSAL)
        by_value = tl.dot(tl.trans(weights.to(gradient_tile.dtype)), gradient_tile, by_value, input_precision=PRECISION)
        by_weights = tl.dot(gradient_tile, tl.trans(value_tile), input_precision=PRECISION)
        by_scores = weights * (by_weights - shared[:, None])
        by_key = tl.dot(tl.trans(by_scores.to(query_tile.dtype)), query_tile, by_key, input_precision=PRECISION)
    by_key *= scale * 0.6931471805599453
    _store(key_gradient, by_key, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
    _store(value_gradient, by_value, first_key, columns, key_length, key_stride, head, WIDTH, COLUMNS)
