"""Listen to a model while it works.

    with capture(run) as seen:                          # or a model, a bundle, an engine of ours
        run.translate(["12 mars 1987"])
    seen["encoder.0.self_attention.weights"][-1]        # BHLM, the last time it passed by

Whoever translates with a model that is heard takes this very model, in float32, and no copy that is laid out for speed
(`decoding.torch_engine`), so that a search is heard, too.

Each name holds a list: what passed there, in order. A search passes the decoder once for each step, so that item t of
a decoder's list is step t; its rows are R = B x W hypotheses side by side. The names, all after the paper:

    source_embedding, target_embedding
        .without_positions .with_positions              ND (RD in a search)
    encoder.0.self_attention, decoder.0.self_attention, decoder.0.cross_attention
        .query .key .value                              BHLK and BHMK, rotated where positions rotate
        .scores .weights                                BHLM; scores before the mask, weights after it
        .heads                                          ND, the heads side by side, before the output projection
        .output                                         ND, the sub-layer before residual and norm
    encoder.0.feed_forward.hidden .output               NF after the activation, ND
    encoder.0.around_attention .around_feed_forward, decoder.0.around_self .around_cross .around_feed_forward
        .sum                                            ND, with the residual added
        .normed                                         ND, out of the norm: of the sum, or of what goes in (pre-norm)
    encoder_norm, decoder_norm                          ND, what a stack hands on
    logits                                              NV, wherever the model computes them (a search does)

A recurrent model has, besides its embeddings and logits:

    decoder.0.cross_attention                           its one head: .query .key .value .scores .weights as above
    encoder.0.states, decoder.0.states                  ND, what it knows after each token; what it is about to say

In a search a sentence's W hypotheses are the L queries of BHLM, and M = steps x W places of all that was kept: those of
other hypotheses have weight 0 (see `model.state`).

Nothing of this costs anything while nobody listens: the listeners are hooks, and attention has one point (`inside`)
which, while heard, makes it take its written-out form, the only one that has weights to show.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor, nn

from seq2see.errors import nearest
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.interface import Seq2Seq
from seq2see.model.layers import Embedding, FeedForward, Residual
from seq2see.model.recording import AttentionTensors
from seq2see.model.recurrent import AlignmentAttention, RecurrentDecoder, RecurrentEncoder
from seq2see.model.transformer import Transformer


class Seen(dict[str, list[Tensor]]):
    """What passed, by name; who asks for a name under which nothing passed is told of the nearest."""

    def __missing__(self, name: str) -> list[Tensor]:
        raise KeyError(f"nothing passed under '{name}'. {nearest(name, self) if self else 'Nothing passed at all'}")


class HasModel(Protocol):
    """A run, a bundle, an engine of ours."""

    @property
    def model(self) -> nn.Module: ...


@contextmanager
def capture(model: nn.Module | HasModel, only: Callable[[str], bool] = lambda name: True) -> Iterator[Seen]:
    """Collect what passes, in order, detached and on the CPU.

    Args:
        model: or what has one: a run, a bundle, an engine.
        only: which names to keep, where all would be too much: `lambda name: name.endswith(".weights")`.
    """
    seen = Seen()
    handles: list[Any] = []

    def keep(name: str, tensor: Tensor) -> None:
        seen.setdefault(name, []).append(tensor.detach().cpu())

    def keep_copy(name: str, tensor: Tensor) -> None:
        seen.setdefault(name, []).append(tensor.detach().clone().cpu())

    def going_in(module: nn.Module, name: str) -> None:
        if only(name):
            handles.append(module.register_forward_pre_hook(lambda _, given: keep(name, given[0])))

    def coming_out(module: nn.Module, name: str, keep: Callable[[str, Tensor], None] = keep) -> None:
        if only(name):
            handles.append(module.register_forward_hook(lambda _, __, tensor: keep(name, tensor)))

    def inside(attention: MultiHeadAttention | AlignmentAttention, prefix: str) -> None:
        wanted = {each: name for each in _INSIDE if only(name := f"{prefix}{each}")}

        def listen(_: object, __: object, passing: AttentionTensors) -> None:
            for each, name in wanted.items():
                keep(name, _INSIDE[each](passing))

        if wanted:
            handles.append(attention.inside.register_forward_hook(listen))

    try:
        heard = model if isinstance(model, nn.Module) else model.model
        for name, module in heard.named_modules():
            prefix = f"{name}." if name else ""
            match module:
                case Embedding():
                    coming_out(module.without_positions, f"{prefix}without_positions")
                    going_in(module.dropout, f"{prefix}with_positions")
                case MultiHeadAttention():
                    inside(module, prefix)
                    going_in(module.w_o, f"{prefix}heads")
                    coming_out(module.w_o, f"{prefix}output")
                case AlignmentAttention():
                    inside(module, prefix)
                case RecurrentEncoder() | RecurrentDecoder():
                    coming_out(module.states, f"{prefix}states")
                case FeedForward():
                    going_in(module.w_2, f"{prefix}hidden")
                    coming_out(module.w_2, f"{prefix}output")
                case Residual(pre=True):
                    coming_out(module.norm, f"{prefix}normed")
                    coming_out(module, f"{prefix}sum")
                case Residual():
                    going_in(module.norm, f"{prefix}sum")
                    coming_out(module.norm, f"{prefix}normed")
                case Transformer():
                    coming_out(module.encoder_norm, f"{prefix}encoder_norm")
                    coming_out(module.decoder_norm, f"{prefix}decoder_norm")
            if isinstance(module, Seq2Seq):
                coming_out(module.output, f"{prefix}logits", keep_copy)  # a search goes on to write into them
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _scores(passing: AttentionTensors) -> Tensor:
    if passing.scores_BHLM is not None:
        return passing.scores_BHLM
    query, key = passing.query_BHLK, passing.key_BHMK
    return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


_INSIDE: dict[str, Callable[[AttentionTensors], Tensor]] = {
    "query": lambda passing: passing.query_BHLK,
    "key": lambda passing: passing.key_BHMK,
    "value": lambda passing: passing.value_BHMK,
    "scores": _scores,
    "weights": lambda passing: passing.weights_BHLM,
}
