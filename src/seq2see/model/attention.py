"""Scaled dot-product attention, masks and multi-head attention (paper, section 3.2).

Read `scaled_dot_product_attention` first: it is the whole idea in four lines. `attend` computes the same with PyTorch's
fused kernel, and uses the written-out form while a forward hook records its tensors. Masks are called `keep`: true
means *may be attended to*.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.kernels import loading
from seq2see.model.layers import Linear, linear, rotate, rotate_columns
from seq2see.model.packing import EVERYWHERE, Packing, Reach
from seq2see.model.recording import AttentionTensors, RecordingPoint
from seq2see.model.state import FixedPast, Past


def scaled_dot_product_attention(
    query_LK: Tensor, key_MK: Tensor, value_MK: Tensor, keep_LM: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return softmax(Q K^T / sqrt(d_k)) V, and the weights (equation 1), which are 0 where `keep_LM` is false.

    All tensors may have leading dimensions, such as batch and heads.

    >>> key = torch.tensor([[10.0, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10]])
    >>> value = torch.tensor([[1.0, 0], [10, 0], [100, 5], [1000, 6]])
    >>> scaled_dot_product_attention(torch.tensor([[0.0, 10, 0]]), key, value)[0].round()
    tensor([[10.,  0.]])
    """
    _check_shapes(query_LK, key_MK, value_MK, keep_LM)
    scores_LM = query_LK @ key_MK.transpose(-2, -1) / math.sqrt(query_LK.shape[-1])
    if keep_LM is None:
        weights_LM = scores_LM.softmax(-1)
    else:
        # The lowest finite number, not -inf: a row whose keys are all hidden gives zeros, not NaN, in the gradient too.
        hidden = torch.finfo(scores_LM.dtype).min
        weights_LM = scores_LM.masked_fill(~keep_LM, hidden).softmax(-1).masked_fill(~keep_LM, 0.0)
    return weights_LM @ value_MK, weights_LM


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None) -> None:
    """Raise a ValueError if query, key, value and mask do not fit each other, or the mask is not boolean."""
    leading = _broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    if leading is None or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"query {_show(query.shape)}, key {_show(key.shape)}, value {_show(value.shape)}: query and key must have "
            "the same width, key and value the same length, and the leading dimensions of all must broadcast"
        )
    _check_keep(keep, (*leading, query.shape[-2], key.shape[-2]))


