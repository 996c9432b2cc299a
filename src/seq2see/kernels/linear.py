"""Linear layers for training on a GPU: PyTorch's matrix multiplications, and our own sums for the gradients of biases.

The gradient of a bias is the sum of the rows of a tall matrix, for which PyTorch's kernel takes about three times as
long as reading the matrix does. Here two Triton kernels sum it, and mask the gradient of ReLU in the same pass.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2see.kernels.loading import launch

ROWS, COLUMNS = 32, 128
"""Size of the tile that a Triton program reads at a time."""
PROGRAMS = 1024
"""Number of programs that share the sums of a matrix, about; more would write more partial sums."""


def linear(x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor, relu: bool = False) -> Tensor:
    """Return x W^T + b, or ReLU(x W^T + b); all tensors must be of the same type."""
    return _Linear.apply(x_ND, weight_ED, bias_E, relu)  # type: ignore[no-untyped-call, no-any-return]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor, relu: bool) -> Tensor:  # type: ignore[no-untyped-def]
        if relu:  # computed by the matrix multiplication, before it writes its output
            output_NE = torch._addmm_activation(bias_E, x_ND, weight_ED.t(), use_gelu=False)
        else:
            output_NE = F.linear(x_ND, weight_ED, bias_E)
        ctx.save_for_backward(x_ND, weight_ED, output_NE if relu else None)
        return output_NE

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient_NE: Tensor) -> tuple[Any, ...]:  # type: ignore[no-untyped-def]
        x_ND, weight_ED, output_NE = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        gradient_NE = gradient_NE.contiguous()
        by_bias_E = None
        if output_NE is not None or needs_bias:
            gradient_NE, by_bias_E = column_sums(gradient_NE, output_NE)
        by_x_ND = gradient_NE @ weight_ED if needs_x else None
        by_weight_ED = gradient_NE.t() @ x_ND if needs_weight else None
        return by_x_ND, by_weight_ED, by_bias_E if needs_bias else None, None


def column_sums(gradient_NE: Tensor, output_NE: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the gradient, zero where the output of a ReLU is zero (if that is given), and the sum of its rows."""
    N, E = gradient_NE.shape
    masked_NE = gradient_NE if output_NE is None else torch.empty_like(gradient_NE)
    blocks = triton.cdiv(E, COLUMNS)
    programs = max(1, min(triton.cdiv(N, ROWS), PROGRAMS // blocks))
    parts = torch.empty(programs, E, device=gradient_NE.device)
    sums_E = torch.empty(E, dtype=gradient_NE.dtype, device=gradient_NE.device)
    tile = {"E": E, "ROWS": ROWS, "COLUMNS": COLUMNS}
    launch(
        _partial_sums,
        (programs, blocks),
        gradient_NE,
        output_NE,
        masked_NE,
        parts,
        N,
        RELU=output_NE is not None,
        **tile,
    )
    launch(_sum_of_parts, (triton.cdiv(E, 32),), parts, sums_E, programs, E=E, ROWS=64, COLUMNS=32)
    return masked_NE, sums_E


@triton.jit(do_not_specialize=["N"])
def _partial_sums(  # type: ignore[no-untyped-def]
    gradient, output, masked, parts, N, E, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Sum the rows of a matrix in as many parts as there are programs; each sums every so many tiles.

    The tiles are added element by element, and the rows of the result once: warps exchange numbers only then.
    """
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first_row in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        rows = first_row + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < E)[None, :]
        places = rows[:, None].to(tl.int64) * E + columns[None, :]
        found = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            found = tl.where(tl.load(output + places, mask=inside, other=0.0) > 0, found, 0.0)
            tl.store(masked + places, found.to(masked.dtype.element_ty), mask=inside)
        total += found
    tl.store(parts + tl.program_id(0) * E + columns, tl.sum(total, 0), mask=columns < E)


@triton.jit(do_not_specialize=["count"])
def _sum_of_parts(parts, sums, count, E, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up the partial sums of each column."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first_row in range(0, count, ROWS):
        rows = first_row + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < E)[None, :]
        total += tl.load(parts + rows[:, None] * E + columns[None, :], mask=inside, other=0.0)
    tl.store(sums + columns, tl.sum(total, 0).to(sums.dtype.element_ty), mask=columns < E)
