"""Files of pairs as they stand: every row with what is wrong with it, and never an error about what a file holds.

`readers` refuses a faulty file, as training must; here the faults are what one came for.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Final, NamedTuple

from seq2see.data import readers
from seq2see.data.pair import Pair
from seq2see.errors import DataError

FOREIGN, RECORD, NARROW, WIDE, UNPAIRED = (1 << bit for bit in range(5))
"""Faults of a row: not UTF-8; not JSON or CSV; one column; more than two; no line in the other file."""

_QUOTED_LINES: Final = 100
"""A quoted field of CSV may run over so many lines; beyond that the quote was left open."""


class Row(NamedTuple):
    """A line number, or the words for a place that has none; two sides; and the faults."""

    line: int | str
    source: str
    target: str
    faults: int = 0


class RawPairs:
    """The rows behind a corpus, as often as they are iterated over: of its files where it is read from any."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self.paths: tuple[Path, ...] = ()
        self.format = ""
        if isinstance(pairs, readers.Pairs):
            self.paths, self.format = pairs.paths, pairs.format
        self.problems: list[str] = []
        """What is wrong with the file as a whole, after an iteration."""
        self.foreign: list[bytes] = []
        """The first lines that are not UTF-8."""
        self.divisible = 0
        """Rows of one column that another separator would divide."""

    def __iter__(self) -> Iterator[Row]:
        self.problems, self.foreign, self.divisible = [], [], 0
        match self.format:
            case "tsv":
                rows = self._tsv()
            case "csv":
                rows = self._csv()
            case "jsonl":
                rows = self._jsonl()
            case "text":
                rows = self._parallel()
            case _:
                rows = self._as_read()
        return rows

    @property
    def labels(self) -> tuple[str, str] | None:
        """Languages as the names of parallel files tell them: `train.en.gz,train.ko.gz`."""
        if len(self.paths) != 2:
            return None
        one, other = (path.with_suffix("") if path.suffix.lower() == ".gz" else path for path in self.paths)
        return one.suffix[1:].lower(), other.suffix[1:].lower()

    def about(self) -> dict[str, tuple[str, str]]:
        """What the last iteration tells of some kinds of findings: what is wrong, and what to do."""
        told = {}
        if self.problems:
            told["file"] = "; ".join(self.problems), ""
        if encoding := guess_encoding(self.foreign):
            told["encoding"] = f"not UTF-8, probably {encoding}", f"Convert it: iconv -f {encoding} -t UTF-8"
        if self.divisible:
            told["columns"] = f"not two columns, divided by {readers.SEPARATORS[self.format]}", "Is --format right?"
        if self.format == "jsonl":
            wanted = '{"source": "...", "target": "..."} or ["...", "..."]'
            told["record"] = f"not JSON, or not {wanted}", "JSONL has one record on each line."
        if self.format == "csv":
            told["record"] = "not CSV: a quote left open, or not doubled", "Mend the quotes of these lines."
        return told

    def _as_read(self) -> Iterator[Row]:
        try:
            for number, pair in enumerate(self._pairs, 1):
                yield Row(pair.where or number, pair.source.strip(), pair.target.strip())
        except DataError as problem:
            self.problems.append(str(problem))

    def _tsv(self) -> Iterator[Row]:
        for number, line, faults in self._lines(self.paths[0]):
            yield self._row(number, line.split("\t"), faults, ",;|")

    def _row(self, number: int, columns: list[str], faults: int, others: str = "") -> Row:
        columns = [column.strip() for column in columns]
        if len(columns) == 1 and columns[0]:
            faults |= NARROW
            self.divisible += any(separator in columns[0] for separator in others)
        elif len(columns) > 2:
            faults |= WIDE
        source, target = [*columns, "", ""][:2]
        return Row(number, source, target, faults)

    def _csv(self) -> Iterator[Row]:
        """Records are put together line by line, so that a quote left open costs its own line and not the rest."""
        lines = self._lines(self.paths[0])
        waiting: list[tuple[int, str, int]] = []
        while waiting or (waiting := list(islice(lines, 1))):
            number, line, faults = waiting.pop(0)
            record = [line]
            quotes = line.count('"')
            taken = 0
            while quotes % 2 and taken < _QUOTED_LINES:
                if taken == len(waiting):
                    waiting.extend(islice(lines, 1))
                if taken == len(waiting):
                    break
                record.append(waiting[taken][1])
                quotes += waiting[taken][1].count('"')
                taken += 1
            columns = line.split(",") if not quotes else None if quotes % 2 else _parse(record)
            if columns is None:
                yield Row(number, line.strip(), "", faults | RECORD)
                continue
            for _, _, more in waiting[:taken]:
                faults |= more
            del waiting[:taken]
            if number > 1 or tuple(column.strip().lower() for column in columns) not in readers.HEADERS:
                yield self._row(number, columns, faults, "\t;|")

    def _jsonl(self) -> Iterator[Row]:
        for number, line, faults in self._lines(self.paths[0]):
            if not line.strip():
                yield Row(number, "", "", faults)
                continue
            try:
                columns = readers._columns(json.loads(line), references=False)
            except (ValueError, RecursionError):
                columns = None
            if columns is None:
                yield Row(number, line.strip(), "", faults | RECORD)
            else:
                yield self._row(number, columns, faults)

    def _parallel(self) -> Iterator[Row]:
        both = zip_longest(self._lines(self.paths[0]), self._lines(self.paths[1]))
        for number, (left, right) in enumerate(both, 1):
            _, source, faults = left or (number, "", UNPAIRED)
            _, target, more = right or (number, "", UNPAIRED)
            yield Row(number, source.strip(), target.strip(), faults | more)

    def _lines(self, path: Path) -> Iterator[tuple[int, str, int]]:
        """Lines as `readers` divides them, with FOREIGN for those that are not UTF-8."""
        try:
            with path.open("rb") as stream:
                start = stream.read(3)
                stream.seek(0)
                yield from self._decoded(path, stream, start)
        except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
            self.problems.append(f"{path}: not a whole .gz file ({problem}); what came before is examined")
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None

    def _decoded(self, path: Path, stream: IO[bytes], start: bytes) -> Iterator[tuple[int, str, int]]:
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.problems.append(f"{path}: UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8")
            with io.TextIOWrapper(stream, "utf-16", errors="replace", newline="\n") as lines:
                yield from ((number, line, 0) for number, line in enumerate(lines, 1))
            return
        compressed = path.suffix.lower() == ".gz"
        if start.startswith(b"\x1f\x8b") and not compressed:
            self.problems.append(f"{path}: compressed, but the name does not end in .gz. Rename it")
        raw = gzip.GzipFile(fileobj=stream) if compressed or start.startswith(b"\x1f\x8b") else stream
        first = raw.readline().removeprefix(b"\xef\xbb\xbf")
        for number, line in enumerate(chain([first] if first else [], raw), 1):
            try:
                yield number, line.decode(), 0
            except UnicodeDecodeError:
                if len(self.foreign) < 1000:
                    self.foreign.append(line)
                yield number, line.decode(errors="replace"), FOREIGN


