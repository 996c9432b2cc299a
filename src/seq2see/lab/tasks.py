"""Tasks with known answers that a small model learns in seconds, so that no claim needs a downloaded corpus."""

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
"""Token ids of source and target, without end tokens."""
NEEDLES = range(special.COUNT, special.COUNT + 8)
"""Token ids of the symbols that a model has to find in a `Haystack`; all other symbols are filler."""

ANSWERS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": list,
    "reverse": lambda source: source[::-1],
    "sort": sorted,
    "last": lambda source: source[-1:],
}


@dataclass(frozen=True)
class SymbolTask:
    """Task on random symbols, named by `answer`: copy, reverse, or sort them (distinct ones), or output the last one
    ("last").
    """

    answer: str
    symbols: int
    shortest: int
    longest: int

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Return the sizes of the source and the target vocabulary, which are equal."""
        return special.COUNT + self.symbols, special.COUNT + self.symbols

    def draw(self, dice: np.random.Generator, count: int) -> list[Sample]:
        """Return `count` random samples, new ones at each call, so that nothing can be memorised."""
        lengths = dice.integers(self.shortest, self.longest + 1, count)
        if self.answer == "sort":
            every = range(special.COUNT, self.vocabularies[0])
            sources = [dice.permutation(every)[:length].tolist() for length in lengths]
        else:
            sources = [dice.integers(special.COUNT, self.vocabularies[0], length).tolist() for length in lengths]
        answer = ANSWERS[self.answer]
        return [(source, answer(source)) for source in sources]

    def batches(self, seed: int, pairs: int) -> Iterator[Batch]:
        """Yield training batches of `pairs` random samples without end."""
        dice = np.random.default_rng([seed, 0])
        while True:
            yield pack(self.draw(dice, pairs))

    def test(self, seed: int, count: int) -> list[Sample]:
        """Return test samples, from another random stream than training."""
        return self.draw(np.random.default_rng([seed, 1]), count)


class Haystack(SymbolTask):
    """Task: output the one needle (a symbol of `NEEDLES`) among filler symbols, wherever it is.

    `shortest` and `longest` limit the number of filler symbols before the needle, and that after it.
    """

    def draw(self, dice: np.random.Generator, count: int) -> list[Sample]:
        samples = []
        for before, after in dice.integers(self.shortest, self.longest + 1, (count, 2)).tolist():
            source = dice.integers(NEEDLES.stop, self.vocabularies[0], before + 1 + after).tolist()
            source[before] = int(dice.integers(NEEDLES.start, NEEDLES.stop))
            samples.append((source, [source[before]]))
        return samples


def pack(samples: Sequence[Sample]) -> Batch:
    """Return samples as a packed batch, with an end token after each side."""
    sides = []
    for side in (0, 1):
        rows = [sample[side] for sample in samples]
        sides.append(torch.tensor([token for row in rows for token in (*row, special.END)]))
        sides.append(torch.tensor([0, *(len(row) + 1 for row in rows)]).cumsum(0))
    return Batch(*sides)


@dataclass(frozen=True)
class Dates:
    """Training and test samples of the built-in corpus of dates, tokenised into characters."""

    train: list[Sample]
    test: list[Sample]
    vocabularies: tuple[int, int]

    def batches(self, seed: int, pairs: int) -> Iterator[Batch]:
        """Yield training batches of `pairs` dates without end, shuffled again in each epoch; an incomplete last batch
        is left out.
        """
        dice = np.random.default_rng([seed, 0])
        while True:
            order = dice.permutation(len(self.train))
            for first in range(0, len(order) - pairs + 1, pairs):
                yield pack([self.train[number] for number in order[first : first + pairs]])


@lru_cache(maxsize=1)
def some_dates(seed: int, train: int, test: int, languages: tuple[str, ...] = ("en", "de", "fr")) -> Dates:
    """Return `train` and `test` dates in `languages`, paired with ISO 8601; the seed picks the days, none for both."""
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
