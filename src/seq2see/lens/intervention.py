"""Change activations while a model runs, and compare its translation before and after.

    patch(bundle, reading, Change("encoder_norm", "mars", donor, "juin"))       # encoder states of another sentence
    contrast(bundle, reading, other_ids)            # why this translation and not that one, where they first differ

`patch` uses `changed`, which replaces tensors by the results of functions; tensors have the names of `capture`.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from seq2see.bundle import Bundle
from seq2see.decoding import search
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import SettingError, nearest
from seq2see.lens.answers import layer_outputs
from seq2see.lens.capture import HasModel, Where, capture, points
from seq2see.lens.heads import Head, every_head, switched_off
from seq2see.lens.reading import AT_ONCE, Answer, Floats, Reading, Watch, decoded, read, target_logs, unwatched
from seq2see.model.recording import AttentionTensors
from seq2see.model.recurrent import Recurrent
from seq2see.tokens import spans

Changing = Callable[[Tensor], Tensor]
"""Function that receives a tensor of the model and returns the tensor that replaces it."""
FIXED = ("query", "key", "value", "scores")
"""Last parts of the names of activations that can be recorded but not changed (in RNNs, `weights` cannot either); the
output of their layer can be changed instead.
"""


@contextmanager
def changed(model: nn.Module | HasModel, changes: Mapping[str, Changing]) -> Iterator[None]:
    """Replace tensors by the results of functions, each time that the model computes them within this context.

    The keys of `changes` are names of tensors, as in `capture`.

    with seq2see.changed(run, {"encoder.0.feed_forward.output": torch.zeros_like}):
        run.translate(["12 mars 1987"])
    """
    known = {name: (part, where) for name, part, where in points(model)}
    whole = model if isinstance(model, nn.Module) else model.model
    fixed = (*FIXED, "weights") if isinstance(whole, Recurrent) else FIXED
    handles: list[Any] = []
    try:
        for name, function in changes.items():
            if name not in known:
                raise _unknown(name, known)
            if name.rpartition(".")[2] in fixed:
                raise SettingError(f"'{name}' can be recorded, not changed. Change the output of this layer instead")
            handles.append(_hook(*known[name], function))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unknown(name: str, known: Collection[str]) -> SettingError:
    return SettingError(f"there are no activations named '{name}'. {nearest(name, known)}")


def _hook(part: nn.Module, where: Where, function: Changing) -> Any:
    def replaced(value: Any) -> Any:
        if isinstance(value, AttentionTensors):
            return value._replace(weights_BHLM=function(value.weights_BHLM))
        return function(value)

    if where == "input":
        return part.register_forward_pre_hook(lambda _, given: (replaced(given[0]), *given[1:]))
    return part.register_forward_hook(lambda _, __, value: replaced(value))


# --- patching and steering -------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Patched(Answer):
    """A translation before and after activations were changed."""

    source: str
    donor: str
    """The sentence from which the new activations were taken; empty if numbers were given."""
    name: str
    tokens: list[int]
    """Positions of the changed activations, counted from 0: those of source tokens or, in the decoder, of output
    tokens.
    """
    own_translation: str
    """The translation before the change: by the unchanged model, unless the user gave a translation of the sentence."""
    translation: str
    """The translation that the model finds with the changed activations."""
    target_tokens: list[str]
    """Tokens of `own_translation`, with the end token."""
    probability: Floats
    """The probability of each of the T tokens of `own_translation` without the change."""
    changed_probability: Floats
    """The probability of each of the T tokens of `own_translation` with the change, given the same tokens before it."""
    effect: float
    """Decrease of the log-probability of `own_translation` by the change, in nats; negative if it increases."""

    def __repr__(self) -> str:
        return f"Patched({self.own_translation!r} -> {self.translation!r}, effect {self.effect:.2f} nats)"


Tokens = str | Sequence[int] | None
"""Positions of tokens: those of a part of the text, which must occur in it exactly once; a list of indices from 0; or
None for all. The text is the sentence or, for activations of the decoder, its translation.
"""


class Change(NamedTuple):
    """A change of activations: their name, the positions, and what replaces them: those of a donor, or numbers."""

    name: str
    """Name of the activations to be changed, as in `capture`: `encoder.0.feed_forward.output`."""
    tokens: Tokens = None
    donor: Reading | None = None
    donor_tokens: Tokens = None
    """Positions in the donor sentence from which activations are taken; None for the same positions as in `tokens`."""
    value: ArrayLike | None = None
    """Numbers that replace the activations, if there is no donor: a row for each token, one row for all tokens, or one
    number.
    """
    add: bool = False
    """Whether the donor's activations, or the value, are added to the activations instead of replacing them."""


