"""The only text record: one pair of sequences and where it came from."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple


class Pair(NamedTuple):
    """A source, its target, the place they were read from ("corpus.tsv, line 7"), and any further references."""

    source: str
    target: str
    where: str
    references: tuple[str, ...] = ()
    language: str | None = None
    """Language of the target, where it is known."""


class Sides(NamedTuple):
    """A word for each side, where known: the column it stands in, or its language."""

    source: str | None = None
    target: str | None = None


NOTHING: Final = Sides()
"""Value for sides of which nothing is known."""


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs as JSON lines, with their further references."""
    rows = (
        {"source": pair.source, "target": pair.target} | ({"references": pair.references} if pair.references else {})
        for pair in pairs
    )
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
