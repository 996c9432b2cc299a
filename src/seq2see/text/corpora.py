"""Corpora by name, or a file that is one: what `seq2see train PAIRS` means by PAIRS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from seq2see.errors import DataError, nearest
from seq2see.text import dates, downloads
from seq2see.text.downloads import File
from seq2see.text.file_names import is_file, name_of_files, split_names
from seq2see.text.pair import NOTHING, Pair, Sides
from seq2see.text.readers import Pairs


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
    def files(self) -> list[str]:
        """As one would name them to a verb; what is built in has none."""
        return [",".join(map(str, part.paths)) for part in self.parts if isinstance(part, Pairs)]

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
    size: int
    """Bytes to download; 0: built in."""
    cached: bool


Split = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class Remote:
    """A corpus that others keep, fetched when it is first asked for; listed only with checksums of bytes once held."""

    name: str
    pairs: int
    description: str
    licence: str
    splits: Mapping[Split, tuple[File, ...]]
    """Of each split one file, or two parallel ones."""

    @property
    def files(self) -> list[File]:
        return list(chain.from_iterable(self.splits.values()))


def _multi30k(name: str, size: int, sha256: str) -> File:
    address = f"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/tok/{name}"
    return File(name, address, size, sha256)


REMOTES: Final = (
    Remote(
        "multi30k-en-de",
        31_014,
        "captions of images, English to German, lowercased and tokenised",
        "research use; captions derive from Flickr30k",
        {
            "train": (
                _multi30k(
                    "train.lc.norm.tok.en",
                    1_837_696,
                    "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
                ),
                _multi30k(
                    "train.lc.norm.tok.de",
                    2_150_008,
                    "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
                ),
            ),
            "valid": (
                _multi30k(
                    "val.lc.norm.tok.en", 64_608, "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec"
                ),
                _multi30k(
                    "val.lc.norm.tok.de", 77_273, "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00"
                ),
            ),
            "test": (
                _multi30k(
                    "test_2016_flickr.lc.norm.tok.en",
                    63_307,
                    "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
                ),
                _multi30k(
                    "test_2016_flickr.lc.norm.tok.de",
                    71_917,
                    "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
                ),
            ),
        },
    ),
    Remote(
        "chatbot-ko",
        11_823,
        "Korean questions and answers",
        "MIT",
        {
            "train": (
                File(
                    "ChatbotData.csv",
                    "https://raw.githubusercontent.com/songys/Chatbot_data/master/ChatbotData.csv",
                    889_842,
                    "287eb129695b577321c80ad397bb3c2279164d4ca577874d129fd3db5b30afe2",
                ),
            )
        },
    ),
)


def remote(name: str) -> Remote | None:
    """The corpus of that name that has to be fetched."""
    return next((each for each in REMOTES if each.name == name), None)


def names() -> list[str]:
    """Of every corpus that has one."""
    return ["dates", *(each.name for each in REMOTES)]


def catalogue() -> list[Entry]:
    """Every corpus that has a name."""
    about_dates = f"dates written out in {len(dates.LANGUAGES)} languages, to ISO 8601"
    return [
        Entry("dates", sum(dates.SIZES.values()), about_dates, "Unicode-3.0", 0, True),
        *(
            Entry(
                each.name,
                each.pairs,
                each.description,
                each.licence,
                sum(file.size for file in each.files),
                not downloads.missing(each.name, each.files),
            )
            for each in REMOTES
        ),
    ]


def get(name: str, places: Sequence[str | Path] = (), watch: downloads.Watch = downloads.unwatched) -> Path | None:
    """Have a corpus in the cache, downloaded or from `places`; the folder it is in, None for one that is built in."""
    found = remote(name)
    if found is None:
        if name == "dates":
            return None
        raise DataError(f"{name}: no such corpus. {nearest(name, names())}")
    if places:
        downloads.take(name, found.files, map(Path, places))
    else:
        downloads.download(name, found.files, watch)
    return downloads.folder_of(name)


@dataclass(frozen=True)
class DateSplit:
    """A split of the built-in corpus, written anew at each iteration."""

    split: dates.Split
    dropped = 0
    notes = ()
    languages = Sides()

    def __iter__(self) -> Iterator[Pair]:
        return dates.pairs(self.split)


def open_corpus(
    pairs: str | Path | Sequence[str | Path],
    format: str | None = None,
    columns: Sides = NOTHING,
    languages: Sides = NOTHING,
    watch: downloads.Watch = downloads.unwatched,
) -> Corpus:
    """The corpus of that name, else the file or the parallel files; several are put together, in that order.

    `./dates` is always a file.

    Args:
        columns: which columns are source and target, where there are more or they have other names.
        languages: of source and target, over what the files say.
        watch: called while a corpus is downloaded.
    """
    words = _words(pairs)
    if words == ["dates"]:
        # 500 steps are two epochs: enough, since nothing in this corpus contradicts itself.
        settings = {"training": {"max_steps": 500, "validate_every": 125}}
        return Corpus(
            "dates", Parts(DateSplit("train")), Parts(DateSplit("valid")), Parts(DateSplit("test")), settings, words
        )
    parts: list[Pairs | DateSplit] = []
    for word in words:
        # Columns are those of the first file that has any; the others may have other ones.
        bound = not any(map(_has_columns, parts))
        part = _named(word, "train", columns, languages, watch)
        parts.append(part or _file(word, format, columns, languages, bound=bound))
    _check_columns(words, parts, columns)
    options = {
        "--format": format,
        "--source-column": columns.source,
        "--target-column": columns.target,
        "--source-language": languages.source,
        "--target-language": languages.target,
    }
    asked = [word for option, value in options.items() if value is not None for word in (option, value)]
    valid = test = None
    if len(words) == 1 and (found := remote(words[0])):
        if "valid" in found.splits:
            valid = Parts(_split(found, "valid", columns, languages))
        if "test" in found.splits:
            test = Parts(_split(found, "test", columns, languages))
    return Corpus(name_of(pairs), Parts(*parts), valid, test, words=[*words, *asked])


def _named(
    name: str, split: Split, columns: Sides, languages: Sides, watch: downloads.Watch
) -> "Pairs | DateSplit | None":
    """A split of the corpus of that name, all of which is then in the cache; None where there is no such name."""
    if name == "dates":
        return DateSplit(split)
    found = remote(name)
    if found is None:
        return None
    wanted = _split(found, split, columns, languages)  # first: a corpus without that split need not be fetched
    downloads.download(found.name, found.files, watch)
    return wanted


def _split(found: Remote, split: Split, columns: Sides, languages: Sides) -> Pairs:
    if split not in found.splits:
        what = {"train": "training", "valid": "validation", "test": "test"}[split]
        raise DataError(f"{found.name}: no {what} set, only {' and '.join(found.splits)}. Give a file of pairs instead")
    folder = downloads.folder_of(found.name)
    paths = tuple(folder / file.name for file in found.splits[split])
    return Pairs(paths, columns=columns, languages=languages)


def _words(pairs: str | Path | Sequence[str | Path]) -> list[str]:
    names = [str(pairs)] if isinstance(pairs, str | Path) else [str(each) for each in pairs]
    if not names:
        raise DataError("no pairs: give at least one file or the name of a corpus")
    return names


def _file(
    name: str, format: str | None, columns: Sides, languages: Sides, references: bool = False, bound: bool = True
) -> Pairs:
    _check_name(name)
    return Pairs(name, format, references, columns, languages, bound)


def name_of(pairs: str | Path | Sequence[str | Path]) -> str:
    """The name that a corpus of these words has, whether or not it is still there."""
    names = list(dict.fromkeys(name_of_files(split_names(name)) for name in _words(pairs)))
    return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"


def for_validation(
    pairs: str | Path,
    format: str | None = None,
    columns: Sides = NOTHING,
    languages: Sides = NOTHING,
    watch: downloads.Watch = downloads.unwatched,
) -> Parts:
    """What `train --valid` validates on: the validation split of a named corpus, or a file as `evaluate` reads it."""
    named = _named(str(pairs), "valid", columns, languages, watch)
    return Parts(named or _file(str(pairs), format, columns, languages, references=True, bound=False))


def for_scoring(
    pairs: str | Path,
    format: str | None = None,
    columns: Sides = NOTHING,
    languages: Sides = NOTHING,
    watch: downloads.Watch = downloads.unwatched,
    bound: bool = False,
) -> Parts:
    """What `evaluate` scores on: the test split of a named corpus, or a file with any further references.

    Args:
        bound: it must have these columns; else they may be those of another file, which this one is compared with.
    """
    part = _named(str(pairs), "test", columns, languages, watch)
    part = part or _file(str(pairs), format, columns, languages, references=True, bound=bound)
    if bound:
        _check_columns([str(pairs)], [part], columns)
    return Parts(part)


def _check_columns(words: Sequence[str], parts: "Sequence[Pairs | DateSplit]", columns: Sides) -> None:
    """Refuse to choose columns where none of the parts has any."""
    if any(columns) and not any(map(_has_columns, parts)):
        raise DataError(f"{', '.join(words)}: no columns to choose from; --source-column is for CSV, TSV and JSONL")


def _has_columns(part: "Pairs | DateSplit") -> bool:
    return isinstance(part, Pairs) and part.has_columns


def _check_name(pairs: str) -> None:
    """A bare word that is no file either was meant as a name."""
    if not set(pairs) & set("./\\,") and not is_file(Path(pairs)):
        raise DataError(f"{pairs}: no such file or corpus. {nearest(pairs, names())}")