def patch(bundle: Bundle, reading: Reading, change: Change, watch: search.Watch | None = None) -> Patched:
    """Change the activations at some positions, translate again, and return both translations.

    Args:
        watch: called with each step of the search that uses the changed activations.
    """
    name = change.name
    own_ND = _activations(bundle, reading, name)
    if own_ND.ndim != 2:
        raise SettingError(
            f"'{name}' has no vector for each token, so it cannot be patched: use seq2see.changed instead"
        )
    places = _positions(bundle, reading, name, change.tokens)
    if len(set(places)) < len(places):
        raise SettingError(f"tokens {places}: a position occurs twice. Name each position once")
    rows_PD = _rows(bundle, change, places, own_ND.shape[1]).to(next(bundle.model.parameters()))
    ids = [reading.source_ids], [reading.target_ids]
    with torch.inference_mode():
        before_T = target_logs(bundle, *ids)
        with changed(bundle, {name: _put(places, rows_PD, change.add)}):
            after_T = target_logs(bundle, *ids)
        with changed(bundle, {name: _put(places, rows_PD, change.add, in_search=_is_in_decoder(name))}):
            translation = read(bundle, reading.source, engine=TorchEngine(bundle.model, watch=watch)).translation
    return Patched(
        reading.source,
        "" if change.donor is None else change.donor.source,
        name,
        places,
        reading.translation,
        translation,
        reading.target_tokens,
        before_T.exp().cpu().numpy(),
        after_T.exp().cpu().numpy(),
        float((before_T - after_T).sum()),
    )


def _activations(bundle: Bundle, reading: Reading, name: str) -> Tensor:
    """Return the tensor recorded under a name in one forward pass over a sentence and its translation."""
    with torch.inference_mode(), capture(bundle.model, lambda each: each == name) as seen:
        bundle.model.output(decoded(bundle, [reading.source_ids], [reading.target_ids]))
    if name not in seen:
        raise _unknown(name, [each for each, *_ in points(bundle)])
    return seen[name][0]


def _is_in_decoder(name: str) -> bool:
    """Return whether activations of this name have a row for each output token (else one for each source token)."""
    return name.startswith(("decoder", "target_embedding", "logits"))


def _positions(bundle: Bundle, reading: Reading, name: str, tokens: Tokens) -> list[int]:
    """Return the positions of tokens as a list: of source tokens or, for activations of the decoder, those at which
    output tokens are predicted. Raise a SettingError if they do not exist.
    """
    in_decoder, tokenizers = _is_in_decoder(name), bundle.tokenizers
    text = reading.translation if in_decoder else reading.source
    count = len(reading.target_ids if in_decoder else reading.source_ids)
    if tokens is None:
        return list(range(count))
    if isinstance(tokens, str):
        if not tokens or text.count(tokens) != 1:
            raise SettingError(f"{tokens!r} must occur exactly once in {text!r}. Give positions of tokens instead")
        start = text.index(tokens)
        places = (
            spans.written(tokenizers.target, reading.target_ids[:-1])
            if in_decoder
            else spans.read(tokenizers.source, text)[: count - 1]
        )
        tokens = spans.touching(places, (start, start + len(tokens)))
    if not tokens or not all(0 <= each < count for each in tokens):
        raise SettingError(f"tokens {list(tokens)}: expected positions from 0 to {count - 1} of {text!r}")
    return list(tokens)


def _rows(bundle: Bundle, change: Change, places: list[int], width: int) -> Tensor:
    """Return PD: for each of P positions, the activations that replace, or are added to, those of the model."""
    if (change.donor is None) == (change.value is None):
        raise SettingError("patch: give either a donor sentence or a value")
    P = len(places)
    if change.donor is not None:
        asked = places if change.donor_tokens is None else change.donor_tokens
        there = _positions(bundle, change.donor, change.name, asked)
        if len(there) != P:
            raise SettingError(
                f"patch: {P} tokens of the sentence, {len(there)} of the donor. Choose the same number of each"
            )
        return _activations(bundle, change.donor, change.name)[there]
    rows = torch.as_tensor(np.asarray(change.value, np.float32))
    if rows.numel() != 1 and tuple(rows.shape) not in ((width,), (1, width), (P, width)):
        shape = " x ".join(map(str, rows.shape))
        raise SettingError(f"patch: {P} tokens at '{change.name}' need {P} x {width} numbers, or {width}; not {shape}")
    return rows.expand(P, width)