def _parse(record: list[str]) -> list[str] | None:
    """The columns of one record of CSV, or None where its quotes are not doubled."""
    try:
        (columns,) = csv.reader(record, strict=True)
    except (csv.Error, ValueError):
        return None
    return columns


_ENCODINGS: Final = (
    ("euc_kr", "가", "힣", 0.9),
    ("cp932", "\u3040", "\u30ff", 0.2),
    ("euc_jp", "\u3040", "\u30ff", 0.2),
    ("cp949", "가", "힣", 0.9),
    ("cp1251", "А", "я", 0.9),
    ("gb18030", "一", "\u9fff", 0.7),
    ("big5", "一", "\u9fff", 0.7),
)
"""What to try on long runs of bytes over 127, and how much of the outcome must lie between two characters."""


def guess_encoding(lines: list[bytes]) -> str | None:
    """A name for `iconv -f`, by the letters that come out; None where nothing convincing does."""
    whole = b"\n".join(lines)
    high = [byte > 127 for byte in whole]
    if not any(high):
        return None
    runs = sum(one and not other for one, other in zip(high, [*high[1:], False], strict=True))
    if sum(high) < 1.7 * runs:  # single letters within words of ASCII
        return "CP1252"
    for name, first, last, share in _ENCODINGS:
        try:
            letters = [character for character in whole.decode(name) if not character.isascii()]
        except UnicodeDecodeError:
            continue
        if sum(first <= character <= last for character in letters) > share * len(letters):
            return {"euc_kr": "CP949"}.get(name, name.upper().replace("_", "-"))
    return None


# --- names of columns ------------------------------------------------------------------------------------------------

_SOURCES: Final = {"source", "src", "q", "question", "input", "text", "sentence", "word"}
_TARGETS: Final = {
    "target",
    "tgt",
    "trg",
    "a",
    "answer",
    "output",
    "label",
    "translation",
    "reply",
    "response",
    "phones",
}
_LANGUAGES: Final = {
    "Latin": "en eng english de deu ger german fr fra french es spa spanish it italian pt portuguese nl vi id tr pl",
    "Hangul": "ko kor korean kr",
    "Cyrillic": "ru rus russian uk bg",
    "Kana": "ja jpn japanese jp",
    "Han": "zh chinese zho cn",
    "Arabic": "ar ara arabic fa",
    "Greek": "el gr greek",
    "Hebrew": "he hebrew",
    "Thai": "th thai",
    "Devanagari": "hi hindi",
}
_SCRIPT_OF: Final = {word: script for script, words in _LANGUAGES.items() for word in words.split()}


def is_header(source: str, target: str) -> bool:
    """Whether a first row names the columns: `source, target`, `en, ko`."""
    cells = source.lower(), target.lower()
    return cells[0] != cells[1] and all(cell in _SOURCES | _TARGETS | _SCRIPT_OF.keys() for cell in cells)


def are_exchanged(labels: tuple[str, str], scripts: tuple[str, str]) -> bool:
    """Whether the sides bear each other's names, by the words themselves or by the scripts of the languages."""
    if labels[0] in _TARGETS and labels[1] in _SOURCES:
        return True
    expected = _SCRIPT_OF.get(labels[0]), _SCRIPT_OF.get(labels[1])
    return None not in expected and expected[0] != expected[1] and expected == scripts[::-1]
