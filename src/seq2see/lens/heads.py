"""Statistics of attention heads over a set of pairs: the loss without each head, and where each head attends."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.bundle import Bundle
from seq2see.config import Place
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import batches, translate
from seq2see.errors import DataError, SettingError, nearest
from seq2see.lens.reading import AT_ONCE, ATTENTIONS, Answer, Watch, attention_of, encode, target_logs, unwatched
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.convolutional import StepAttention
from seq2see.model.interface import Seq2Seq
from seq2see.model.recurrent import AlignmentAttention
from seq2see.text.pair import Pair

Numbers = NDArray[np.float64]
Scorer = Callable[[Sequence[str], Sequence[Sequence[str]]], float]
"""Function that computes a score such as BLEU from hypotheses and the references of each."""


class Head(NamedTuple):
    """One attention head: the kind of its attention, its layer and its number, both from 0."""

    place: Place
    layer: int
    head: int


@contextmanager
def switched_off(model: Seq2Seq, heads: Sequence[Head]) -> Iterator[None]:
    """Switch heads off within this context: their outputs are replaced by zeros before the output projection."""
    handles: list[Any] = []
    try:
        for head in heads:
            attention = _attention(model, head)
            own = slice(head.head * attention.d_value, (head.head + 1) * attention.d_value)
            handles.append(attention.w_o.register_forward_pre_hook(partial(_silence, own)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _attention(model: Seq2Seq, head: Head) -> MultiHeadAttention | AlignmentAttention | StepAttention:
    """Return the attention module that a head belongs to; raise a SettingError if the model has no such head."""
    if head.place not in ATTENTIONS:
        raise SettingError(f"no attention '{head.place}'. {nearest(str(head.place), ATTENTIONS)}")
    stack, name = ATTENTIONS[head.place]
    layers = [getattr(layer, name) for layer in getattr(model, stack) if getattr(layer, name, None) is not None]
    if not layers:
        raise SettingError(f"no {head.place} attention in this model")
    if not 0 <= head.layer < len(layers):
        raise SettingError(f"no layer {head.layer} in the {stack}: it has {len(layers)}, counted from 0")
    attention: MultiHeadAttention | AlignmentAttention | StepAttention = layers[head.layer]
    if not 0 <= head.head < attention.heads:
        raise SettingError(f"no head {head.head}: a layer has {attention.heads}, counted from 0")
    return attention


def _silence(own: slice, _: object, given: tuple[Tensor, ...]) -> tuple[Tensor]:
    joined = given[0].clone()
    joined[..., own] = 0.0
    return (joined,)


def every_head(bundle: Bundle) -> list[Head]:
    """Return all heads of a model: of the encoder, of the decoder's self-attention, and of the cross-attention."""
    return [
        Head(place, layer, head)
        for place, (layers, heads) in bundle.settings.model.attention.items()
        for layer in range(layers)
        for head in range(heads)
    ]


class Without(NamedTuple):
    """Measurements of a model while some heads, or none, are switched off."""

    heads: list[Head]
    loss: float
    """Mean loss per target token in nats, without label smoothing."""
    score: float | None
    changed: float
    """Share of the pairs, from 0 to 1, whose translation differs from that of the model with all heads."""
    translations: list[str]


@dataclass(frozen=True)
class Worth(Answer):
    """Loss and scores of the whole model, and without each group of heads, on a number of pairs."""

    pairs: int
    whole: Without
    without: list[Without]


def worth(
    bundle: Bundle,
    pairs: Sequence[Pair],
    groups: Sequence[Sequence[Head]] | None = None,
    score: Scorer | None = None,
    watch: Watch = unwatched,
) -> Worth:
    """Switch off each group of heads in turn, and measure the loss and greedy translations.

    Args:
        groups: groups of heads that are switched off together; by default, each head by itself.
        score: function that scores the translations; by default they have no score.
    """
    if not pairs:
        raise DataError("no pair to measure heads on")
    engine = TorchEngine(bundle.model)
    settings = replace(bundle.settings, decoding=replace(bundle.settings.decoding, beam=1))
    used = replace(bundle, model=engine.model)
    sources, targets = encode(bundle, pairs)
    references = [[pair.target, *pair.references] for pair in pairs]

    def measure(heads: list[Head]) -> Without:
        with switched_off(engine.model, heads):
            results = translate(engine, bundle.tokenizers, settings, [pair.source for pair in pairs])
            loss = mean_loss(used, sources, targets)
        said = [result.text for result in results]
        value = None if score is None else score(said, references)
        return Without(heads, loss, value, 0.0, said)

    groups = [[head] for head in every_head(bundle)] if groups is None else groups
    for group in groups:  # a head that does not exist is an error before anything is translated
        for head in group:
            _attention(engine.model, head)
    whole = measure([])
    without = []
    for number, group in enumerate(groups, start=1):
        found = measure(list(group))
        watch("translating with heads switched off", number, len(groups))
        changed = np.mean([ours != theirs for ours, theirs in zip(found.translations, whole.translations, strict=True)])
        without.append(found._replace(changed=float(changed)))
    return Worth(len(pairs), whole, without)