def _put(tokens: Sequence[int], rows_PD: Tensor, add: bool, in_search: bool = False) -> Changing:
    """Return a function that replaces the rows of a tensor at the positions `tokens` by `rows_PD` or, with `add`, adds
    `rows_PD` to them.

    Args:
        in_search: whether each call is one step of the decoder in a search: call n then has position n of all
            hypotheses.
    """
    steps = itertools.count()

    def changing(x: Tensor) -> Tensor:
        changed = x.clone()
        flat_ND = changed.view(-1, x.shape[-1])
        if in_search:
            step = next(steps)
            given = rows_PD[[index for index, each in enumerate(tokens) if each == step]]
            if len(given):
                flat_ND.copy_(flat_ND + given if add else given.expand_as(flat_ND))
        else:
            flat_ND[tokens] = flat_ND[tokens] + rows_PD if add else rows_PD
        return changed

    return changing


# --- contrast --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Contrast(Answer):
    """Why the model prefers one output to another: the difference of the log-probabilities of their first different
    tokens, in nats, and what it depends on. Positive numbers favour `this`.
    """

    source_tokens: list[str]
    prefix: list[str]
    """The output tokens at the beginning that both outputs have in common."""
    this: str
    """The next token after `prefix` in the translation of the reading that `contrast` was given."""
    that: str
    """The next token after `prefix` in the other translation."""
    difference: float
    """log p(this) - log p(that) after `prefix`, in nats."""
    left_out: Floats
    """For each of S source tokens, how much `difference` decreases when this token is left out; 0 for the end token,
    which is never left out.
    """
    layers: Floats
    """For each decoder layer, the value of `difference` if it were the last layer (logit lens)."""
    heads: list[tuple[Head, float]] = field(default_factory=list)
    """How much `difference` decreases when each head is switched off; the head with the largest change, in either
    direction, is first.
    """

    def __repr__(self) -> str:
        after = "".join(self.prefix) or "the beginning"
        return f"Contrast({self.this!r} rather than {self.that!r} after {after}: {self.difference:+.2f} nats)"


@torch.inference_mode()
def contrast(bundle: Bundle, reading: Reading, other: Sequence[int], watch: Watch = unwatched) -> Contrast:
    """Return why the model prefers the translation of a reading to another one, or the other one to it.

    Args:
        other: token ids of the other translation with its end token; those after the first different one do not matter.
    """
    pairs = enumerate(zip(reading.target_ids, other, strict=False))
    place = next((index for index, (one, two) in pairs if one != two), None)
    if place is None:
        raise SettingError(f"both translations are {reading.translation!r}: there is nothing to contrast")
    prefix, this, that = reading.target_ids[:place], reading.target_ids[place], other[place]

    def differences(sources: Sequence[Sequence[int]]) -> Tensor:
        states_ND = decoded(bundle, sources, [[*prefix, this]] * len(sources))
        logits_BV = bundle.model.output(states_ND[place :: place + 1]).float()
        difference_B: Tensor = logits_BV[:, this] - logits_BV[:, that]
        return difference_B.cpu()

    ids, S = reading.source_ids, len(reading.source_ids)
    with capture(bundle.model, lambda name: name in layer_outputs(bundle, "decoder")) as seen:
        whole = float(differences([ids])[0])
    model, device = bundle.model, next(bundle.model.parameters()).device
    last_LD = torch.stack([seen[name][0][place] for name in layer_outputs(bundle, "decoder")]).to(device)
    logits_LV = model.output(model.decoder_norm(last_LD)).float().cpu()
    left_out, size = torch.zeros(S), max(1, AT_ONCE // (S + place + 1))
    for first in range(0, S - 1, size):
        places = range(first, min(first + size, S - 1))
        left_out[places.start : places.stop] = whole - differences([[*ids[:each], *ids[each + 1 :]] for each in places])
        watch("leaving out input tokens", places.stop, S - 1)
    heads, every = [], every_head(bundle)
    for number, head in enumerate(every, start=1):
        with switched_off(model, [head]):
            heads.append((head, whole - float(differences([ids])[0])))
        watch("switching heads off", number, len(every))
    favoured, other_piece = bundle.tokenizers.target.pieces([this, that])
    return Contrast(
        reading.source_tokens,
        reading.target_tokens[:place],
        favoured,
        other_piece,
        whole,
        left_out.numpy(),
        (logits_LV[:, this] - logits_LV[:, that]).numpy(),
        sorted(heads, key=lambda each: -abs(each[1])),
    )
