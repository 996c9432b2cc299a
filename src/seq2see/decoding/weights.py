"""Weights laid out for decoding on a processor, where each step multiplies few rows: transposed, or in int8."""

import copy
import math

import torch
from torch import Tensor, nn

from seq2see.errors import SettingError, nearest
from seq2see.model.interface import Seq2Seq

PRECISIONS = ("float32", "int8", "bfloat16")
SMALLEST = 1e-12
"""Instead of a scale of zero, for rows that are all zeros."""


def for_decoding(model: Seq2Seq, precision: str = "float32") -> Seq2Seq:
    """A frozen copy of a model that decodes faster; on a card the model itself, which is fast there as it is.

    What is later done to the model, or heard in it, does not reach the copy. float32: the same numbers, each matrix
    stored by columns. For a few dozen rows the processor's library multiplies that more than twice as fast
    (docs/log.md). int8: each linear layer becomes an `Int8Linear`. While somebody listens to a model, or changes what
    passes in it, it is the model itself in float32: a copy would be deaf.
    """
    if precision not in PRECISIONS:
        raise SettingError(f"--precision {precision}: unknown. {nearest(precision, PRECISIONS)}")
    if next(model.parameters()).device.type != "cpu":
        if precision == "int8":
            raise SettingError("--precision int8: our own engine has it on a CPU only. Leave it out")
        return _deaf_copy(model).to(torch.bfloat16) if precision == "bfloat16" else model
    if precision == "bfloat16":
        raise SettingError("--precision bfloat16: our own engine has it on a card only. Leave it out, or take int8")
    if precision == "float32" and is_heard(model):
        return model
    laid_out = _deaf_copy(model)
    for parent in list(laid_out.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and precision == "int8":
                setattr(parent, name, Int8Linear(child))
            elif isinstance(child, nn.Linear):  # a tied embedding keeps its own parameter, by rows
                child.weight = nn.Parameter(child.weight.detach().t().contiguous().t(), requires_grad=False)
    return laid_out


def _deaf_copy(model: Seq2Seq) -> Seq2Seq:
    copied = copy.deepcopy(model)
    for module in copied.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return copied


def is_heard(model: Seq2Seq) -> bool:
    """Whether somebody listens to what passes in a model, or changes it."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Int8Linear(nn.Module):
    """A linear layer in whole numbers of 8 bits: a scale for each output of the weights, and for each row of the input.

    Sums of whole numbers are exact, and no row's scale depends on another's: a sentence gets the same answer in any
    batch. PyTorch's public int8 layers take one scale for a whole batch, and are to be removed; so this calls
    `torch._int_mm`, which its quantisation library is built on.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight_FD = linear.weight.detach()
        largest_F = weight_FD.abs().amax(1).clamp_min(SMALLEST)
        self.whole_DF: Tensor
        self.scale_F: Tensor
        self.register_buffer("whole_DF", (weight_FD / largest_F[:, None]).mul_(127).round_().to(torch.int8).t())
        self.register_buffer("scale_F", largest_F / 127**2)
        self.bias = linear.bias

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """As a `Projection`: all outputs, or some of them."""
        x_RD = x if x.dim() == 2 else x.flatten(0, -2)
        whole_DF, scale_F, bias_F = self.whole_DF, self.scale_F, self.bias
        if rows is not None:
            whole_DF, scale_F = whole_DF[:, rows], scale_F[rows]
            bias_F = bias_F[rows]  # type: ignore[assignment]
        # Few operations: each takes longer to call than its numbers take to compute.
        largest_R1 = torch.linalg.vector_norm(x_RD, math.inf, 1, True).clamp_min_(SMALLEST)
        whole_RD = x_RD.div(largest_R1).mul_(127).round_().to(torch.int8)
        y_RF = torch._int_mm(whole_RD, whole_DF).float().mul_(largest_R1)
        y_RF = y_RF.mul_(scale_F) if bias_F is None else torch.addcmul(bias_F, y_RF, scale_F)
        return y_RF if x.dim() == 2 else y_RF.view(*x.shape[:-1], -1)
