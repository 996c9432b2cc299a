"""Parts of Transformer layers: positions (3.5), embeddings (3.4), feed-forward (3.3), residual and norm (3.1, 5.4).

The numbers are sections of the paper. Attention (3.2) is in `attention`; `transformer` puts the parts together.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2see.kernels import loading, threads
from seq2see.model.recording import RecordingPoint

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu_, "gelu": F.gelu, "silu": F.silu}
"""Activation functions by name. ReLU works in place, because nothing else uses its input."""


def linear(x: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """Return x W^T + b, or ReLU(x W^T + b). In training on a GPU, the gradient of the bias has a kernel of its own."""
    if _trains_on_gpu(x):
        given = (tensor.to(loading.compute_dtype(x)) for tensor in (x, weight, bias))
        return loading.linear().linear(*given, relu)  # type: ignore[no-any-return]
    output = F.linear(x, weight, bias)
    return F.relu_(output) if relu else output


def _trains_on_gpu(rows: Tensor) -> bool:
    """Return whether packed rows are part of a training on a GPU that can run our Triton kernels."""
    return rows.is_cuda and rows.dim() == 2 and torch.is_grad_enabled() and loading.are_available(rows)


def _has_own_hooks(module: nn.Module) -> bool:
    """Return whether this module itself has hooks, which need its forward pass to be called."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


class Linear(nn.Linear):
    """PyTorch's linear layer, with `linear` as its forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Dropout(nn.Module):
    """Zero each element with probability `rate` in training, and scale the others to keep the mean (section 5.4).

    On a CPU, PyTorch draws one random number for each element in one thread. Here 64 bits of numpy's SFC64, seeded by
    PyTorch's generator, decide eight elements, which is faster (docs/log.md). With one byte per element, the rate of a
    call must be a multiple of 1/256: it is chosen at random between the two nearest, so that its mean is `rate`.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """Return `x` after dropout, added to `onto` if that is given."""
        if not self.training or self.rate == 0:
            return x if onto is None else onto + x
        if x.device.type != "cpu":
            dropped = F.dropout(x, self.rate)
            return dropped if onto is None else onto + dropped
        return _Dropped.apply(x, onto, self.rate)  # type: ignore[no-untyped-call, no-any-return]


class _Dropped(torch.autograd.Function):
    """Dropout on a CPU that keeps one byte, not a float, for each element until the backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor, onto: Tensor | None, rate: float) -> Tensor:  # type: ignore[no-untyped-def]
        seed, chance = torch.randint(2**31, (2,)).tolist()
        bar = min(int(rate * 256 + chance / 2**31), 255)
        ctx.scale = 256 / (256 - bar)
        draws = np.random.SFC64(seed).random_raw((x.numel() + 7) // 8).view(np.int8)[: x.numel()]
        # As int8: PyTorch turns that into floats eight times as fast as booleans.
        ctx.keep = torch.from_numpy((draws >= bar - 128).view(np.int8)).view(x.shape)
        keep = ctx.keep.to(x.dtype)
        return keep.mul_(x).mul_(ctx.scale) if onto is None else torch.addcmul(onto, x, keep, value=ctx.scale)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # type: ignore[no-untyped-def]
        onto = grad if ctx.needs_input_grad[1] else None
        return ctx.keep.to(grad.dtype).mul_(ctx.scale).mul_(grad), onto, None


def sinusoid(
    length: int, d_model: int, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return positional encodings LD: sin(p / 10000^(2i/d)) in even columns, cosines of these angles in odd ones (3.5).

    Computed in float64: at position 1,000 a float32 angle is already off by 3e-5.
    """
    place_L1 = torch.arange(length, dtype=torch.float64, device=device)[:, None]
    column_D2 = torch.arange(0, d_model, 2, dtype=torch.float64, device=device)
    angle_LD2 = place_L1 / 10_000 ** (column_D2 / d_model)
    return torch.stack([angle_LD2.sin(), angle_LD2.cos()], -1).flatten(1)[:, :d_model].to(dtype)


def rotate(x_BHLK: Tensor, first: int = 0) -> Tensor:
    """Rotate each pair of columns by an angle proportional to the position (RoPE, Su et al., 2021).

    The dot product of a rotated query and a rotated key then depends only on the distance between their positions. A
    pair of columns is one complex number, and its rotation is one multiplication. `first` is the position of the first
    row.
    """
    *_, L, K = x_BHLK.shape
    dtype = torch.promote_types(x_BHLK.dtype, torch.float32)
    turns_LK2 = _turns(1 << (first + L).bit_length(), K, x_BHLK.device, dtype)[first : first + L]
    return _turned(x_BHLK, turns_LK2)


def rotate_rows(x_NHK: Tensor, places_N: Tensor, longest: int) -> Tensor:
    """Rotate packed rows (see `rotate`) by their positions `places_N`, which are all below `longest`."""
    dtype = torch.promote_types(x_NHK.dtype, torch.float32)
    turns_N1K2 = _turns(1 << longest.bit_length(), x_NHK.shape[-1], x_NHK.device, dtype)[places_N, None]
    return _turned(x_NHK, turns_N1K2)


