"""The tokenizers that a corpus suggests: the kind of each side, vocabulary sizes, and whether the sides share one.

A survey goes in; settings of `data`, reasons and the candidates for trials come out (`choose`).
"""

import math
import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from seq2see import patterns, special
from seq2see.config import TagPlace
from seq2see.doctor import characters
from seq2see.session.choices import counted
from seq2see.session.survey import Side, Survey
from seq2see.text.tags import tag_words, where_tags_are


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
    dice = random.Random(0)
    lines = corpus.sample if len(corpus.sample) <= LINES else dice.sample(corpus.sample, LINES)
    source = _text_of(corpus.source, corpus.pairs, [pair.source for pair in lines], dice)
    target = _text_of(corpus.target, corpus.pairs, [pair.target for pair in lines], dice)
    common = _common(source.lines, target.lines)
    (first, *_), (also_first, *_) = source.kinds, target.kinds
    pairs_of_kinds = [(first, also_first)]
    for kind in source.kinds[1:]:
        together = source.kinds == target.kinds  # the same text on both sides is cut alike
        pairs_of_kinds.append((kind, kind if together else also_first))
    pairs_of_kinds += [(first, kind) for kind in target.kinds[1:] if source.kinds != target.kinds]
    found = [_settings((source, target), kinds, common) for kinds in pairs_of_kinds]
    reasons = _reasons((source, target), (first, also_first), found[0]["shared"], common)
    lengths = _lengths(corpus.pairs, (source.side, first), (target.side, also_first))
    return TokenChoice(found[0], reasons, lengths, tuple(found))


LINES = 20_000
"""Pairs of the sample that are looked at, taken at random from the whole corpus."""
SENTENCE, WORD = 10, 2
"""Minimum number of letters of a sentence, and mean number of letters of a word, in scripts without spaces."""
PHRASE = 2
"""Mean number of words below which texts are words, cut into characters, and not sentences, cut into subwords."""
SAME_LANGUAGE = 0.05
"""Share of text in common, by pairs of characters, above which two sides of sentences share a vocabulary. English has
0.49 in common with German, 0.55 with French, 0.10 with the Korean of software, which keeps names in English, and 0.00
with Japanese."""


@dataclass(frozen=True)
class _Text:
    """One side of a corpus without its tags: how much there is of it, some lines, and what tokens suit it."""

    side: Side
    lines: list[str]
    kinds: tuple[str, ...]
    """The tokenizers that suit it, the preferred first."""
    where: TagPlace
    tags: int
    """Tokens that tags take."""


def _text_of(side: Side, pairs: int, lines: list[str], dice: random.Random) -> _Text:
    """Examine one side, given random lines of it."""
    where: TagPlace = where_tags_are(lines) if side.words > 1.9 * pairs else "none"
    count = 0
    if where != "none":
        tags = tag_words(lines, where)
        count = len(tags.front | tags.back)
        lines = [tags.split(line)[1] for line in lines]
        side = Side.of(lines).times(pairs / len(lines))
    few = lines if len(lines) <= 1000 else dice.sample(lines, 1000)
    side = _with_words(side, pairs, few)
    return _Text(side, lines, _kinds(side, pairs, lines, few), where, count)


