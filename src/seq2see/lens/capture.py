"""Record the activations of a model while it runs.

    with capture(run) as seen:                          # or a model, a bundle, a PyTorch engine
        run.translate(["12 mars 1987"])
    seen["encoder.0.self_attention.weights"][-1]        # BHLM, the last time it was computed

While a model is recorded, translating uses this very model, in float32, and not the faster copy
of `decoding.torch_engine`, so that the steps of a search are recorded, too.

Each name holds a list of tensors in the order of computation. A search runs the decoder once for each step, so that
item t of a decoder's list is step t; its rows are R = B x W hypotheses side by side. The names follow
Vaswani et al. (2017); docs/inside.md lists them all with their shapes.

Recording costs nothing while it is not used: it is done by hooks. While queries, keys, values, scores or weights of an
attention are recorded, it is computed step by step instead of by a fused kernel, which does not return them.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from seq2see.errors import nearest
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.convolutional import (
    Convolutional,
    ConvolutionalDecoderLayer,
    ConvolutionalEncoderLayer,
    GatedConvolution,
    StepAttention,
)
from seq2see.model.interface import Seq2Seq
from seq2see.model.layers import Embedding, FeedForward, Residual
from seq2see.model.recording import AttentionTensors
from seq2see.model.recurrent import AlignmentAttention, RecurrentDecoder, RecurrentEncoder
from seq2see.model.transformer import Transformer


class Seen(dict[str, list[Tensor]]):
    """Recorded tensors by name; any other name raises a KeyError that suggests the nearest one."""

    def __missing__(self, name: str) -> list[Tensor]:
        raise KeyError(
            f"nothing was recorded under '{name}'. {nearest(name, self) if self else 'Nothing was recorded at all'}"
        )


class HasModel(Protocol):
    """Protocol of objects with a model: a run, a bundle, or the PyTorch engine."""

    @property
    def model(self) -> nn.Module: ...


def _scores(passing: AttentionTensors) -> Tensor:
    if passing.scores_BHLM is not None:
        return passing.scores_BHLM
    query, key = passing.query_BHLK, passing.key_BHMK
    return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


_READ: dict[str, Callable[[Any], Tensor]] = {
    "query": lambda passing: passing.query_BHLK,
    "key": lambda passing: passing.key_BHMK,
    "value": lambda passing: passing.value_BHMK,
    "scores": _scores,
    "weights": lambda passing: passing.weights_BHLM,
    "logits": Tensor.clone,  # cloned, because a search overwrites them later
}
"""Functions, by the last part of a recorded name, that return the recorded tensor, given the input or output of a
module. Under other names, the input or output itself is recorded.
"""
_INSIDE = ("query", "key", "value", "scores", "weights")
Where = Literal["input", "output"]
_POINTS: list[tuple[type[nn.Module], str, Where, str]] = [
    (Embedding, "without_positions", "output", "without_positions"),
    (Embedding, "dropout", "input", "with_positions"),
    *((MultiHeadAttention, "inside", "output", name) for name in _INSIDE),
    *((AlignmentAttention, "inside", "output", name) for name in _INSIDE),
    *((StepAttention, "inside", "output", name) for name in _INSIDE),
    (MultiHeadAttention, "w_o", "input", "heads"),
    (MultiHeadAttention, "w_o", "output", "output"),
    (StepAttention, "w_o", "output", "output"),
    (GatedConvolution, "gate", "output", "gate"),
    (FeedForward, "w_2", "input", "hidden"),
    (FeedForward, "w_2", "output", "output"),
    (Residual, "norm", "output", "normed"),
    (Residual, "norm", "input", "sum"),  # of post-norm; with pre-norm it is the output of the whole
    (RecurrentEncoder, "states", "output", "states"),
    (RecurrentDecoder, "states", "output", "states"),
    (ConvolutionalEncoderLayer, "states", "output", "states"),
    (ConvolutionalDecoderLayer, "states", "output", "states"),
    (Convolutional, "encoder_norm", "output", "encoder_norm"),
    (Convolutional, "decoder_norm", "output", "decoder_norm"),
    (Transformer, "encoder_norm", "output", "encoder_norm"),
    (Transformer, "decoder_norm", "output", "decoder_norm"),
    (Seq2Seq, "output", "output", "logits"),
]
"""Recorded tensors of each kind of module: the kind, one of its submodules, whether the input or the output of the
submodule is recorded, and the last part of the name.
"""


def points(model: nn.Module | HasModel) -> Iterator[tuple[str, nn.Module, Where]]:
    """Yield (name, module, "input" or "output") for each tensor that `capture` can record: its name, and the module of
    which it is the input or the output.
    """
    whole = model if isinstance(model, nn.Module) else model.model
    for prefix, module in whole.named_modules():
        for kind, part, side, each in _POINTS:
            if isinstance(module, kind):
                is_output = each == "sum" and module.pre
                place: Where = "output" if is_output else side
                yield f"{prefix}.{each}" if prefix else each, module if is_output else module.get_submodule(part), place


@contextmanager
def capture(model: nn.Module | HasModel, only: Callable[[str], bool] = lambda name: True) -> Iterator[Seen]:
    """Record the tensors that a model computes within this context, in order of computation, detached, on the CPU.

    Args:
        model: a model, or an object that has one: a run, a bundle, an engine.
        only: which names to record, if all would be too many: `lambda name: name.endswith(".weights")`.
    """
    seen = Seen()
    handles: list[Any] = []

    def record(part: nn.Module, side: Where, name: str) -> None:
        def keep(value: Any) -> None:
            read = _READ.get(name.rpartition(".")[2])
            seen.setdefault(name, []).append((read(value) if read else value).detach().cpu())

        if side == "input":
            handles.append(part.register_forward_pre_hook(lambda _, given: keep(given[0])))
        else:
            handles.append(part.register_forward_hook(lambda _, __, value: keep(value)))

    try:
        for name, part, side in points(model):
            if only(name):
                record(part, side, name)
        yield seen
    finally:
        for handle in handles:
            handle.remove()
