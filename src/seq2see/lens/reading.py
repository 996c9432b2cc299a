"""A sentence and its translation in tokens, and forward passes over them.

    reading = read(bundle, "12 mars 1987")              # translated; read(bundle, sentence, "1987-03-12") forces it

Also `Answer`, the base class of the results of this package: frozen dataclasses whose `json()` returns all fields.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.config import Place
from seq2see.decoding import search
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import batches, translate
from seq2see.errors import SettingError
from seq2see.lens.capture import capture
from seq2see.text.pair import Pair
from seq2see.tokens import spans
from seq2see.tokens.interface import Tokenizer

Floats = NDArray[np.float32]
ATTENTIONS: Final[dict[Place, tuple[str, str]]] = {
    "encoder": ("encoder", "self_attention"),
    "decoder": ("decoder", "self_attention"),
    "cross": ("decoder", "cross_attention"),
}
"""For each kind of attention, the stack that contains it, and the name of its module in each layer of the stack."""
AT_ONCE = 2048
"""Number of tokens up to which pairs share one forward pass; larger batches are no faster on a CPU, and delay progress
reports.
"""
Watch = Callable[[str, int, int], None]
"""Callback for progress: a description, the number done, and the total: `watch("leaving tokens out", 12, 60)`."""


def unwatched(what: str, done: int, total: int) -> None:
    """Ignore a progress report; the default `Watch`."""


class Answer:
    """Base class of results with a JSON form: a dictionary of the fields, in which named tuples become dictionaries,
    too. Arrays become lists, and the floats of arrays are rounded to five decimals.
    """

    def json(self) -> dict[str, Any]:
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON can represent; -0.0 becomes 0.0."""
    if isinstance(value, np.ndarray):
        return (value.astype(np.float64).round(5) + 0.0).tolist() if value.dtype.kind == "f" else value.tolist()
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, Answer):
        return value.json()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Reading:
    """A sentence and its translation, in text and tokens; the translation is the model's, unless one was given."""

    source: str
    translation: str
    source_ids: list[int]
    """Token ids of the sentence, including the end token."""
    target_ids: list[int]
    """Token ids of the translation, including the end token."""
    source_tokens: list[str] = field(default_factory=list)
    target_tokens: list[str] = field(default_factory=list)
    own_translation: str = ""
    """The translation that the model's own search found; `translation` may differ from it if the user gave one."""
    steps: list[search.SearchStep] = field(default_factory=list)
    """The steps of the search that found `own_translation`."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, for example that a text was truncated or has characters without a token."""

    @property
    def input_tokens(self) -> list[str]:
        """Return the decoder's input tokens: for each target token the one before it, the begin token for the first."""
        return [special.SPELLINGS[special.BEGIN], *self.target_tokens[:-1]]


def read(
    bundle: Bundle,
    sentence: str,
    target: str | None = None,
    engine: TorchEngine | None = None,
    prefix: Sequence[int] = (),
) -> Reading:
    """Translate a sentence as `translate --engine torch` does, and return it and its translation in tokens.

    Args:
        target: a translation to return instead of the model's, which is then only in `Reading.own_translation`.
        engine: an engine of this model, if there is one: making one for a large model takes a while.
        prefix: tokens with which the translation must begin.
    """
    if not sentence.strip():
        raise SettingError("the sentence is empty: there is nothing to explain")
    if target is not None and not target.strip():
        raise SettingError("the given translation (target) is empty: leave it out, or give one")
    steps: list[search.SearchStep] = []
    engine = engine or TorchEngine(bundle.model)
    before = engine.watch

    def watch(step: search.SearchStep) -> Collection[int] | None:
        steps.append(step)
        return before(step) if before is not None else None

    engine.watch = watch
    try:
        result = translate(engine, bundle.tokenizers, bundle.settings, [sentence], prefixes=[prefix])[0]
    finally:
        engine.watch = before
    own = result.text  # an error where the search found nothing
    said, most = list(result.translations[0].tokens), bundle.settings.model.longest - 1
    notes = _unknown(bundle.tokenizers.source, sentence, "the sentence")
    if result.cut:
        notes.insert(0, f"the sentence is too long: only its first {len(result.source) - 1} tokens were read")
    if target is not None:
        said = bundle.tokenizers.target.encode([target.strip()])[0]
        notes += _unknown(bundle.tokenizers.target, target, "the given translation")
        if len(said) > most:
            notes.append(f"the given translation is too long: only its first {most} tokens count")
    said = said[:most]
    end = special.SPELLINGS[special.END]
    return Reading(
        sentence,
        bundle.tokenizers.target.decode(said),  # with a mark for what the model has no token for
        list(result.source),
        [*said, special.END],
        [*spans.labels(bundle.tokenizers.source, result.source[:-1]), end],
        [*spans.labels(bundle.tokenizers.target, said), end],
        own,
        steps,
        notes,
    )


