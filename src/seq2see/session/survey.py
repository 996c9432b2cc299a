"""Survey a corpus: one streaming pass counts its pairs, words and characters, and keeps a random sample of pairs.

The sample shows the kind of text of each side (`Survey.texts`), by which tokenizers are suggested, and which texts are
too frequent to be held out for validation (`held_out`). Blocks of consecutive pairs are kept, too, in which the package
`doctor` finds likely problems (`problems`).
"""

import random
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

from seq2see import machine, patterns
from seq2see.config import TagPlace
from seq2see.doctor import characters
from seq2see.errors import DataError, RunError, SettingError
from seq2see.text.corpora import Corpus, Parts
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import in_blocks
from seq2see.text.tags import FEWEST_WORDS, NO_TAGS, noting_languages, tag_words, where_tags_are
from seq2see.tokens import marks

SAMPLE = 200_000
"""Maximum number of pairs in the random sample from which tokenizers are trained; more pairs hardly change them and
take minutes.
"""
SAMPLE_CHARACTERS = 1 << 28
"""Maximum number of characters in the random sample, so that it fits in memory; above it, the sample has fewer
pairs.
"""
LONGEST_WORD = 100
"""Number of leading characters by which words are distinguished when distinct words are counted."""
BLOCK = 2048
"""Maximum number of consecutive pairs that a worker process surveys at a time."""
LINES = 20_000
"""Maximum number of pairs, drawn at random from the sample, from which the kinds of tokenizers are chosen."""
STRETCHES = 64
"""Maximum number of blocks of `BLOCK` consecutive pairs, evenly spread over the corpus, that are kept to be checked for
problems (`problems`).
"""


@dataclass
class Side:
    """One side of a corpus: its numbers of characters and words, its distinct characters, and some distinct words."""

    characters: int = 0
    words: int = 0
    alphabet: set[str] = field(default_factory=set)
    lexicon: set[str] = field(default_factory=set)
    """Distinct words; collecting them ends when there are `MOST_WORDS` or more. A side with so many is natural
    language, and their exact number does not matter.
    """
    unspaced: bool = False
    """Whether the script has no spaces between words; the number of words is then an estimate."""

    MOST_WORDS = 1000

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Side":
        """Return a side with the counts of characters and words in `texts`."""
        side = cls()
        for text in texts:
            side.add(text)
        return side

    def times(self, factor: float) -> "Side":
        """Return the side with its numbers of characters and words times a factor, as an estimate from a sample."""
        return replace(self, characters=round(self.characters * factor), words=round(self.words * factor))

    def add(self, text: str) -> None:
        self.characters += len(text)
        self.alphabet.update(text)
        words = text.split()
        self.words += len(words)
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon.update(word[:LONGEST_WORD] for word in words)

    def join(self, other: "Side") -> None:
        """Add the counts of other texts to this side."""
        self.characters += other.characters
        self.words += other.words
        self.alphabet |= other.alphabet
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon |= other.lexicon


@dataclass
class Survey:
    """The result of one streaming pass over the training pairs: counts, a random sample, and blocks of pairs."""

    pairs: int = 0
    left_out: int = 0
    """Estimated number of pairs of the corpus that are not part of this survey, because they are too long."""
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)
    sample: list[Pair] = field(default_factory=list)
    room: int = field(default_factory=lambda: SAMPLE)
    """Maximum number of pairs in the sample; it is lowered if the sample exceeds `SAMPLE_CHARACTERS`."""
    sampled: int = 0
    """Number of characters in the sample, both sides together."""
    languages: set[str] = field(default_factory=set)
    """Target languages of the pairs; empty unless the corpus is trained with language tags."""
    stretches: list[tuple[int, list[Pair]]] = field(default_factory=list)
    """Blocks of consecutive pairs, evenly spread over the corpus, each with the number of pairs before it in the
    corpus.
    """
    every: int = 1
    """One in this many blocks is kept in `stretches`; the number doubles whenever there are more than `STRETCHES`."""

    def keep(self, number: int, block: list[Pair]) -> None:
        """Add block `number` of the corpus to `stretches` if `number` is a multiple of `every`, for an even spread."""
        if number % self.every == 0:
            self.stretches.append((self.pairs, block))
        if len(self.stretches) > STRETCHES:
            self.stretches = self.stretches[::2]
            self.every *= 2

    def count(self, pair: Pair, dice: random.Random) -> None:
        """Count a pair, and put it into the sample with the same probability as any other (reservoir sampling)."""
        self.pairs += 1
        if len(self.sample) < self.room:
            self.sample.append(pair)
        elif (place := dice.randrange(self.pairs)) < self.room:
            self.sampled -= _length(self.sample[place])
            self.sample[place] = pair
        else:
            return
        self.sampled += _length(pair)
        while self.sampled > SAMPLE_CHARACTERS and len(self.sample) > 1:
            self.room = (len(self.sample) + 1) // 2
            self.sample = dice.sample(self.sample, self.room)  # not every second, which may all be of one kind
            self.sampled = sum(map(_length, self.sample))

    @property
    def longest_text(self) -> int:
        """Return the number of UTF-8 bytes of the longest source or target in the sample."""
        return max((len(side.encode()) for pair in self.sample for side in (pair.source, pair.target)), default=0)

    def texts(self) -> tuple["Text", "Text"]:
        """Return a description of source and of target, made from up to `LINES` random pairs of the sample.

        Of equal pairs only one counts, because repetition adds no evidence.
        """
        dice = random.Random(0)
        some = self.sample if len(self.sample) <= LINES else dice.sample(self.sample, LINES)
        pairs = list(dict.fromkeys((pair.source, pair.target) for pair in some))
        source = _text_of(self.source, self.pairs, [source for source, _ in pairs], dice)
        return source, _text_of(self.target, self.pairs, [target for _, target in pairs], dice, is_target=True)

    def only(self, kept: list[Pair]) -> "Survey":
        """Return an estimated survey of the part of the corpus that `kept`, a part of the sample, stands for.

        Its counts are those of `kept`, scaled up by the size of the corpus relative to the sample.
        """
        pairs = round(self.pairs * len(kept) / len(self.sample))
        found = Survey(pairs, self.left_out + self.pairs - pairs, sample=kept)
        found.source = Side.of(pair.source for pair in kept).times(pairs / len(kept))
        found.target = Side.of(pair.target for pair in kept).times(pairs / len(kept))
        return found


