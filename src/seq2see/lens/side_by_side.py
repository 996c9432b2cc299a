"""Two models on one sentence: both translations, their probabilities under both models, and where they first differ."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from seq2see.bundle import Bundle
from seq2see.lens.answers import Look
from seq2see.lens.reading import Answer, encode, target_logs
from seq2see.text.pair import Pair
from seq2see.tokens.spans import Span


class FirstDifference(NamedTuple):
    """The position of the first difference between two translations, in characters and in tokens."""

    character: int
    """Index of the first character at which the two translations differ; if that is a combining mark in one of them, of
    the letter before it. If one translation is the beginning of the other, the length of the shorter one.
    """
    tokens: tuple[int, int]
    """Index, in the tokens of each translation, of the token that has `character`, or of the end token if the
    translation ends before it; the models may have different tokenizers.
    """


@dataclass(frozen=True, repr=False)
class SideBySide(Answer):
    """One sentence and two models; item 0 of a field belongs to the first model and item 1 to the second."""

    runs: tuple[str, str]
    """Names of the runs."""
    looks: tuple[Look, Look]
    log_probability: list[list[float | None]]
    """Row i, column j: the log-probability that model i gives to the translation of model j, in nats; None if model i
    has no token for a character of that translation, or if the log-probability is not finite.
    """
    difference: FirstDifference | None
    """Where the translations first differ; None if they are equal."""

    @property
    def translations(self) -> tuple[str, str]:
        return self.looks[0].translation, self.looks[1].translation

    def _repr_html_(self) -> str | None:
        """Return the page that `seq2see look --beside` writes; None if no `Run` made this object in a notebook."""
        page = vars(self).get("page")
        return page() if page else None

    def __repr__(self) -> str:
        said = ", ".join(f"{run}: {text!r}" for run, text in zip(self.runs, self.translations, strict=True))
        return f"SideBySide({self.looks[0].source!r} -> {said}, {self.difference})"


def compare(runs: tuple[str, str], bundles: tuple[Bundle, Bundle], looks: tuple[Look, Look]) -> SideBySide:
    """Compare what two models compute for one sentence; each model also scores the translation of the other."""
    chances = [
        [_log_probability(bundle, own, each) for each in looks] for bundle, own in zip(bundles, looks, strict=True)
    ]
    return SideBySide(runs, looks, chances, first_difference(*looks))


@torch.inference_mode()
def _log_probability(bundle: Bundle, own: Look, said: Look) -> float | None:
    """Return the log-probability that a model, whose look is `own`, gives to the translation of the look `said`.

    Return None if the model has no token for a character of it, or if the log-probability is not finite.
    """
    if own is said or own.target_tokens == said.target_tokens:
        # As it was searched: the same text may have other tokens, too.
        total = sum(math.log(max(float(each), 1e-45)) for each in own.confidence.probability)
    elif bundle.tokenizers.target.unknown(said.translation):
        return None
    else:
        (source,), (target,) = encode(bundle, [Pair(own.source, said.translation, "")])
        kept = [*source[: len(own.source_tokens) - 1], source[-1]]  # no more than the search has read
        total = float(target_logs(bundle, [kept], [target]).double().sum())
    return total if math.isfinite(total) else None


def first_difference(first: Look, second: Look) -> FirstDifference | None:
    """Return where two translations first differ; None if they are equal."""
    texts = first.translation, second.translation
    if texts[0] == texts[1]:
        return None
    letters = enumerate(zip(*texts, strict=False))
    at = next((place for place, (one, other) in letters if one != other), min(map(len, texts)))
    while at and any(unicodedata.combining(text[at : at + 1] or " ") for text in texts):
        at -= 1  # a letter and its accents stay together
    return FirstDifference(at, (_token_at(first.target_spans, at), _token_at(second.target_spans, at)))


def _token_at(spans: Sequence[Span], character: int) -> int:
    """Return the index of the first token that ends after a character; that of the end token if there is none."""
    return next((index for index, (_, end) in enumerate(spans) if end > character), len(spans) - 1)


def links(first: Look, second: Look) -> dict[str, list[tuple[int, int]]]:
    """Return pairs (index in the first look, index in the second) of tokens that share characters: under `source` those
    of the sources, under `target` those of the translations up to their first difference.

    End tokens are paired, too; those of the translations only if the translations are equal.
    """
    shift = len(second.source) - len(first.source)  # a language tag in front of one of them
    sources = [(start + shift, end + shift) for start, end in first.source_spans]
    found = first_difference(first, second)
    same = len(first.translation) if found is None else found.character
    ends = len(first.source_spans) - 1, len(second.source_spans) - 1
    targets = [
        (one, other) for one, other in _touching(first.target_spans, second.target_spans)
        if max(first.target_spans[one][1], second.target_spans[other][1]) <= same
    ]  # fmt: skip
    if found is None:
        targets.append((len(first.target_spans) - 1, len(second.target_spans) - 1))
    return {"source": [*_touching(sources, second.source_spans), ends], "target": targets}


def _touching(first: Sequence[Span], second: Sequence[Span]) -> list[tuple[int, int]]:
    """Return pairs of indices of spans that share a character."""
    return [
        (one, other)
        for one, (start, end) in enumerate(first)
        for other, (begin, last) in enumerate(second)
        if max(start, begin) < min(end, last)
    ]