def _unknown(tokenizer: Tokenizer, text: str, what: str) -> list[str]:
    """Return a note for the user about the characters of a text that have no token, in a list; empty if all have."""
    named = tokenizer.name_unknown(text)
    if not named:
        return []
    return [f"{what} has characters without a token in the model: {named}. The model can only guess there"]


def encode(bundle: Bundle, pairs: Sequence[Pair]) -> tuple[list[list[int]], list[list[int]]]:
    """Return both sides of pairs as ids with end tokens, truncated to the number of positions of the model."""
    most = bundle.settings.model.longest - 1
    sources = bundle.tokenizers.source.encode([pair.source.strip() for pair in pairs])
    targets = bundle.tokenizers.target.encode([pair.target.strip() for pair in pairs])
    return [[*ids[:most], special.END] for ids in sources], [[*ids[:most], special.END] for ids in targets]


def target_logs(bundle: Bundle, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    """Return the log-probability (nats) of each of N target tokens, sentence after sentence; ids include end tokens."""
    logs_NV = log_probabilities(bundle.model.output(decoded(bundle, sources, targets)))
    said_N, _ = _packed(targets, bundle)
    return logs_NV.gather(-1, said_N[:, None])[:, 0]


def decoded(bundle: Bundle, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    """Return ND: the decoder's output at the position that predicts each of N target tokens, sentence by sentence."""
    inputs = [[special.BEGIN, *target[:-1]] for target in targets]
    memory = bundle.model.encode(*_packed(sources, bundle))
    return bundle.model.decode(*_packed(inputs, bundle), memory)


@torch.inference_mode()
def attention_of(
    bundle: Bundle,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    places: Collection[Place] = tuple(ATTENTIONS),
) -> Iterator[tuple[int, dict[Place, Floats]]]:
    """Yield for each pair, the longest first, its index and its attention weights LHQM by kind of attention.

    There are L layers with H heads. Q rows attend to M columns: source tokens with the end token, or the decoder's
    inputs with the begin token, without padding. Kinds that the model does not have are left out.
    """
    places = [place for place in places if place in bundle.settings.model.attention]
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for batch in batches(lengths, AT_ONCE):
        with capture(bundle.model, lambda name: place_of(name) in places) as seen:
            decoded(bundle, [sources[index] for index in batch], [targets[index] for index in batch])
        layers = {place: [each for name, (each,) in seen.items() if place_of(name) == place] for place in places}
        for row, index in enumerate(batch):
            S, T = len(sources[index]), len(targets[index])
            sizes: dict[Place, tuple[int, int]] = {"encoder": (S, S), "decoder": (T, T), "cross": (T, S)}
            weights: dict[Place, Floats] = {}
            for place, found in layers.items():
                Q, M = sizes[place]
                weights[place] = torch.stack([each[row, :, :Q, :M] for each in found]).float().numpy()
            yield index, weights


def place_of(name: str) -> Place | None:
    """Return the kind of attention of a name: `decoder.0.cross_attention.weights` -> `cross`; None for other names."""
    stack, _, rest = name.partition(".")
    names = {(stack, f"{module}.weights"): place for place, (stack, module) in ATTENTIONS.items()}
    return names.get((stack, rest.partition(".")[2]))


def _packed(sequences: Sequence[Sequence[int]], bundle: Bundle) -> tuple[Tensor, Tensor]:
    """Return tokens end to end, on the device of the model, and the B + 1 offsets of the sequences, on the CPU."""
    device = next(bundle.model.parameters()).device
    tokens_N = torch.tensor([token for sequence in sequences for token in sequence], device=device)
    return tokens_N, torch.tensor([0, *map(len, sequences)]).cumsum(0)


def log_probabilities(logits_NV: Tensor) -> Tensor:
    """Return log-probabilities (nats) for logits, as in a search: -inf for tokens that no output may contain."""
    scores_NV = logits_NV.float().clone()
    scores_NV[:, search.NEVER] = -math.inf
    return scores_NV.log_softmax(-1)