def _length(pair: Pair) -> int:
    return len(pair.source) + len(pair.target)


def survey_corpus(pairs: Iterable[Pair], with_languages: bool = False) -> Survey:
    """Read every pair once and return the survey, computed on all cores; memory does not grow with the number of pairs.

    Args:
        with_languages: Whether to collect the target languages; a pair without one is then an error.
    """
    found = Survey()
    dice = random.Random(0)

    def blocks() -> Iterator[list[str]]:
        noted = noting_languages(pairs, found.languages) if with_languages else pairs
        for number, block in enumerate(in_blocks(noted, BLOCK)):
            found.keep(number, block)
            for pair in block:
                found.count(pair, dice)
            yield [text for pair in block for text in (pair.source, pair.target)]

    for source, target in machine.parallel_map(_Looking, (), blocks(), seconds=machine.SOON):
        found.source.join(source)
        found.target.join(target)
    return found


class _Looking:
    """Callable for worker processes that counts a block of texts (source, target, source, ...)."""

    def __call__(self, texts: list[str]) -> tuple[Side, Side]:
        return Side.of(texts[::2]), Side.of(texts[1::2])


def problems(
    stretches: list[tuple[int, list[Pair]]], every: int, valid_pairs: list[Pair], languages: Sides
) -> list[str]:
    """Return lines about likely problems of the corpus, given `stretches` and `every` of its survey.

    Args:
        valid_pairs: Validation pairs that were not held out from the corpus; empty if there are none.
    """
    from seq2see.doctor.examination import Examination, short

    seen, held = Examination(every), Examination()
    for start, stretch in stretches:
        seen.skip_to(start)
        for pair in stretch:
            seen.add(pair.source, pair.target)
    for pair in valid_pairs:
        held.add(pair.source, pair.target)
    return short(seen.diagnose(held if valid_pairs else None, languages))


def examine(corpus: Corpus, survey: Survey, given: Iterable[Pair] | None, found: Callable[[], list[str]]) -> list[str]:
    """Return what the user is told about likely problems of the corpus. No pair is left out because of them.

    The sample and the blocks of pairs are removed from `survey`, to free their memory.

    Args:
        given: The validation pairs as they were opened. If that was from files, the advice names the first file.
        found: Function that returns the result of `problems`.
    """
    looked_at = sum(len(stretch) for _, stretch in survey.stretches)
    try:
        lines = found()
    except RunError as problem:  # its process was killed, for example; that is no reason to end a training
        return [f"the corpus could not be examined: {problem}"]
    finally:
        # Nothing else needs these pairs, and the survey would keep them in memory until the end of the training.
        # `found` has the same list of blocks, so that it is emptied.
        survey.stretches.clear()
        survey.sample = []
    if not lines:
        return []
    if looked_at < survey.pairs:
        lines.insert(
            0, f"examined {looked_at:,} of {survey.pairs:,} pairs; duplicates among the others are not counted"
        )
    against = given.files if isinstance(given, Parts) else []
    words = [*corpus.words, *(["--against", against[0]] if against else [])]
    return [*lines, f"for details, run: seq2see doctor {shlex.join(words)}"]


# What a text is made of, and the kinds of tokenizer that suit it.