def rotate_columns(rows_NE: Tensor, places_N: Tensor, longest: int, d_key: int, columns: int) -> Tensor:
    """Rotate the first `columns` columns of packed rows, which are heads of width `d_key`, by a kernel for GPUs."""
    turns_LK2 = _turns(1 << longest.bit_length(), d_key, rows_NE.device, torch.float32)
    return loading.rows().rotated(rows_NE, places_N, turns_LK2, columns)  # type: ignore[no-any-return]


UNDIVIDED: Final = 32_768
"""Maximum number of elements of an elementwise operation that PyTorch does not divide among threads."""


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Multiply each pair of columns, as a complex number, by its element of `turns`, in the precision of `turns`.

    On a CPU, the rounding of PyTorch's complex product depends on where threads divide a tensor. A large one is
    therefore multiplied in parts that PyTorch does not divide, so that the number of threads changes no result.
    """
    if not x.is_cuda and x.numel() > 2 * UNDIVIDED:
        longest = max(range(x.dim() - 1), key=x.size)
        most = max(1, 2 * UNDIVIDED * x.shape[longest] // x.numel())
        parts, place = torch.split(x, most, longest), longest - x.dim()  # from the end: turns may have fewer dimensions
        has_place = turns.dim() + place >= 0 and turns.shape[place] > 1
        own = torch.split(turns, most, place) if has_place else [turns] * len(parts)
        return torch.cat([_turned(*each) for each in zip(parts, own, strict=True)], longest)
    pairs = torch.view_as_complex(x.to(turns.real.dtype).reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # a table made while decoding is used in training, too
def _turns(length: int, d_key: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the complex numbers of modulus 1 by which `rotate` multiplies, for positions below `length`.

    Callers round `length` up to a power of two, so that few tables are cached.
    """
    waves_LK = sinusoid(length, d_key, device, dtype)
    return torch.complex(waves_LK[:, 1::2].contiguous(), waves_LK[:, 0::2].contiguous())


