"""The tokenizers that a corpus suggests: the kind of each side, vocabulary sizes, and whether the sides share one.

A survey goes in; settings of `data`, reasons and the candidates for trials come out (`choose`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from seq2see import patterns, special
from seq2see.doctor import characters
from seq2see.session.choices import counted
from seq2see.session.survey import Side, Survey


@dataclass(frozen=True)
class TokenChoice:
    """The tokenizers for a corpus, and the reasons for them."""

    settings: dict[str, Any]
    """An overlay for the section `data`."""
    reasons: dict[str, str]
    """Short reasons by the rows `source` and `target` of `choices.ROWS`."""
    lengths: str
    """The mean lengths of the two sides in their own units, such as `7 characters + 6 symbols`."""
    candidates: tuple[dict[str, Any], ...]
    """Overlays for the section `data` that trials may compare, the preferred first, which equals `settings`."""

    @property
    def language(self) -> bool:
        """Whether both sides are sentences of a language, in subwords."""
        return {self.settings["source_tokenizer"], self.settings["target_tokenizer"]} == {"unigram"}

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return bool(self.settings["shared"])


def choose(corpus: Survey) -> TokenChoice:
    """Return the tokenizers for a corpus that was surveyed."""
    pairs = corpus.pairs
    sources, targets = zip(*((pair.source, pair.target) for pair in corpus.sample[:1000]), strict=True)
    source, target = _with_words(corpus.source, pairs, sources), _with_words(corpus.target, pairs, targets)
    source_kind, target_kind = _kind(source, pairs, sources), _kind(target, pairs, targets)
    language = source_kind == target_kind == "unigram"
    shared = language and _overlap(source.alphabet, target.alphabet) > 0.5
    words_for_each = 50 if language else 100
    sizes = _vocabulary(source, source_kind, words_for_each), _vocabulary(target, target_kind, words_for_each)
    larger = target if shared and sizes[1] > sizes[0] else source
    settings = {
        "source_tokenizer": source_kind,
        "target_tokenizer": target_kind,
        "source_pattern": "smiles" if source_kind == "pattern" else "",
        "target_pattern": "smiles" if target_kind == "pattern" else "",
        "source_vocabulary": max(sizes) if shared else sizes[0],
        "target_vocabulary": max(sizes) if shared else sizes[1],
        "shared": shared,
    }
    reasons = {
        "source": _why_tokens(source_kind, larger, words_for_each),
        "target": "both sides share most characters" if shared else _why_tokens(target_kind, target, words_for_each),
    }
    lengths = _lengths(pairs, (source, source_kind), (target, target_kind))
    return TokenChoice(settings, reasons, lengths, (settings,))


SENTENCE, WORD = 10, 2
"""Minimum number of letters of a sentence, and mean number of letters of a word, in scripts without spaces."""


def _with_words(side: Side, pairs: int, sample: Sequence[str]) -> Side:
    """Return the same side, with an estimate of the number of words where they are written without spaces."""
    if side.characters < SENTENCE * pairs or not characters.are_unspaced(list(sample)):
        return side
    return replace(side, words=max(side.words, side.characters // WORD), unspaced=True)


def _kind(side: Side, pairs: int, sample: Sequence[str]) -> str:
    """Return the tokenizer kind: symbols, a pattern for molecules, characters where there are no spaces, subwords."""
    if side.unspaced:
        return "unigram"
    if len(side.lexicon) <= 256 and side.words >= 2 * pairs and side.words >= 20 * len(side.lexicon):
        return "symbols"
    if side.words <= 1.05 * pairs:
        return "pattern" if _are_molecules(sample) else "characters"
    return "unigram"


def _are_molecules(lines: Sequence[str]) -> bool:
    """Return whether nearly all lines are SMILES, and two thirds of them contain more than letters."""
    more = sum(not line.isalpha() for line in lines)
    return 3 * more >= 2 * len(lines) and sum(map(patterns.is_smiles, lines)) >= 0.98 * len(lines)


def _vocabulary(side: Side, kind: str, words_for_each: int) -> int:
    """Return about one subword for each 50 or 100 words of text, in powers of two from 1,000 to 32,000.

    At least two for each letter of the alphabet, beside the 256 bytes: else letters of large alphabets fall to bytes.
    Of the largest alphabets some may; but not where letters are all there is.
    """
    size = next((size for size in (1000, 2000, 4000, 8000, 16_000) if side.words / words_for_each <= size), 32_000)
    letters = len(side.alphabet) if kind == "characters" else min(len(side.alphabet), 2000)
    return max(size, math.ceil((special.COUNT + 256 + 2 * letters) / 100) * 100)


def _overlap(one: set[str], other: set[str]) -> float:
    """Return the number of shared characters relative to the smaller alphabet."""
    return len(one & other) / max(1, min(len(one), len(other)))


def _lengths(pairs: int, *sides: tuple[Side, str]) -> str:
    """Return the mean lengths of the two sides in their own units: `13 + 12 words`, `7 characters + 6 symbols`."""
    sizes, units = [], []
    for side, kind in sides:
        by_letter = kind in ("characters", "pattern") or side.unspaced
        sizes.append(f"{round((side.characters if by_letter else side.words) / pairs):,}")
        units.append("characters" if by_letter else "symbols" if kind == "symbols" else "words")
    if units[0] == units[1]:
        return f"{sizes[0]} + {sizes[1]} {units[0]}"
    return f"{sizes[0]} {units[0]} + {sizes[1]} {units[1]}"


def _why_tokens(kind: str, side: Side, words_for_each: int) -> str:
    match kind:
        case "symbols":
            return f"only {counted(len(side.lexicon), 'distinct word')}"
        case "pattern":
            return "the text is molecules in SMILES notation"
        case "characters":
            return f"no spaces in the text, {counted(len(side.alphabet), 'character')}"
    size = _vocabulary(side, kind, words_for_each)
    if size % 1000:  # the alphabet asked for more
        return f"{len(side.alphabet):,} distinct characters need this many"
    words = f"{'about ' * side.unspaced}{counted(side.words, 'word')}"
    if size > 2 * side.words / words_for_each:
        return f"the minimum, for {words}"
    return f"one per {words_for_each} words, for {words}"
