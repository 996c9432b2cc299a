"""Tasks with known answers that a small model learns in seconds, so that no claim needs data from outside."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from seq2see import special
from seq2see.text import dates
from seq2see.tokens import tokenizers
from seq2see.tokens.batches import Batch

Sample = tuple[list[int], list[int]]
"""Source and target as tokens, without the ends."""
NEEDLES = range(special.COUNT, special.COUNT + 8)
"""The first of the symbols, where the others are hay."""

ANSWERS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": lambda source: source,
    "reverse": lambda source: source[::-1],
    "needle": lambda source: [token for token in source if token in NEEDLES],
}
"""What to say after a row of random symbols."""


@dataclass(frozen=True)
class Task:
    """Rows of random symbols of these lengths, and the answer."""

    answer: str
    symbols: int
    shortest: int
    longest: int

    @property
    def vocabulary(self) -> int:
        return special.COUNT + self.symbols

    def draw(self, dice: np.random.Generator, count: int) -> list[Sample]:
        """Fresh ones: nothing can be learned by heart."""
        lengths = dice.integers(self.shortest, self.longest + 1, count)
        sources = [dice.integers(special.COUNT, self.vocabulary, length).tolist() for length in lengths]
        return [(source, ANSWERS[self.answer](source)) for source in sources]

    def batches(self, seed: int, pairs: int) -> Iterator[Batch]:
        """Without end."""
        dice = np.random.default_rng([seed, 0])
        while True:
            yield pack(self.draw(dice, pairs))

    def test(self, seed: int, count: int) -> list[Sample]:
        """Others than those of training."""
        return self.draw(np.random.default_rng([seed, 1]), count)


class Haystack(Task):
    """One needle between two stretches of hay of these lengths. It is known by what it is, not by where it is."""

    def draw(self, dice: np.random.Generator, count: int) -> list[Sample]:
        samples = []
        for before, after in dice.integers(self.shortest, self.longest + 1, (count, 2)).tolist():
            source = dice.integers(NEEDLES.stop, self.vocabulary, before + 1 + after).tolist()
            source[before] = int(dice.integers(NEEDLES.start, NEEDLES.stop))
            samples.append((source, ANSWERS[self.answer](source)))
        return samples


def pack(samples: Sequence[Sample]) -> Batch:
    """Samples as training has them: packed, the end after each side."""
    sides = []
    for side in (0, 1):
        rows = [sample[side] for sample in samples]
        sides.append(torch.tensor([token for row in rows for token in (*row, special.END)]))
        sides.append(torch.tensor([0, *(len(row) + 1 for row in rows)]).cumsum(0))
    return Batch(*sides)


def again_and_again(samples: Sequence[Sample], seed: int, pairs: int) -> Iterator[Batch]:
    """Batches of a corpus of given size, shuffled anew in each epoch, without end."""
    dice = np.random.default_rng([seed, 0])
    while True:
        order = dice.permutation(len(samples))
        for first in range(0, len(order) - pairs + 1, pairs):
            yield pack([samples[number] for number in order[first : first + pairs]])


@dataclass(frozen=True)
class Dates:
    """Some of the built-in corpus, letter by letter."""

    train: list[Sample]
    test: list[Sample]
    vocabularies: tuple[int, int]


@lru_cache(maxsize=1)
def some_dates(languages: tuple[str, ...], seed: int, train: int, test: int) -> Dates:
    """Dates as they are written in these languages, and in ISO 8601; other days for each seed, and none in both."""
    forms = [write for language in languages for write in dates.writers(language)]
    days = dates.days("train")
    order = np.random.default_rng([seed, 2]).permutation(len(days))
    parts = []
    for chosen in (order[:train], order[train : train + test]):
        written = ((forms[turn % len(forms)], days[number]) for turn, number in enumerate(chosen))
        parts.append([(write(day), day.isoformat()) for write, day in written])
    cutters = [tokenizers.train("characters", [pair[side] for pair in parts[0]], 2000) for side in (0, 1)]
    encoded = [
        list(zip(*(cutters[side].encode([pair[side] for pair in part]) for side in (0, 1)), strict=True))
        for part in parts
    ]
    return Dates(encoded[0], encoded[1], (len(cutters[0]), len(cutters[1])))
