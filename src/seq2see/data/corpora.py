"""Corpora by name, or a file that is one: what `seq2see train PAIRS` means by PAIRS."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from seq2see.data import dates
from seq2see.data.pair import Pair
from seq2see.data.readers import Pairs, is_file, name_of_files
from seq2see.errors import DataError, nearest


@dataclass(frozen=True)
class Corpus:
    """Pairs to train on and, where the corpus brings them, to validate and test on; each can be iterated over again."""

    name: str
    train: Iterable[Pair]
    valid: Iterable[Pair] | None = None
    test: Iterable[Pair] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What is known to suit this corpus, over what a look at it suggests."""


class Entry(NamedTuple):
    """A line of `seq2see data list`."""

    name: str
    pairs: int
    description: str
    licence: str


CATALOGUE: Final = (
    Entry(
        "dates",
        sum(dates.SIZES.values()),
        f"dates written out in {len(dates.LANGUAGES)} languages, to ISO 8601; built in",
        "Unicode-3.0",
    ),
)


@dataclass(frozen=True)
class DateSplit:
    """A split of the built-in corpus, written anew at each iteration."""

    split: dates.Split

    def __iter__(self) -> Iterator[Pair]:
        return dates.pairs(self.split)


def catalogue() -> list[Entry]:
    """Every corpus that has a name."""
    return list(CATALOGUE)


def open_corpus(pairs: str, format: str | None = None) -> Corpus:
    """The corpus of that name, else the file or the parallel files; `./dates` is always a file."""
    if pairs == "dates":
        # 500 steps are two epochs: enough, since nothing in this corpus contradicts itself.
        settings = {"training": {"max_steps": 500, "validate_every": 125}}
        return Corpus("dates", DateSplit("train"), DateSplit("valid"), DateSplit("test"), settings)
    _check_name(pairs)
    file = Pairs(pairs, format)
    return Corpus(file.name, file)


def name_of(pairs: str) -> str:
    """The name that a corpus of these words has, whether or not it is still there."""
    return pairs if pairs == "dates" else name_of_files([Path(part.strip()) for part in pairs.split(",")])


def for_validation(pairs: str, format: str | None = None) -> Iterable[Pair]:
    """What `train --valid` validates on: the validation split of a named corpus, or a file as `evaluate` reads it."""
    corpus = open_corpus(pairs, format)
    return for_scoring(pairs, format) if corpus.valid is None else corpus.valid


def for_scoring(pairs: str, format: str | None = None) -> Iterable[Pair]:
    """What `evaluate` scores on: the test split of a named corpus, or a file with any further references."""
    if pairs == "dates":
        return DateSplit("test")
    _check_name(pairs)
    return Pairs(pairs, format, references=True)


def _check_name(pairs: str) -> None:
    """A bare word that is no file either was meant as a name."""
    if not set(pairs) & set("./\\,") and not is_file(Path(pairs)):
        raise DataError(f"{pairs}: no such file or corpus. {nearest(pairs, [entry.name for entry in CATALOGUE])}")
