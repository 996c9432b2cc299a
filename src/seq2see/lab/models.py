"""Small models: a Transformer, older architectures with about as many parameters, and Transformers with one part
removed.
"""

import bisect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from seq2see import config
from seq2see.config import Model
from seq2see.model.build import build, count_parameters
from seq2see.model.interface import Seq2Seq
from seq2see.model.layers import Residual
from seq2see.model.packing import Reach
from seq2see.model.transformer import DecoderLayer

WITHOUT_ATTENTION = ("rnn", "rnn-bidirectional")
RECURRENT = ("rnn-attention", "rnn-dot", "rnn-general", *WITHOUT_ATTENTION)
PREDECESSORS = (*RECURRENT, "convolutional")
"""Names of the recurrent and convolutional architectures, which came before the Transformer."""
ARCHITECTURES = ("transformer", *PREDECESSORS)
WITH_ATTENTION = tuple(kind for kind in ARCHITECTURES if kind not in WITHOUT_ATTENTION)
SMALL = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 64,
    "heads": 4,
    "d_ff": 128,
    "dropout": 0.0,
    "norm": "pre",
    "positions": "sinusoid",
    "max_positions": 80,
    "tie": "none",
}
"""Settings of `model` for a small Transformer, which learns to reverse eight letters in half a minute on one core."""

OTHER_WEIGHTS = 10_000_000
"""Number that is added to the seed of a trial to initialise a second model differently, as a control."""


def small_model(seed: int, vocabularies: tuple[int, int], kind: str = "transformer", **changes: Any) -> Seq2Seq:
    """Return a Transformer with the settings `SMALL` and `changes`, or a model of another kind with about as many
    parameters as that.
    """
    shape = config.check_keys({"model": {**SMALL, **changes}}).model
    torch.manual_seed(seed)
    if kind != "transformer":
        wanted = count_parameters(shape, *vocabularies)
        options = {name: getattr(shape, name) for name in ("dropout", "tie")}
        if kind == "convolutional":  # whose positions are learned
            options |= {"max_positions": shape.max_positions}
        shape = as_large(kind, wanted, vocabularies, **options)
    return build(shape, *vocabularies)


def as_large(kind: str, parameters: int, vocabularies: tuple[int, int], **options: Any) -> Model:
    """Return settings of a model of this kind whose number of parameters is as near as possible to `parameters`.

    Encoder and decoder of an RNN have one layer each; those of a convolutional model have two, as `seq2see train`
    chooses for one layer of a Transformer. All layers are as wide as the embeddings.
    """
    layers = 2 if kind == "convolutional" else 1

    def shape(width: int) -> Model:
        sizes = {"architecture": kind, "encoder_layers": layers, "decoder_layers": layers, "d_model": width}
        return config.check_keys({"model": {**sizes, **options}}).model

    def excess(width: int) -> int:
        return count_parameters(shape(width), *vocabularies) - parameters

    widths = range(8, 4096, 4)
    above = bisect.bisect_left(widths, 0, key=excess)
    return shape(min(widths[max(0, above - 1) : above + 1], key=lambda width: abs(excess(width))))


# --- a model without one of its parts, changed from outside: the model has no options for this ------------------------


def without_look_ahead_mask(model: nn.Module) -> None:
    """Let every decoder position attend to later positions in training; in decoding there are no later positions, so
    that it stays the same.
    """

    def uncover(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        x, memory, past, across = given
        assert isinstance(past, Reach)
        return x, memory, replace(past, causal=False), across

    for layer in model.modules():
        if isinstance(layer, DecoderLayer):
            layer.register_forward_pre_hook(uncover)


def without_norm(model: nn.Module) -> None:
    """Remove every layer normalization; the residual connections stay."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LayerNorm):
                setattr(parent, name, nn.Identity())


class NoSum(Residual):
    """Replacement for `Residual` that normalizes, but does not add the input of a sub-layer to its output."""

    def __init__(self, residual: Residual) -> None:
        nn.Module.__init__(self)
        self.norm, self.dropout, self.pre = residual.norm, residual.dropout, residual.pre

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return self.dropout(sublayer(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(self.dropout(sublayer(x)))  # type: ignore[no-any-return]


def without_residuals(model: nn.Module) -> None:
    """Make the output of each sub-layer replace its input instead of being added to it."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Residual):
                setattr(parent, name, NoSum(child))
