"""Texts of pairs become ids for a store, a block at a time and on all cores."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from seq2see.data import processes, store, tokenizer
from seq2see.data.pair import Pair

BLOCK: Final = 2000
"""Pairs that are sent to another process at once."""
Texts = tuple[list[str], list[str]]


class Tokenising:
    """Cuts the texts of both sides, by tokenizers that were saved; with the ids, how many pairs were left out.

    Args:
        files: of the tokenizers of source and target; the same where one serves both sides.
        limit: a pair with more tokens on one side is left out.
    """

    def __init__(self, files: tuple[Path, Path], limit: int) -> None:
        self._source = tokenizer.load(files[0])
        self._target = self._source if files[0] == files[1] else tokenizer.load(files[1])
        self._limit = limit
        self._vocabulary = max(len(self._source), len(self._target))

    def __call__(self, texts: Texts) -> tuple[store.Block, int]:
        encoded = zip(self._source.encode(texts[0]), self._target.encode(texts[1]), strict=True)
        fit = [pair for pair in encoded if max(map(len, pair)) <= self._limit]
        return store.pack(fit, self._vocabulary), len(texts[0]) - len(fit)


def tokenised(pairs: Iterable[Pair], files: tuple[Path, Path], limit: int) -> Iterator[tuple[store.Block, int]]:
    """All pairs in their order, as `Tokenising` cuts them."""
    return processes.in_order(Tokenising, (files, limit), _texts(pairs))


def _texts(pairs: Iterable[Pair]) -> Iterator[Texts]:
    rest = iter(pairs)
    while block := list(islice(rest, BLOCK)):
        yield [pair.source for pair in block], [pair.target for pair in block]
