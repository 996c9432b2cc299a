"""A model without one of its parts, which are exchanged or changed from outside: the model has no switches for this."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from seq2see.model.layers import DecoderLayer, Residual
from seq2see.model.packing import Reach

Kind = TypeVar("Kind", bound=nn.Module)


def without_look_ahead_mask(model: nn.Module) -> None:
    """In training, every position of the decoder sees those after it, too. In search there is nothing to be seen."""

    def uncover(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        x, memory, past, across = given
        assert isinstance(past, Reach)
        return x, memory, replace(past, causal=False), across

    for layer in _all(model, DecoderLayer):
        layer.register_forward_pre_hook(uncover)


def without_norm(model: nn.Module) -> None:
    """Only the residual sums stay."""
    for residual in _all(model, Residual):
        residual.norm = nn.Identity()  # type: ignore[assignment]
    for name in ("encoder_norm", "decoder_norm"):
        if hasattr(model, name):
            setattr(model, name, nn.Identity())


class NoSum(Residual):
    """Around a sub-layer: the norm, but nothing is added."""

    def __init__(self, residual: Residual) -> None:
        nn.Module.__init__(self)
        self.norm, self.dropout, self.pre = residual.norm, residual.dropout, residual.pre

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return self.dropout(sublayer(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(self.dropout(sublayer(x)))  # type: ignore[no-any-return]


def without_residuals(model: nn.Module) -> None:
    """What a sub-layer says replaces what it was given."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Residual):
                setattr(parent, name, NoSum(child))


def _all(model: nn.Module, kind: type[Kind]) -> list[Kind]:
    return [module for module in model.modules() if isinstance(module, kind)]