def _check_keep(keep: Tensor | None, weights: tuple[int, ...]) -> None:
    """Raise a ValueError if the mask is not boolean, or cannot be broadcast to the shape of the weights."""
    if keep is not None and getattr(keep, "dtype", None) != torch.bool:
        kind = getattr(keep, "dtype", type(keep).__name__)
        raise ValueError(
            f"the mask is {kind}, expected a boolean tensor in which true means visible. If 1 means hidden in your "
            "mask, convert it with seq2see.keep_unless(mask); if 1 means visible, with mask.bool()"
        )
    if keep is not None and _broadcast(keep.shape, weights) != weights:
        raise ValueError(
            f"the keep mask has shape {_show(keep.shape)}, which does not broadcast to the weights, {_show(weights)}"
        )


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape to which all shapes broadcast, or None if they do not."""
    try:
        return np.broadcast_shapes(*shapes)  # that of torch imports SymPy, which takes as long as 30 updates
    except ValueError:
        return None


def _show(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def keep_padding(tokens_BM: Tensor, padding: int = 0) -> Tensor:
    """Return a padding mask B11M, true for tokens that are not padding: `[1, 21, 777, 0, 0]` -> `[1, 1, 1, 0, 0]`."""
    return (tokens_BM != padding)[:, None, None, :]


def keep_past(tokens_BT: Tensor, padding: int = 0) -> Tensor:
    """Return a look-ahead mask B1TT: position t may attend to positions up to t that are not padding (section 3.2.3).

    The decoder uses `Reach(causal=True)` instead, for which fused kernels need no mask tensor: padding is at the end,
    so that no token can attend to it.
    """
    T = tokens_BT.shape[-1]
    past_TT = torch.ones(T, T, dtype=torch.bool, device=tokens_BT.device).tril()
    return past_TT & keep_padding(tokens_BT, padding)


def keep_unless(hidden: Tensor) -> Tensor:
    """Return the `keep` mask (true means visible) of a mask in which 1 or true means *hidden*, as in Keras tutorials.

    >>> keep_unless(torch.tensor([[0.0, 0.0, 1.0]]))  # create_padding_mask of [[1, 21, 0]]
    tensor([[ True,  True, False]])
    """
    hidden = torch.as_tensor(hidden)
    if hidden.dtype != torch.bool and not ((hidden == 0) | (hidden == 1)).all():
        low, high = float(hidden.min()), float(hidden.max())
        raise ValueError(
            f"the mask has numbers from {low:g} to {high:g}, expected 0 (visible) and 1 (hidden). If it is to be added "
            "to the scores (0 and a large negative number), use keep = mask == 0"
        )
    return hidden == 0


def attend(
    query_BHLK: Tensor,
    key_BHMK: Tensor,
    value_BHMK: Tensor,
    reach: Reach = EVERYWHERE,
    inside: RecordingPoint | None = None,
) -> Tensor:
    """Compute attention over padded sequences with PyTorch's fused kernel. While `inside` has forward hooks, compute it
    written out, so that they receive the attention weights and may replace them.
    """
    recorded = inside is not None and bool(inside._forward_hooks)
    keep, causal = reach.mask, reach.causal
    if causal and (recorded or keep is not None):  # the kernel takes a mask or a triangle, not both
        L, M = query_BHLK.shape[-2], key_BHMK.shape[-2]
        past_LM = torch.ones(L, M, dtype=torch.bool, device=query_BHLK.device).tril()
        keep, causal = past_LM if keep is None else keep & past_LM, False
    if inside is None or not recorded:
        return F.scaled_dot_product_attention(query_BHLK, key_BHMK, value_BHMK, attn_mask=keep, is_causal=causal)
    heads_BHLK, weights_BHLM = scaled_dot_product_attention(query_BHLK, key_BHMK, value_BHMK, keep)
    passed = inside(AttentionTensors(query_BHLK, key_BHMK, value_BHMK, weights_BHLM))
    return (
        heads_BHLK if passed.weights_BHLM is weights_BHLM else passed.weights_BHLM @ value_BHMK
    )  # if a hook changed it


class Projection(nn.Linear):
    """Several linear layers with the same input, stored as one matrix; `rows` selects the outputs of some of them."""

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        if rows is None:
            return linear(x, self.weight, self.bias)
        return linear(x, self.weight[rows], self.bias[rows])


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    It works on any vectors, not only text: `MultiHeadAttention(16, heads=4)(queries_BLD, memory_BMD)`. Without a memory
    it is self-attention, for which the three projections, rows of one matrix, are one matrix multiplication.
    """

    def __init__(self, d_model: int, heads: int, d_key: int = 0, d_value: int = 0, rotary: bool = False) -> None:
        super().__init__()
        self.d_model = d_model
        self.heads = heads
        self.d_key = d_key or d_model // heads
        self.d_value = d_value or self.d_key
        self.rotary = rotary
        self.widths = (heads * self.d_key, heads * self.d_key, heads * self.d_value)
        self.query_rows, self.memory_rows = slice(self.widths[0]), slice(self.widths[0], None)
        self.w_qkv = Projection(d_model, sum(self.widths))
        self.w_o = Linear(heads * self.d_value, d_model)
        self.inside = RecordingPoint()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the projections of queries, keys, values and output separately (Glorot), and biases to 0."""
        for part in (*torch.split(self.w_qkv.weight, list(self.widths)), self.w_o.weight):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.w_qkv.bias)
        nn.init.zeros_(self.w_o.bias)

    def forward(self, query: Tensor, memory: Tensor | None = None, reach: Reach | Tensor | None = None) -> Tensor:
        """Compute attention over padded tensors BLD and BMD, or packed rows ND; without `memory`, self-attention.

        Args:
            reach: A `keep` mask or None for padded tensors; a packed `Reach` for packed rows.
        """
        if not isinstance(reach, Reach):
            reach = Reach(keep=reach)
        self._check(query, memory, reach)
        if reach.query is not None and reach.key is not None and self.has_kernel(query):
            return self._attend_packed(query, memory, reach.query, reach.key, reach.causal)
        if memory is None:
            query_BHLK, key_BHMK, value_BHMK = self._split(self.w_qkv(query), reach.query, self.widths)
        else:
            (query_BHLK,) = self._split(self.w_qkv(query, self.query_rows), reach.query, self.widths[:1])
            key_BHMK, value_BHMK = self._split(self.w_qkv(memory, self.memory_rows), reach.key, self.widths[1:])
        if self.rotary:
            query_BHLK, key_BHMK = rotate(query_BHLK), rotate(key_BHMK)
        heads_BHLK = attend(query_BHLK, key_BHMK, value_BHMK, reach, self.inside)
        return self._join(heads_BHLK, reach.query)

    def _check(self, query: Tensor, memory: Tensor | None, reach: Reach) -> None:
        """Raise a ValueError if vectors are not d_model wide; also if padded tensors do not have three dimensions, or
        their batch sizes or the mask do not fit.
        """
        for name, x, packing in (("query", query, reach.query), ("memory", memory, reach.key)):
            if x is not None and (x.shape[-1] != self.d_model or (packing is None and x.ndim != 3)):
                raise ValueError(
                    f"the {name} has shape {_show(x.shape)}: expected batch x length x {self.d_model} (d_model)"
                )
        if reach.query is None and reach.key is None:
            keys = query if memory is None else memory
            if (batch := _broadcast(query.shape[:1], keys.shape[:1])) is None:
                raise ValueError(
                    f"query {_show(query.shape)}, memory {_show(keys.shape)}: their batch sizes (first dimensions) "
                    "must be equal, or one of them 1"
                )
            _check_keep(reach.keep, (*batch, self.heads, query.shape[1], keys.shape[1]))

    def has_kernel(self, x: Tensor) -> bool:
        """Return whether the Triton kernels of attention can be used for `x`.

        They need a GPU that can run them for this head width and number type (with gradients enabled, also their
        backward pass), keys and values of equal width, and no forward hook that records the attention weights.
        """
        if not x.is_cuda or self.inside._forward_hooks or self.d_key != self.d_value or not loading.are_available(x):
            return False
        given = self.d_key, loading.compute_dtype(x), x.device, torch.is_grad_enabled()
        return bool(loading.packed_attention().can_attend(*given))

    def _attend_packed(
        self, query_ND: Tensor, memory_MD: Tensor | None, queries: Packing, keys: Packing, causal: bool
    ) -> Tensor:
        if memory_MD is None:
            rows, memory = self.w_qkv(query_ND), None
            if self.rotary:  # of queries and keys, which are the first columns, and not of values
                turned = 2 * self.widths[0]
                rows = rotate_columns(rows, queries.places_N, queries.longest, self.d_key, turned)
        else:
            rows, memory = self.w_qkv(query_ND, self.query_rows), self.w_qkv(memory_MD, self.memory_rows)
        offsets = queries.offsets_on_device, keys.offsets_on_device
        heads_ND = loading.packed_attention().packed_attention(
            rows, memory, *offsets, self.heads, queries.longest, keys.longest, causal
        )
        return self.w_o(heads_ND)  # type: ignore[no-any-return]

    def start(self, memory_ND: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """Return keys and values of a memory (encoder output), BHSK each; they serve all calls of `step_across`."""
        key_BHSK, value_BHSK = self._split(self.w_qkv(memory_ND, self.memory_rows), packing, self.widths[1:])
        return key_BHSK.contiguous(), value_BHSK.contiguous()

    def of_memory(self, memory_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of a memory as packed rows in which the heads are concatenated."""
        key_ND, value_ND = self.w_qkv(memory_ND, self.memory_rows).split(self.widths[1:], -1)
        return key_ND, value_ND

    def step(self, x_RD: Tensor, past: Past, keep_B1WP: Tensor | None = None, width: int = 1) -> Tensor:
        """Compute self-attention for one new position of R = B x W hypotheses, each over its own history and itself.

        Args:
            past: The key-value cache, to which the new position is appended.
            keep_B1WP: True where a cache position of the sentence belongs to the history of a hypothesis; None if all
                do.
            width: W, the number of hypotheses of a sentence.
        """
        if isinstance(past, FixedPast) and self.has_kernel(x_RD):
            return self.w_o(past.attended(self.w_qkv(x_RD), keep_B1WP, self.rotary))  # type: ignore[no-any-return]
        parts = self._split(self.w_qkv(x_RD)[:, None], None, self.widths)
        if self.rotary:
            parts[:2] = [past.turned(part) for part in parts[:2]]
        # Rotated first: all W are at the same position.
        query_BHWK, key_BHWK, value_BHWK = (
            part[:, :, 0].unflatten(0, (-1, width)).transpose(1, 2)  # type: ignore[no-untyped-call]
            for part in parts
        )
        key_BHPK, value_BHPK = past.append(key_BHWK, value_BHWK)
        joined = self._join(attend(query_BHWK, key_BHPK, value_BHPK, Reach(keep_B1WP), self.inside), None)
        return joined.flatten(0, 1)

    def step_across(self, x_RD: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, keep_B11S: Tensor | None) -> Tensor:
        """Compute cross-attention of R = B x W hypotheses: the W hypotheses of a sentence are W queries to its keys."""
        B = len(key_BHSK)
        projected_RD = self.w_qkv(x_RD, self.query_rows)
        if self.has_kernel(x_RD) and not torch.is_grad_enabled():
            keep_B1S = None if keep_B11S is None else keep_B11S[:, 0]
            return self.w_o(loading.steps().attend(projected_RD, key_BHSK, value_BHSK, keep_B1S))  # type: ignore[no-any-return]
        (query_BHWK,) = self._split(projected_RD.view(B, -1, self.widths[0]), None, self.widths[:1])
        joined = self._join(attend(query_BHWK, key_BHSK, value_BHSK, Reach(keep_B11S), self.inside), None)
        return joined.flatten(0, 1)

    def _split(self, projected: Tensor, packing: Packing | None, widths: tuple[int, ...]) -> list[Tensor]:
        """Split a joint projection, padded if it is packed, into tensors BHLK, such as queries, keys and values."""
        rectangle = projected if packing is None else packing.pad(projected)
        return [
            part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2)
            for part in torch.split(rectangle, list(widths), -1)
        ]

    def _join(self, heads_BHLK: Tensor, packing: Packing | None) -> Tensor:
        """Concatenate the heads, remove padding if `packing` is given, and apply the output projection."""
        joined_BLD = heads_BHLK.transpose(1, 2).flatten(2)
        return self.w_o(joined_BLD if packing is None else packing.pack(joined_BLD))  # type: ignore[no-any-return]
