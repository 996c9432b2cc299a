"""One step of decoding on a GPU, in Triton: with so few rows, launching a kernel takes longer than its computation.

`attend`: attention of W hypotheses per sentence to a key-value cache, to which their own keys and values can be
appended first.

`best_words`: the most probable tokens of each row; all logits are read once, and parts with these tokens again.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECE = 1024
"""Number of logits of a row that one Triton program of `best_words` reads."""
KEYS = 32
"""Number of positions of the key-value cache that a Triton program of `attend` reads in one iteration."""


def attend(
    query_RD: Tensor,
    past_key_BHPK: Tensor,
    past_value_BHPK: Tensor,
    keep_BWP: Tensor | None,
    new: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute attention of R = B x W rows to the key-value cache; the heads are concatenated.

    Args:
        keep_BWP: mask over the cache positions, true where attention is allowed; W may be 1 to share it. None: all are
            allowed.
        new: key_RD, value_RD and step_B. Keys and values are first stored at the cache positions W * step_B + w; later
            positions are not read.
    """
    B, H, P, K = past_key_BHPK.shape
    W = len(query_RD) // B
    output_RD = torch.empty(len(query_RD), H * K, dtype=query_RD.dtype, device=query_RD.device)
    key_RD, value_RD, step_B = new or (query_RD, query_RD, query_RD)
    keep_strides = (0, 0) if keep_BWP is None else (keep_BWP.stride(0), keep_BWP.stride(1) * (keep_BWP.shape[1] > 1))
    _attend[(B, H)](
        query_RD, key_RD, value_RD, step_B, past_key_BHPK, past_value_BHPK,
        query_RD if keep_BWP is None else keep_BWP.view(torch.uint8), output_RD,
        query_RD.stride(0), key_RD.stride(0), value_RD.stride(0), *keep_strides, P, 1 / math.sqrt(K),
        W=W, H=H, K=K, APPENDS=new is not None, MASKED=keep_BWP is not None,
        ROWS=max(16, triton.next_power_of_2(W)), WIDTH=max(16, triton.next_power_of_2(K)), KEYS=KEYS, num_warps=2,
    )  # fmt: skip
    return output_RD


