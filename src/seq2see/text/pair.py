"""The only text record: one pair of sequences and where it came from."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple


class Pair(NamedTuple):
    """A source, its target, the place they were read from ("corpus.tsv, line 7"), and any further references."""

    source: str
    target: str
    where: str
    references: tuple[str, ...] = ()
    language: str | None = None
    """Of the target, where known."""


class Sides(NamedTuple):
    """A word for each side, where known: the column it stands in, or its language."""

    source: str | None = None
    target: str | None = None


NOTHING: Final = Sides()
"""Nothing said of either side."""


def in_blocks(pairs: Iterable[Pair], most: int, characters: int = 1 << 22) -> Iterator[list[Pair]]:
    """Yield the pairs in blocks of `most`, or of fewer where their texts have so many characters.

    A block is held in memory, and a single text may have millions of characters.
    """
    block: list[Pair] = []
    size = 0
    for pair in pairs:
        block.append(pair)
        size += len(pair.source) + len(pair.target)
        if len(block) == most or size >= characters:
            yield block
            block, size = [], 0
    if block:
        yield block