SENTENCE, WORD = 10, 2
"""In scripts without spaces: minimum mean number of characters per text for a side to be taken for sentences, and the
number of characters that are counted as one word.
"""
PHRASE = 2
"""Mean number of words per text from which a side is taken for sentences; with fewer, it is taken for single words, for
which a tokenizer of characters or of Korean letters is preferred.
"""


MARKED = 0.02
"""Minimum mean number of marks for each phoneme of the targets, such as the signs of tone and length, for which they
are split off (`tokens.marks`). It is 0.07 to 0.33 for languages that write such marks, and 0.003 for English.
"""


@dataclass(frozen=True)
class Text:
    """Description of the texts of one side without their tags: counts, random lines, and suitable tokenizers."""

    side: Side
    lines: list[str]
    kinds: tuple[str, ...]
    """Kinds of tokenizers that suit the side, the preferred one first."""
    closed: bool
    """Whether the words are a small closed set, whatever the spaces between them."""
    where: TagPlace
    """Where the texts of the side have tags, such as `<RX_1>`: at the beginning, the end, both, or nowhere."""
    tags: int
    """Number of tokens that the vocabulary needs for the tags in the texts; see `where`."""
    seen: Counter[str]
    """The tags at the beginning or end of texts, and how often they occur."""


def _text_of(side: Side, pairs: int, lines: list[str], dice: random.Random, is_target: bool = False) -> Text:
    """Return the description of one side, given its counts, the number of pairs of the corpus, and random lines."""
    where: TagPlace = where_tags_are(lines) if side.words > FEWEST_WORDS * pairs else "none"
    tags, seen = NO_TAGS, Counter[str]()
    if where != "none":
        tags = tag_words(lines, where)
        parts = [tags.split(line) for line in lines]
        seen.update("".join(found).strip() for front, _, back in parts for found in (front, back) if found)
        lines = [text for _, text, _ in parts]
        side = Side.of(lines).times(pairs / len(lines))
    few = lines if len(lines) <= 1000 else dice.sample(lines, 1000)
    side = _with_words(side, pairs, few)
    kinds = _kinds(side, pairs, lines, few)
    closed = kinds == ("symbols",)
    if is_target and closed:
        if _are_spaced_otherwise(few):
            kinds = "unigram", "characters"
        elif marks.per_phoneme(lines) >= MARKED:
            kinds = ("marks",)
    return Text(side, lines, kinds, closed, where, len(tags.front | tags.back), seen)