class Embedding(nn.Module):
    """A vector for each token, scaled by sqrt(d_model), plus its positional encoding, if any; then dropout (3.4, 3.5).

    Only positions "sinusoid" and "learned" are added here. If the table is shared with the output layer, whose gradient
    is dense, the embedding's own gradient on a CPU is a sparse tensor with only the rows of the tokens that occur.
    """

    def __init__(self, tokens: nn.Embedding, positions: str, max_positions: int, dropout: float, tied: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.tied = tied
        self.positions = positions
        self.without_positions = RecordingPoint()
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(tokens.embedding_dim)
        if positions == "learned":
            self.places = nn.Embedding(max_positions, tokens.embedding_dim)
            nn.init.normal_(self.places.weight, std=0.02)
        self.waves: Tensor
        self.register_buffer("waves", torch.zeros(0, tokens.embedding_dim), persistent=False)

    def forward(self, tokens_N: Tensor, places_N: Tensor | None = None, longest: int = 0) -> Tensor:
        """Embed tokens at the positions `places_N`; None if there is no positional encoding.

        All positions are below `longest`, which is passed in so that the GPU need not be queried.
        """
        tokens_ND = F.embedding(tokens_N, self.tokens.weight, sparse=self.tied and not tokens_N.is_cuda)
        x_ND: Tensor = self.without_positions(tokens_ND * self.scale)
        if places_N is None:
            assert self.positions not in ("sinusoid", "learned")
        elif self.positions == "sinusoid":
            if longest > len(self.waves):
                self.waves = _waves(max(longest, 2 * len(self.waves), 128), x_ND.shape[-1], x_ND.device)
            x_ND = x_ND + self.waves[places_N].to(x_ND.dtype)
        elif self.positions == "learned":
            x_ND = x_ND + self.places(places_N)
        return self.dropout(x_ND)  # type: ignore[no-any-return]


def make_embeddings(
    vocabularies: tuple[int, int],
    d_model: int,
    dropout: float,
    tie: str,
    positions: str = "none",
    max_positions: int = 0,
) -> tuple[Embedding, Embedding]:
    """Make the embeddings of source and target, which share one table with `tie="all"`."""
    source_tokens = nn.Embedding(vocabularies[0], d_model)
    target_tokens = source_tokens if tie == "all" else nn.Embedding(vocabularies[1], d_model)
    return (
        Embedding(source_tokens, positions, max_positions, dropout, tie == "all"),
        Embedding(target_tokens, positions, max_positions, dropout, tie != "none"),
    )


def make_output(source: Embedding, target: Embedding, tie: str, bias: bool) -> nn.Linear:
    """Return the output layer, which shares its weights with the target embeddings unless `tie="none"` (section 3.4).

    This also initialises the embedding tables of source and target.
    """
    target_vocabulary, d_model = target.tokens.weight.shape
    output = nn.Linear(d_model, target_vocabulary, bias=bias)
    if tie == "none":
        nn.init.xavier_uniform_(output.weight)
    else:
        output.weight = target.tokens.weight
    nn.init.normal_(source.tokens.weight, std=d_model**-0.5)  # times sqrt(d_model): as large as the positional encoding
    if target.tokens is not source.tokens:
        nn.init.normal_(target.tokens.weight, std=d_model**-0.5)
    if bias:
        nn.init.zeros_(output.bias)
    return output


@lru_cache(maxsize=64)  # captured CUDA graphs keep reading the tables they were captured with
@torch.inference_mode(False)  # tables made while decoding are used in training, too
def _waves(length: int, d_model: int, device: torch.device) -> Tensor:
    return sinusoid(length, d_model, device)


class FeedForward(nn.Module):
    """Position-wise feed-forward network: f(x W_1 + b_1) W_2 + b_2; f is ReLU in the paper (equation 2)."""

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu") -> None:
        super().__init__()
        self.w_1 = Linear(d_model, d_ff)
        self.w_2 = Linear(d_ff, d_model)
        self.activation, self.relu = ACTIVATIONS[activation], activation == "relu"
        for layer in (self.w_1, self.w_2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        # A layer in int8, as a search uses it, has a forward pass of its own, and hooks need that of the layer.
        if self.relu and isinstance(self.w_1, Linear) and not _has_own_hooks(self.w_1):
            return self.w_2(linear(x, self.w_1.weight, self.w_1.bias, relu=True))  # type: ignore[no-any-return]
        return self.w_2(self.activation(self.w_1(x)))  # type: ignore[no-any-return]


class LayerNorm(nn.LayerNorm):
    """Layer norm whose gradients on a CPU do not depend on the number of threads; in training on a GPU, our own kernel.

    The gradients of weight and bias are sums over all rows. PyTorch gives each thread a part of the rows, so that the
    rounding of the sums depends on the number of threads. It is the only operation in training for which this is so.
    """

    def forward(self, x: Tensor) -> Tensor:
        if _trains_on_gpu(x):
            return loading.rows().norm_of_sum(x, None, self, 0.0, loading.compute_dtype(x))  # type: ignore[no-any-return]
        if x.is_cuda or not torch.is_grad_enabled():
            return super().forward(x)
        return _NormInOrder.apply(x, self.normalized_shape, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call, no-any-return]


class _NormInOrder(torch.autograd.Function):
    """Layer norm whose backward pass sums the gradients of weight and bias in one thread, in the order of the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        output, mean, deviation = torch.native_layer_norm(x, shape, weight, bias, epsilon)
        ctx.save_for_backward(x, mean, deviation, weight, bias)
        ctx.shape = shape
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, deviation, weight, bias = ctx.saved_tensors

        def gradients(*wanted: bool) -> Any:
            return torch.ops.aten.native_layer_norm_backward(
                gradient, x, ctx.shape, mean, deviation, weight, bias, wanted
            )

        if torch.get_num_threads() == 1:
            x_gradient, weight_gradient, bias_gradient = gradients(True, True, True)
        else:
            x_gradient, _, _ = gradients(True, False, False)
            with threads.in_one_thread():
                _, weight_gradient, bias_gradient = gradients(False, True, True)
        return x_gradient, None, weight_gradient, bias_gradient, None


class Residual(nn.Module):
    """LayerNorm(x + dropout(sublayer(x))) (sections 3.1, 5.4); with norm="pre", x + dropout(sublayer(LayerNorm(x)))."""

    def __init__(self, d_model: int, dropout: float, norm: str = "post", epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm = LayerNorm(d_model, eps=epsilon)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self._has_kernel(x):
            return self._in_one_pass(x, sublayer)
        if self.pre:
            return self.dropout(sublayer(self.norm(x)), onto=x)  # type: ignore[no-any-return]
        return self.norm(self.dropout(sublayer(x), onto=x))  # type: ignore[no-any-return]

    def _has_kernel(self, x: Tensor) -> bool:
        """Return whether Triton kernels can be used: they need packed rows, a supported GPU, a norm without hooks."""
        if not x.is_cuda or x.dim() != 2 or not isinstance(self.norm, nn.LayerNorm) or not loading.are_available(x):
            return False
        return not _has_own_hooks(self.norm)

    def _in_one_pass(self, x_ND: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute dropout, residual sum and norm with one kernel (pre-norm: two), with fewer accesses to memory."""
        rate, dtype = self.dropout.rate if self.training else 0.0, loading.compute_dtype(x_ND)
        norm_of_sum = loading.rows().norm_of_sum
        if self.pre:
            inner_ND = sublayer(norm_of_sum(x_ND, None, self.norm, 0.0, dtype))
            return norm_of_sum(x_ND, inner_ND, None, rate, dtype)  # type: ignore[no-any-return]
        return norm_of_sum(x_ND, sublayer(x_ND), self.norm, rate, dtype)  # type: ignore[no-any-return]
