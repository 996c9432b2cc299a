"""What a corpus suggests: tokenizers, model size, dropout, batch, rate and steps, from one look at its pairs.

The same corpus suggests the same settings on every machine; a preset, a file or `--set` overrides them.
"""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from seq2see import patterns, special
from seq2see.data.pair import Pair
from seq2see.presets import preset

SAMPLE = 200_000
"""Pairs kept for training tokenizers: more change them little and cost minutes."""


@dataclass
class Side:
    """One side of a corpus: how much text there is, and what it is made of."""

    characters: int = 0
    words: int = 0
    alphabet: set[str] = field(default_factory=set)
    lexicon: set[str] = field(default_factory=set)
    """Distinct words, up to `MOST_WORDS`; beyond that it is a language, and the exact number does not matter."""

    MOST_WORDS = 5000

    def add(self, text: str) -> None:
        self.characters += len(text)
        self.alphabet.update(text)
        words = text.split()
        self.words += len(words)
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon.update(words)


@dataclass
class Survey:
    """One streaming pass over the training pairs."""

    pairs: int = 0
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)
    sample: list[Pair] = field(default_factory=list)

    def add(self, pair: Pair, dice: random.Random) -> None:
        """Count a pair, and keep it in the sample with equal chance for all (reservoir sampling)."""
        self.pairs += 1
        self.source.add(pair.source)
        self.target.add(pair.target)
        if len(self.sample) < SAMPLE:
            self.sample.append(pair)
        elif (place := dice.randrange(self.pairs)) < SAMPLE:
            self.sample[place] = pair


def survey(pairs: Iterable[Pair]) -> Survey:
    """Look at every pair once; memory does not grow with their number."""
    found = Survey()
    dice = random.Random(0)
    for pair in pairs:
        found.add(pair, dice)
    return found


def suggest(corpus: Survey) -> dict[str, dict[str, Any]]:
    """An overlay for `config.resolve`."""
    looked_at = corpus.sample[:1000]
    source_kind = _kind(corpus.source, corpus.pairs, [pair.source for pair in looked_at])
    target_kind = _kind(corpus.target, corpus.pairs, [pair.target for pair in looked_at])
    shared = source_kind == target_kind == "unigram" and _overlap(corpus.source.alphabet, corpus.target.alphabet) > 0.5
    characters = (corpus.source.characters + corpus.target.characters) / corpus.pairs
    language = source_kind == target_kind == "unigram"
    if corpus.pairs < 5000 or (corpus.pairs < 50_000 and characters < 60 and not language):
        size = "tiny"
    elif corpus.pairs < 20_000 and language:
        size = "compact"
    else:
        size = "small" if corpus.pairs < 500_000 else "paper-base"
    words_for_each = 50 if language else 100
    sizes = _vocabulary(corpus.source, words_for_each), _vocabulary(corpus.target, words_for_each)
    return {
        "data": {
            "source_tokenizer": source_kind,
            "target_tokenizer": target_kind,
            "source_pattern": "smiles" if source_kind == "pattern" else "",
            "target_pattern": "smiles" if target_kind == "pattern" else "",
            "source_vocabulary": max(sizes) if shared else sizes[0],
            "target_vocabulary": max(sizes) if shared else sizes[1],
            "shared": shared,
        },
        "model": {
            **preset(size)["model"],
            "tie": "all" if shared else "decoder",
            "dropout": 0.3 if (language or size == "small") and corpus.pairs < 200_000 else 0.1,
        },
        "training": {**_training(size, corpus.pairs, language), "metric": "loss" if language else "exact"},
    }


def _training(size: str, pairs: int, language: bool) -> dict[str, Any]:
    """A small model sees about a thousand tokens for each pair, some 40 epochs of sentences of 15 words."""
    found = dict(_TRAINING[size])
    if size in ("compact", "small"):
        found["max_steps"] = min(20_000, max(1000, pairs // 7))
    if size == "small" and language:
        found["learning_rate"] = 2e-3
    return found


_TRAINING: dict[str, dict[str, Any]] = {
    "tiny": {
        "batch_tokens": 4096,
        "max_steps": 2000,
        "warmup_steps": 200,
        "learning_rate": 5e-3,
        "schedule": "cosine",
        "validate_every": 200,
    },
    "compact": {
        "batch_tokens": 8192,
        "warmup_steps": 300,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "validate_every": 200,
    },
    "small": {
        "batch_tokens": 8192,
        "warmup_steps": 400,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "validate_every": 250,
    },
    "paper-base": preset("paper-base")["training"],
}


def _kind(side: Side, pairs: int, sample: list[str]) -> str:
    """Few different words, several to a line: symbols. Molecules: a pattern. No blanks: characters. Else subwords."""
    if len(side.lexicon) <= 256 and side.words >= 2 * pairs and side.words >= 20 * len(side.lexicon):
        return "symbols"
    if side.words <= 1.05 * pairs:
        return "pattern" if _are_molecules(sample) else "characters"
    return "unigram"


def _are_molecules(lines: list[str]) -> bool:
    """Whether nearly all lines are SMILES by its rules, and two thirds have more than letters, as few words do."""
    more = sum(not line.isalpha() for line in lines)
    return 3 * more >= 2 * len(lines) and sum(map(patterns.is_smiles, lines)) >= 0.98 * len(lines)


def _vocabulary(side: Side, words_for_each: int) -> int:
    """About one subword for each 50 or 100 words of text, in powers of two from 1,000 to 32,000.

    At least two for each letter of the alphabet, beside the 256 bytes: else letters of large alphabets fall to bytes.
    """
    size = next((size for size in (1000, 2000, 4000, 8000, 16_000) if side.words / words_for_each <= size), 32_000)
    letters = min(len(side.alphabet), 2000)
    return max(size, math.ceil((special.COUNT + 256 + 2 * letters) / 100) * 100)


def _overlap(one: set[str], other: set[str]) -> float:
    """Shared characters over those of the smaller alphabet."""
    return len(one & other) / max(1, min(len(one), len(other)))
