"""Weights laid out for decoding on a processor, where each step multiplies few rows: transposed, or in int8."""

import copy
import math

import torch
from torch import Tensor, nn

from seq2see.errors import SettingError, nearest
from seq2see.model.attention import Projection
from seq2see.model.interface import Seq2Seq

PRECISIONS = ("float32", "int8")


def for_decoding(model: Seq2Seq, precision: str = "float32") -> Seq2Seq:
    """A copy of a model that decodes faster; on a card the model itself, which is fast there as it is.

    float32: the same numbers, each matrix stored by columns. For a few dozen rows the processor's library multiplies
    that more than twice as fast (docs/log.md). int8: each linear layer becomes an `Int8Linear`.
    """
    if precision not in PRECISIONS:
        raise SettingError(f"--precision {precision}: unknown. {nearest(precision, PRECISIONS)}")
    if next(model.parameters()).device.type != "cpu":
        if precision == "int8":
            raise SettingError("--precision int8: our own engine has it on a CPU only. Leave it out")
        return model
    laid_out = copy.deepcopy(model)
    laid_out.output.weight = nn.Parameter(laid_out.output.weight.detach())  # apart: the embedding keeps its rows
    for parent in list(laid_out.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and precision == "int8":
                setattr(parent, name, Int8Linear(child))
            elif isinstance(child, nn.Linear):
                child.weight = nn.Parameter(child.weight.detach().t().contiguous().t(), requires_grad=False)
    return laid_out


class Int8Linear(Projection):
    """A linear layer in whole numbers of 8 bits: a scale for each output of the weights, and for each row of the input.

    Sums of whole numbers are exact, and no row's scale depends on another's: a sentence gets the same answer in any
    batch.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        weight = linear.weight.detach()
        scale_N1 = weight.abs().amax(1, keepdim=True).clamp_min(SMALLEST) / 127
        self.whole_KN = (weight / scale_N1).round().to(torch.int8).t()
        self.scale_N = scale_N1[:, 0] / 127
        self.bias = linear.bias

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        if x.dim() > 2:
            return self.forward(x.flatten(0, -2), rows).view(*x.shape[:-1], -1)
        whole_KN, scale_N, bias_N = self.whole_KN, self.scale_N, self.bias
        if rows is not None:
            whole_KN, scale_N = whole_KN[:, rows], scale_N[rows]
            bias_N = bias_N[rows]  # type: ignore[assignment]
        # Few operations, since each takes longer than its numbers: the input by its largest, times 127, rounded.
        largest_M1 = torch.linalg.vector_norm(x, math.inf, 1, True).clamp_min_(SMALLEST)
        whole_MK = x.div(largest_M1).mul_(127).round_().to(torch.int8)
        y_MN = torch._int_mm(whole_MK, whole_KN).float().mul_(largest_M1)
        return y_MN.mul_(scale_N) if bias_N is None else torch.addcmul(bias_N, y_MN, scale_N)


SMALLEST = 1e-12
"""Instead of a scale of zero, for rows that are all zeros."""