@torch.inference_mode()
def mean_loss(bundle: Bundle, sources: list[list[int]], targets: list[list[int]]) -> float:
    """Return the mean loss per target token, end tokens included, in nats, without label smoothing."""
    lengths = [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
    total = sum(
        float(target_logs(bundle, [sources[index] for index in batch], [targets[index] for index in batch]).sum())
        for batch in batches(lengths, AT_ONCE)
    )
    return -total / sum(map(len, targets))


class Habits(NamedTuple):
    """Statistics of where one head attends, as means over all tokens of some pairs."""

    place: Place
    layer: int
    head: int
    entropy: float
    """Entropy in nats of the weights with which a token attends: 0 if all weight is on one token, higher if it is
    spread.
    """
    spread: float
    """Entropy of the weights divided by the entropy of uniform weights on the same tokens: from 0 to 1."""
    peak: float
    """Largest of the weights with which a token attends."""
    distance: float
    """Distance in tokens between a token and the tokens that it attends to, averaged by the weights; in
    cross-attention, distance of the attended source tokens from the diagonal: the source token whose relative position
    in the source is that of the attending token in the output.
    """
    offset: float
    """Signed distance, averaged like `distance`: negative if a head attends to earlier tokens, positive if to later
    ones.
    """
    previous: float
    """Weight of the previous token; `same` and `following` are those of the same and the next token. In
    cross-attention, positions are relative to the diagonal.
    """
    same: float
    following: float
    end: float
    """Weight of the end token of the source or, in the decoder's self-attention, of the begin token: heads attend to
    these if nothing else fits.
    """


@dataclass(frozen=True)
class Statistics(Answer):
    """The `Habits` of every head, over a number of pairs."""

    pairs: int
    heads: list[Habits]


def statistics(bundle: Bundle, pairs: Sequence[Pair], watch: Watch = unwatched) -> Statistics:
    """Return statistics of where each head attends, as means over all tokens of the pairs."""
    if not pairs:
        raise DataError("no pair to measure heads on")
    totals: dict[Place, Numbers] = {}
    counts = dict.fromkeys(ATTENTIONS, 0)
    for number, (_, weights) in enumerate(attention_of(bundle, *encode(bundle, pairs)), start=1):
        watch("reading pairs", number, len(pairs))
        for place, weights_LHQM in weights.items():
            found = habits_of(weights_LHQM.astype(np.float64), place)
            totals[place] = totals.get(place, 0) + found.sum(-1)
            counts[place] += weights_LHQM.shape[2]
    means = {place: total / counts[place] for place, total in totals.items()}
    return Statistics(
        len(pairs),
        [Habits(*head, *means[head.place][:, head.layer, head.head].tolist()) for head in every_head(bundle)],
    )


def habits_of(weights_LHQM: Numbers, place: Place) -> Numbers:
    """Return FLHQ: the F numbers of `Habits`, from `entropy` on, for each layer, head and query."""
    Q, M = weights_LHQM.shape[2:]
    rows_Q, columns_M = np.arange(Q), np.arange(M)
    visible_Q = rows_Q + 1 if place == "decoder" else np.full(Q, M)
    home_Q = np.round(rows_Q * (M - 1) / max(1, Q - 1)).astype(np.int64) if place == "cross" else rows_Q
    offset_QM = columns_M - home_Q[:, None]
    logs = np.log(weights_LHQM, out=np.zeros_like(weights_LHQM), where=weights_LHQM > 0)
    entropy = -(weights_LHQM * logs).sum(-1)
    return np.stack(
        [
            entropy,
            entropy / np.log(np.maximum(visible_Q, 2)),
            weights_LHQM.max(-1),
            (weights_LHQM * np.abs(offset_QM)).sum(-1),
            (weights_LHQM * offset_QM).sum(-1),
            *((weights_LHQM * (offset_QM == away)).sum(-1) for away in (-1, 0, 1)),
            weights_LHQM[..., 0 if place == "decoder" else -1],
        ]
    )
