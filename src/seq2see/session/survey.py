"""The survey of a corpus: one streaming pass that counts its pairs, words and characters, and keeps a sample."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from seq2see import machine
from seq2see.text.pair import Pair
from seq2see.text.rows import in_blocks
from seq2see.text.tags import noting_languages

SAMPLE = 200_000
"""Pairs kept for training tokenizers: more change them little and cost minutes."""
SAMPLE_CHARACTERS = 1 << 28
"""Characters that these pairs may have, so that the sample fits in memory."""
LONGEST_WORD = 100
"""Characters of a word that are compared; longer texts are not words."""
BLOCK = 2048
"""Consecutive pairs that are surveyed together."""
STRETCHES = 64
"""Blocks of consecutive pairs that are kept, evenly taken, to examine what may be wrong with the corpus."""


@dataclass
class Side:
    """One side of a corpus: how much text there is, and what it is made of."""

    characters: int = 0
    words: int = 0
    alphabet: set[str] = field(default_factory=set)
    lexicon: set[str] = field(default_factory=set)
    """Distinct words, up to `MOST_WORDS`; beyond that it is a language, and the exact number does not matter."""
    unspaced: bool = False
    """Whether its script has no spaces between words; the number of words is then an estimate."""

    MOST_WORDS = 1000

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Side":
        """Return a side that has these texts."""
        side = cls()
        for text in texts:
            side.add(text)
        return side

    def times(self, factor: float) -> "Side":
        """Return a side of as many times the size: an estimate of a corpus from its sample."""
        return replace(self, characters=round(self.characters * factor), words=round(self.words * factor))

    def add(self, text: str) -> None:
        self.characters += len(text)
        self.alphabet.update(text)
        words = text.split()
        self.words += len(words)
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon.update(word[:LONGEST_WORD] for word in words)

    def join(self, other: "Side") -> None:
        """Add what was found in other texts of this side."""
        self.characters += other.characters
        self.words += other.words
        self.alphabet |= other.alphabet
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon |= other.lexicon


@dataclass
class Survey:
    """One streaming pass over the training pairs."""

    pairs: int = 0
    left_out: int = 0
    """Further pairs of the corpus that will be left out of the training for their length, and are not counted here."""
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)
    sample: list[Pair] = field(default_factory=list)
    room: int = field(default_factory=lambda: SAMPLE)
    """Pairs that the sample may have; fewer, where they have very many characters."""
    sampled: int = 0
    """Characters of the sample."""
    languages: set[str] = field(default_factory=set)
    """Target languages, where they were asked for."""
    stretches: list[tuple[int, list[Pair]]] = field(default_factory=list)
    """Some blocks of consecutive pairs, each with the number of pairs before it."""
    every: int = 1
    """One block in this many is kept in `stretches`."""

    def keep(self, number: int, block: list[Pair]) -> None:
        """Keep a block of consecutive pairs, or not, so that those that are kept are evenly spread."""
        if number % self.every == 0:
            self.stretches.append((self.pairs, block))
        if len(self.stretches) > STRETCHES:
            self.stretches = self.stretches[::2]
            self.every *= 2

    def count(self, pair: Pair, dice: random.Random) -> None:
        """Count a pair, and keep it in the sample with equal chance for all (reservoir sampling)."""
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
            self.sample = self.sample[::2]
            self.room = len(self.sample)
            self.sampled = sum(map(_length, self.sample))

    def only(self, kept: list[Pair]) -> "Survey":
        """Return the survey of a corpus of which these pairs of the sample, and as large a share of all, are kept."""
        pairs = round(self.pairs * len(kept) / len(self.sample))
        found = Survey(pairs, self.left_out + self.pairs - pairs, sample=kept)
        found.source = Side.of(pair.source for pair in kept).times(pairs / len(kept))
        found.target = Side.of(pair.target for pair in kept).times(pairs / len(kept))
        return found


def _length(pair: Pair) -> int:
    return len(pair.source) + len(pair.target)


def survey_corpus(pairs: Iterable[Pair], with_languages: bool = False) -> Survey:
    """Read every pair once, on all cores; memory does not grow with their number.

    Args:
        with_languages: Whether every pair must have a target language, which is noted.
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

    for source, target in machine.parallel_map(_Looking, (), blocks()):
        found.source.join(source)
        found.target.join(target)
    return found


class _Looking:
    """Measures a block of texts, sources and targets in turn."""

    def __call__(self, texts: list[str]) -> tuple[Side, Side]:
        return Side.of(texts[::2]), Side.of(texts[1::2])