def _with_words(side: Side, pairs: int, lines: Sequence[str]) -> Side:
    """Return the same side, with an estimate of the number of words where they are written without spaces."""
    letters = sum(not unicodedata.combining(sign) for line in lines for sign in line)
    if letters < SENTENCE * len(lines) or not characters.are_unspaced(list(lines)):
        return side
    return replace(side, words=max(side.words, side.characters // WORD), unspaced=True)


def _kinds(side: Side, pairs: int, lines: Sequence[str], few: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of tokenizer that suit a side, the preferred first."""
    if side.unspaced:
        return "unigram", "characters"
    if side.words >= PHRASE * pairs and _are_symbols(side, lines):
        return ("symbols",)
    if _are_molecules(few):
        return "pattern", "characters"
    if side.words >= PHRASE * pairs:
        return ("unigram", "characters") if side.words < 2 * PHRASE * pairs else ("unigram",)
    if _are_korean(few):
        return "jamo", "characters"
    return ("characters",) if side.words <= 1.05 * pairs else ("characters", "unigram")


def _are_symbols(side: Side, lines: Sequence[str]) -> bool:
    """Return whether words are a closed set, of which nearly every member occurs often.

    The number of words that occur once estimates how much of a new text would be unknown (Good and Turing).
    """
    if len(side.lexicon) >= Side.MOST_WORDS or side.words < 20 * len(side.lexicon):
        return False
    counts = Counter(word for line in lines for word in line.split())
    return sum(count == 1 for count in counts.values()) <= 0.005 * counts.total()


def _are_molecules(lines: Sequence[str]) -> bool:
    """Return whether nearly all lines are SMILES, and two thirds of them contain more than letters."""
    if 3 * sum(not line.isalpha() for line in lines) < 2 * len(lines):
        return False
    return sum(bool(line.strip()) and all(map(patterns.is_smiles, line.split())) for line in lines) >= 0.9 * len(lines)


def _are_korean(lines: Sequence[str]) -> bool:
    letters = [letter for line in lines for letter in line if letter.isalpha()]
    return 2 * sum("가" <= letter <= "힣" for letter in letters) > len(letters)


def _settings(texts: tuple[_Text, _Text], kinds: tuple[str, str], common: float) -> dict[str, Any]:
    """Return the settings of tokenizers of these kinds."""
    each = _words_for_each(kinds)
    shared = kinds[0] == kinds[1] and common > SAME_LANGUAGE and kinds[0] == "unigram"
    sizes = [_vocabulary(text.side, kind, each) + text.tags for text, kind in zip(texts, kinds, strict=True)]
    if shared:
        sizes = [max(sizes)] * 2
    return {
        "source_tokenizer": kinds[0],
        "target_tokenizer": kinds[1],
        "source_pattern": "smiles" if kinds[0] == "pattern" else "",
        "target_pattern": "smiles" if kinds[1] == "pattern" else "",
        "source_tags": texts[0].where,
        "target_tags": texts[1].where,
        "source_vocabulary": sizes[0],
        "target_vocabulary": sizes[1],
        "shared": shared,
    }


def _words_for_each(kinds: tuple[str, str]) -> int:
    """Return how many words of text there should be for each subword."""
    return 50 if kinds == ("unigram", "unigram") else 100


def _vocabulary(side: Side, kind: str, words_for_each: int) -> int:
    """Return about one subword for each 50 or 100 words of text, in powers of two from 1,000 to 32,000.

    At least two for each letter of the alphabet, beside the 256 bytes: else letters of large alphabets fall to bytes.
    Of the largest alphabets some may; but not where letters are all there is.
    """
    size = next((size for size in (1000, 2000, 4000, 8000, 16_000) if side.words / words_for_each <= size), 32_000)
    letters = len(side.alphabet) if kind == "characters" else min(len(side.alphabet), 2000)
    return max(size, math.ceil((special.COUNT + 256 + 2 * letters) / 100) * 100)


def _common(sources: Sequence[str], targets: Sequence[str]) -> float:
    """Return how much text two sides share: the intersection of the frequencies of their pairs of characters."""
    one, other = _frequencies(sources), _frequencies(targets)
    return sum(min(share, other[each]) for each, share in one.items() if each in other)


def _frequencies(lines: Sequence[str]) -> dict[str, float]:
    words = Counter(word for line in lines for word in line.split())
    counts = Counter[str]()
    for word, times in words.items():
        for pair in map("".join, pairwise(f" {word} ")):
            counts[pair] += times
    total = counts.total()
    return {pair: count / total for pair, count in counts.items()}


def _reasons(texts: tuple[_Text, _Text], kinds: tuple[str, str], shared: bool, common: float) -> dict[str, str]:
    """Return the reasons for the tokenizers of both sides."""
    each = _words_for_each(kinds)
    source, target = (text.side for text in texts)
    larger = (
        target if shared and _vocabulary(target, "unigram", each) > _vocabulary(source, "unigram", each) else source
    )
    found = {
        "source": _why_tokens(kinds[0], larger, each),
        "target": f"the sides share {100 * common:.0f} % of their text"
        if shared
        else _why_tokens(kinds[1], target, each),
    }
    for name, text in zip(("source", "target"), texts, strict=True):
        if text.where != "none":
            found[name] += f"; {text.tags:,} for tags"
    return found


def _lengths(pairs: int, *sides: tuple[Side, str]) -> str:
    """Return the mean lengths of the two sides in their own units: `13 + 12 words`, `7 characters + 6 symbols`."""
    sizes, units = [], []
    for side, kind in sides:
        by_letter = kind in ("characters", "jamo", "pattern") or side.unspaced
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
        case "jamo":
            return "words in Korean"
        case "characters":
            text = "words and phrases" if " " in side.alphabet else "no spaces in the text"
            return f"{text}, {counted(len(side.alphabet), 'character')}"
    size = _vocabulary(side, kind, words_for_each)
    if size % 1000:  # the alphabet asked for more
        return f"{len(side.alphabet):,} distinct characters need this many"
    words = f"{'about ' * side.unspaced}{counted(side.words, 'word')}"
    if size > 2 * side.words / words_for_each:
        return f"the minimum, for {words}"
    return f"one per {words_for_each} words, for {words}"
