"""Corpora by name, or a file that is one: what `seq2see train PAIRS` means by PAIRS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from seq2see.data import dates
from seq2see.data.pair import NOTHING, Pair, Sides
from seq2see.data.readers import Pairs, is_file, name_of_files, split_names
from seq2see.errors import DataError, nearest


@dataclass(frozen=True)
class Corpus:
    """Pairs to train on and, where the corpus brings them, to validate and test on; each can be iterated over again."""

    name: str
    train: "Parts"
    valid: Iterable[Pair] | None = None
    test: Iterable[Pair] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What is known to suit this corpus, over what a look at it suggests."""
    words: Sequence[str] = ()
    """How the command line asks for it."""


class Parts:
    """The pairs of one or several places, one after another, and what is known of them once they have been read."""

    def __init__(self, *parts: "Pairs | DateSplit") -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Pair]:
        return chain.from_iterable(self.parts)

    @property
    def dropped(self) -> int:
        return sum(part.dropped for part in self.parts)

    @property
    def notes(self) -> list[str]:
        return [note for part in self.parts for note in part.notes]

    @property
    def languages(self) -> Sides:
        """Of source and target, where all parts have the same."""
        sides = (set(side) for side in zip(*(part.languages for part in self.parts), strict=True))
        return Sides(*(side.pop() if len(side) == 1 else None for side in sides))


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
    dropped = 0
    notes = ()
    languages = Sides()

    def __iter__(self) -> Iterator[Pair]:
        return dates.pairs(self.split)


def catalogue() -> list[Entry]:
    """Every corpus that has a name."""
    return list(CATALOGUE)


def open_corpus(
    pairs: str | Path | Sequence[str | Path],
    format: str | None = None,
    columns: Sides = NOTHING,
    languages: Sides = NOTHING,
) -> Corpus:
    """The corpus of that name, else the file or the parallel files; several are put together, in that order.

    `./dates` is always a file.

    Args:
        columns: which columns are source and target, where there are more or they have other names.
        languages: of source and target, over what the files say.
    """
    names = _words(pairs)
    if names == ["dates"]:
        # 500 steps are two epochs: enough, since nothing in this corpus contradicts itself.
        settings = {"training": {"max_steps": 500, "validate_every": 125}}
        return Corpus(
            "dates", Parts(DateSplit("train")), Parts(DateSplit("valid")), Parts(DateSplit("test")), settings, names
        )
    parts = [DateSplit("train") if name == "dates" else _file(name, format, columns, languages) for name in names]
    if any(columns) and not any(isinstance(part, Pairs) and part.has_columns for part in parts):
        raise DataError(f"{', '.join(names)}: no columns to choose from; --source-column is for CSV, TSV and JSONL")
    options = {
        "--format": format,
        "--source-column": columns.source,
        "--target-column": columns.target,
        "--source-language": languages.source,
        "--target-language": languages.target,
    }
    asked = [word for option, value in options.items() if value is not None for word in (option, value)]
    return Corpus(name_of(pairs), Parts(*parts), words=[*names, *asked])


def _words(pairs: str | Path | Sequence[str | Path]) -> list[str]:
    names = [str(pairs)] if isinstance(pairs, str | Path) else [str(each) for each in pairs]
    if not names:
        raise DataError("no pairs: give at least one file or the name of a corpus")
    return names


def _file(name: str, format: str | None, columns: Sides, languages: Sides, references: bool = False) -> Pairs:
    _check_name(name)
    return Pairs(name, format, references, columns, languages)


def name_of(pairs: str | Path | Sequence[str | Path]) -> str:
    """The name that a corpus of these words has, whether or not it is still there."""
    names = list(dict.fromkeys(name_of_files(split_names(name)) for name in _words(pairs)))
    return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"


def for_validation(
    pairs: str | Path, format: str | None = None, columns: Sides = NOTHING, languages: Sides = NOTHING
) -> Parts:
    """What `train --valid` validates on: the validation split of a named corpus, or a file as `evaluate` reads it."""
    if pairs == "dates":
        return Parts(DateSplit("valid"))
    return for_scoring(pairs, format, columns, languages)


def for_scoring(
    pairs: str | Path, format: str | None = None, columns: Sides = NOTHING, languages: Sides = NOTHING
) -> Parts:
    """What `evaluate` scores on: the test split of a named corpus, or a file with any further references."""
    if pairs == "dates":
        return Parts(DateSplit("test"))
    return Parts(_file(str(pairs), format, columns, languages, references=True))


def _check_name(pairs: str) -> None:
    """A bare word that is no file either was meant as a name."""
    if not set(pairs) & set("./\\,") and not is_file(Path(pairs)):
        raise DataError(f"{pairs}: no such file or corpus. {nearest(pairs, [entry.name for entry in CATALOGUE])}")
