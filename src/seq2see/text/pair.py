"""`Pair`: a source, its target, and where they were read."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from seq2see.errors import DataError


class Pair(NamedTuple):
    """A source, its target, the place they were read from ("corpus.tsv, line 7"), and any further references."""

    source: str
    target: str
    where: str
    references: tuple[str, ...] = ()
    language: str | None = None
    """Code of the target's language; None if it is not known."""


class Sides(NamedTuple):
    """The names of source and target: of their columns, or of their languages; None for a name that is not known."""

    source: str | None = None
    target: str | None = None


NOTHING: Final = Sides()
"""A `Sides` in which neither name is known."""


GivenPairs = str | Path | Iterable[Pair | Sequence[str]]
"""A file, a corpus by name, or pairs: each a `Pair`, or a sequence of source, target and any further references."""


def pair_of(given: Pair | Sequence[str], number: int) -> Pair:
    """Return a pair of the user as a `Pair`; raise an error with its number if it is not (source, target)."""
    match given:
        case Pair():
            return given
        case tuple() | list() if len(given) > 1 and all(isinstance(text, str) for text in given):
            source, target, *references = given
            return Pair(source, target, f"pair {number}", tuple(references))
    raise DataError(f"pair {number}: {str(given)[:60]!r} is not a pair. Give (source, target), or the name of a file")


def usual_sources(pairs: Sequence[Pair], count: int = 4, longest: int = 80) -> list[str]:
    """Return up to `count` sources of the first 200 pairs for trying out a model: of medium length among them, at most
    `longest` characters, without control characters.
    """
    texts = {pair.source.strip() for pair in pairs[:200]}
    fitting = sorted((text for text in texts if len(text) <= longest and text.isprintable()), key=lambda t: (len(t), t))
    usual = fitting[len(fitting) // 4 : len(fitting) // 4 * 3] or fitting
    return usual[:: max(1, len(usual) // count)][:count]