def best_words(scores_RV: Tensor, count: int, never: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and ids of the `count` most probable tokens of each row, the most probable first.

    Args:
        never: token ids below 31 that are excluded; the probabilities of all other tokens add up to 1.
    """
    R, V = scores_RV.shape
    pieces = triton.cdiv(V, PIECE)
    found_2RG = torch.empty(2, R, pieces, device=scores_RV.device)
    logs_RC = torch.empty(R, count, device=scores_RV.device)
    words_RC = torch.empty(R, count, dtype=torch.int64, device=scores_RV.device)
    given = {"NEVER": sum(1 << word for word in never), "PIECE": PIECE}
    _look_through[(pieces, R)](scores_RV, *found_2RG, scores_RV.stride(0), V, **given)
    _pick[(R,)](
        scores_RV, *found_2RG, logs_RC, words_RC, scores_RV.stride(0), V, pieces,
        COUNT=count, PIECES=triton.next_power_of_2(pieces), **given,
    )  # fmt: skip
    return logs_RC, words_RC


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    query, key, value, steps, past_key, past_value, keep, output,
    query_stride, key_stride, value_stride, keep_stride_b, keep_stride_w, P, scale,
    W: tl.constexpr, H: tl.constexpr, K: tl.constexpr, APPENDS: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    w, k = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (w < W)[:, None] & (k < K)[None, :]
    rows, columns = (b * W + w)[:, None], h * K + k[None, :]
    q = tl.load(query + rows * query_stride + columns, mask=inside, other=0.0)
    past_key += (b * H + h) * P * K
    past_value += (b * H + h) * P * K
    seen = P
    if APPENDS:
        step = tl.load(steps + b).to(tl.int32)
        here = (step * W + w)[:, None] * K + k[None, :]
        tl.store(past_key + here, tl.load(key + rows * key_stride + columns, mask=inside), mask=inside)
        tl.store(past_value + here, tl.load(value + rows * value_stride + columns, mask=inside), mask=inside)
        seen = (step + 1) * W
        tl.debug_barrier()  # one thread reads what another wrote
    best = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, seen, KEYS):
        p = start + tl.arange(0, KEYS)
        there = p[:, None] * K + k[None, :]
        exists = (p < seen)[:, None] & (k < K)[None, :]
        keys = tl.load(past_key + there, mask=exists, other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        if MASKED:
            flags = keep + b * keep_stride_b + w[:, None] * keep_stride_w + p[None, :]
            visible = tl.load(flags, mask=(w < W)[:, None] & (p < seen)[None, :], other=0) != 0
        else:
            visible = (p < seen)[None, :] & (w < ROWS)[:, None]
        scores = tl.where(visible, scores, -1e30)
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.where(visible, tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(best - higher)
        values = tl.load(past_value + there, mask=exists, other=0.0)
        summed = summed * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        best = higher
    found = summed / tl.maximum(total, 1e-30)[:, None]
    tl.store(output + rows * H * K + columns, found.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _piece(scores, start, V, NEVER: tl.constexpr, PIECE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the logits and ids of `PIECE` tokens; minus infinity for tokens that are excluded."""
    words = start + tl.arange(0, PIECE)
    found = tl.load(scores + words, mask=words < V, other=-float("inf")).to(tl.float32)
    banned = ((NEVER >> tl.minimum(words, 31)) & 1) != 0
    return tl.where(banned, -float("inf"), found), words


@triton.jit
def _look_through(scores, largest, sums, stride, V, NEVER: tl.constexpr, PIECE: tl.constexpr):  # type: ignore[no-untyped-def]
    piece, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    found, _ = _piece(scores + row * stride, piece * PIECE, V, NEVER, PIECE)
    most = tl.maximum(tl.max(found, 0), -1e30)  # in a piece without tokens
    here = row * tl.num_programs(0) + piece
    tl.store(largest + here, most)
    tl.store(sums + here, tl.sum(tl.exp(found - most), 0))


@triton.jit
def _pick(  # type: ignore[no-untyped-def]
    scores, largest, sums, logs, words_found, stride, V, pieces,
    COUNT: tl.constexpr, PIECES: tl.constexpr, NEVER: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    g = tl.arange(0, PIECES)
    most = tl.load(largest + row * pieces + g, mask=g < pieces, other=-1e30)
    total = tl.load(sums + row * pieces + g, mask=g < pieces, other=0.0)
    highest = tl.max(most, 0)
    log_total = highest + tl.log(tl.sum(total * tl.exp(most - highest), 0))
    # The next best token is in the piece whose best one, of those not yet taken, is largest; of equals, the first.
    taken_score = tl.full([PIECES], float("inf"), tl.float32)
    taken_word = tl.full([PIECES], -1, tl.int32)
    for place in range(COUNT):
        which = tl.argmax(most, 0)
        found, words = _piece(scores + row * stride, which * PIECE, V, NEVER, PIECE)
        after_score = tl.max(tl.where(g == which, taken_score, -float("inf")), 0)
        after_word = tl.max(tl.where(g == which, taken_word, -1), 0)
        is_left = (found < after_score) | ((found == after_score) & (words > after_word))
        found = tl.where(is_left, found, -float("inf"))
        score = tl.max(found, 0)
        word = tl.minimum(tl.min(tl.where(is_left & (found == score), words, V - 1), 0), V - 1)
        tl.store(logs + row * COUNT + place, score - log_total)
        tl.store(words_found + row * COUNT + place, word.to(tl.int64))
        still = (found < score) | ((found == score) & (words > word))
        rest = tl.max(tl.where(is_left & still, found, -float("inf")), 0)
        most = tl.where(g == which, tl.where(rest == -float("inf"), -2e30, rest), most)
        taken_score = tl.where(g == which, score, taken_score)
        taken_word = tl.where(g == which, word, taken_word)