def _with_words(side: Side, pairs: int, lines: Sequence[str]) -> Side:
    """Return the side with an estimated number of words if it has sentences written without spaces, else unchanged."""
    letters = sum(not unicodedata.combining(sign) for line in lines for sign in line)
    if letters < SENTENCE * len(lines) or not characters.are_unspaced(list(lines)):
        return side
    return replace(side, words=max(side.words, side.characters // WORD), unspaced=True)


def _kinds(side: Side, pairs: int, lines: Sequence[str], few: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of tokenizers that suit a side, the preferred one first."""
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
    """Return whether the words are a small closed set, most of which occur often.

    The share of words that occur once estimates the share of unknown words in new text (Good-Turing).
    """
    if len(side.lexicon) >= Side.MOST_WORDS:
        return False
    counts = Counter(word for line in lines for word in line.split())
    total = counts.total()
    return total >= 20 * len(side.lexicon) and sum(count == 1 for count in counts.values()) <= 0.005 * total


def _are_spaced_otherwise(lines: Sequence[str]) -> bool:
    """Return whether more than one line in ten has other spaces than single blanks, which symbols cannot write."""
    return 10 * sum(line != " ".join(line.split()) for line in lines) > len(lines)


def _are_molecules(lines: Sequence[str]) -> bool:
    """Return whether 90 % of the lines are molecules in SMILES, and two thirds of the lines are not just letters."""
    if 3 * sum(not line.isalpha() for line in lines) < 2 * len(lines):
        return False
    return sum(bool(line.strip()) and all(map(patterns.is_smiles, line.split())) for line in lines) >= 0.9 * len(lines)


def _are_korean(lines: Sequence[str]) -> bool:
    letters = [letter for line in lines for letter in line if letter.isalpha()]
    return 2 * sum("가" <= letter <= "힣" for letter in letters) > len(letters)


def in_common(sources: Sequence[str], targets: Sequence[str]) -> float:
    """Return the share of text that two sides have in common, from 0 to 1: the overlap of their relative frequencies of
    character bigrams.
    """
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


# Which pairs are held out for validation. A hash of one text of each pair decides, so that the choice is the same in
# every pass over the corpus, on every machine and for every seed, and pairs with the same source stay together.


FEW = 20
"""Minimum number of pairs for some to be held out unless the user asks; with fewer, validation uses training pairs."""

HASHES: Final[Mapping[str, Callable[[bytes], float]]] = {
    "blake2b": lambda text: int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / 2**64,
    "crc32": lambda text: crc32(text) / 2**32,
}
"""Hash functions, by name, from a text to a pseudo-random number from 0 to 1. Texts with low numbers are held out for
validation. CRC32 is linear, so that the numbers of similar texts are related: for a share of 10 %, it chooses 124 of
the texts 000 to 999 instead of 100, none of which ends in 3 or 7. It is used only for fine-tuning a run of seq2see
0.1.0, which used it: no pair that its model has learned is then in a new validation set of the same share or less.
"""
HASH: Final = "blake2b"
"""Name of the hash in `HASHES` that new runs use. The manifest records it as `held_out_by`; runs without that entry
used CRC32.
"""


def to_hold_out(valid: str | Path | float | None) -> float | None:
    """Return the number of pairs to hold out, or their share if it is below 1, as the option `--valid` says.

    Return None if `valid` is None or names a file or corpus, as `./500` does.

    >>> to_hold_out("2%")
    0.02
    """
    words = re.fullmatch(r"([0-9]+|[0-9]*\.[0-9]+)(%?)", "" if valid is None else str(valid))
    if words is None:
        return None
    number = float(words[1]) / (100 if words[2] else 1)
    whole = not words[2] and words[1].isdecimal()
    if not (number >= 1 if whole else 0 < number < 1):
        raise SettingError(f"--valid {valid}: expected a number of pairs (500), or a share (0.02 or 2%)")
    return number


def as_count(hold_out: float, pairs: int) -> int:
    """Return the number of pairs to hold out: `hold_out` itself, or that share of the pairs if it is below 1.

    More than half of the pairs are an error.
    """
    if (count := hold_out if hold_out >= 1 else max(1, round(hold_out * pairs))) > pairs / 2:
        raise DataError(f"--valid {hold_out:g}: at most half of the {pairs:,} pairs can be held out")
    return int(count)


Decides = Callable[[Pair], bool]
Key = Callable[[Pair], str]


def by_source(pair: Pair) -> str:
    """Return the source, as the text whose hash decides whether a pair is held out for validation.

    No source is then in both the training and the validation set.
    """
    return pair.source


def by_either(parts: Sequence[Sides]) -> Key:
    """Return a function from a pair to the text whose hash decides whether it is held out, for runs with language tags.

    `m.en,m.de` beside `m.de,m.en` has every pair twice, in both directions: what is validated on in one direction must
    not be learned in the other. So if any language is on both sides, the text is the same for both directions: that in
    the language that all files have or, if there is none, the first of the two in code point order. Otherwise it is
    the source.

    Args:
        parts: The languages of source and target of each file.
    """
    if not {part.source for part in parts} & {part.target for part in parts} - {None}:
        return by_source
    # One language in all files, as English in en-de, de-en, en-fr and fr-en: its text holds all translations together.
    if hubs := set[str | None].intersection(*map(set, parts)) - {None}:
        hub = min(map(str, hubs))
        return lambda pair: pair.target if pair.language == hub else pair.source
    return lambda pair: min(pair.source, pair.target)


def held_out(
    sample: Sequence[Pair], pairs: int, wanted: int, asked: bool, key: Key = by_source, by: str = HASH
) -> Decides:
    """Return a function that decides whether a pair is held out for validation, by a hash of one of its texts.

    Pairs with a text so frequent that far too many would be held out are trained on instead. If no hash is low enough
    and the sample is the whole corpus, the text with the lowest hash is held out.

    Args:
        sample: Some of the pairs, or all.
        pairs: The number of pairs in the corpus.
        wanted: About how many pairs to hold out; at most a tenth of all, or half if `asked`.
        asked: Whether the user has asked for it. If not, none are held out of fewer than `FEW` pairs.
        key: Function that returns the text of a pair to be hashed.
        by: The name of the hash in `HASHES`.
    """
    fraction = HASHES[by]
    share = min(0.5 if asked else 0.1, wanted / pairs) if asked or pairs >= FEW else 0.0
    if not share:
        return lambda pair: False

    lowest = min(map(key, sample), key=lambda text: fraction(text.encode())) if len(sample) == pairs else None

    def chosen(pair: Pair) -> bool:
        return fraction(key(pair).encode()) < share or key(pair) == lowest

    # A text that stands in many pairs brings them all. Where that is too much, the most frequent ones are learned.
    counts = Counter(key(pair) for pair in sample if chosen(pair))
    room, total = min(2 * share, share + 0.2) * len(sample), counts.total()
    frequent = set()
    for text, count in counts.most_common():
        if total <= room or count == 1:
            break
        frequent.add(text)
        total -= count
    return (lambda pair: chosen(pair) and key(pair) not in frequent) if frequent else chosen
