"""The only text record: one pair of sequences and where it came from."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A source, its target, the place they were read from ("corpus.tsv, line 7"), and any further references."""

    source: str
    target: str
    where: str
    references: tuple[str, ...] = ()
