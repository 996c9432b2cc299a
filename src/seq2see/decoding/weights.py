"""Weights laid out for decoding on a processor, where each step multiplies few rows: transposed, or in int8."""

import copy

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
        self.whole_NK: Tensor
        self.scale_N: Tensor
        self.register_buffer("whole_NK", (weight / scale_N1).round().to(torch.int8))
        self.register_buffer("scale_N", scale_N1[:, 0])
        self.bias = linear.bias

    def forward(self, x: Tensor, rows: slice = slice(None)) -> Tensor:
        x_MK = x.flatten(0, -2)
        scale_M1 = x_MK.abs().amax(1, keepdim=True).clamp_min_(SMALLEST).mul_(1 / 127)
        whole_MK = (x_MK / scale_M1).round_().to(torch.int8)
        y_MN = torch._int_mm(whole_MK, self.whole_NK[rows].t()).float().mul_(scale_M1).mul_(self.scale_N[rows])
        if self.bias is not None:
            y_MN += self.bias[rows]
        return y_MN.view(*x.shape[:-1], y_MN.shape[-1])


SMALLEST = 1e-12
"""Instead of a scale of zero, for rows that are all zeros."""
