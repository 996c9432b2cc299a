"""Files of pairs as they stand: every row with what is wrong with it, and never an error about what a file holds.

`readers` refuses a faulty file, as training must; here the faults are what one came for.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import zip_longest
from operator import or_
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from seq2see.errors import DataError
from seq2see.text import files, languages, readers
from seq2see.text.files import Faults, without_gz
from seq2see.text.pair import NOTHING, Pair, Sides
from seq2see.text.readers import Pairs

FOREIGN, RECORD, NARROW, WIDE, UNPAIRED = (1 << bit for bit in range(5))
"""Faults of a row: not UTF-8; not JSON or CSV; too few columns; more than two; no line in the other file."""

_GUESSED_BY: Final = 1 << 16
"""Bytes that an encoding is guessed by."""
_NOT_JSON: Final = ("not JSON", "JSONL has one record on each line.")

Line = tuple[int, str, int]
"""A line number, the line, and its faults."""
Cells = tuple[int, list[str] | str, int]
"""Of a table: a line number, its columns (or the line itself, where it has none) and the faults."""


class Row(NamedTuple):
    """A line number, or the words for a place that has none; two sides; the faults; columns that are too many."""

    line: int | str
    source: str
    target: str
    faults: int = 0
    further: tuple[str, ...] = ()


class RawPairs:
    """The rows behind a corpus, as often as they are iterated over: those of its files where it is read from any."""

    def __init__(self, *parts: Iterable[Pair]) -> None:
        self._parts = parts
        self.paths = [path for part in parts if isinstance(part, Pairs) for path in part.paths]
        self.problems: list[str] = []
        """What is wrong with a file as a whole, after an iteration."""
        self.foreign: list[bytes] = []
        """The first bytes of the lines that are not UTF-8,"""
        self._room = _GUESSED_BY
        """until there are so many more."""
        self._about: dict[str, tuple[str, str]] = {}

    def __iter__(self) -> Iterator[Row]:
        self.problems, self.foreign, self._about, self._room = [], [], {}, _GUESSED_BY
        for part in self._parts:
            rows = self._rows(part) if isinstance(part, Pairs) else self._as_read(part)
            if len(self._parts) == 1 or not isinstance(part, Pairs):
                yield from rows
                continue
            place = ",".join(map(str, part.paths))
            for row in rows:
                line = f"line {row.line}" if isinstance(row.line, int) else row.line
                yield row._replace(line=f"{place}, {line}")

    @property
    def labels(self) -> Sides:
        """What the sides are called, where all files agree: languages, or the suffixes of parallel files."""
        labels = {_labels(part) for part in self._parts if isinstance(part, Pairs)}
        return labels.pop() if len(labels) == 1 else NOTHING

    def about(self) -> dict[str, tuple[str, str]]:
        """What the last iteration tells of some kinds of findings: what is wrong, and what to do."""
        told = dict(self._about)
        if self.problems:
            told["file"] = "; ".join(self.problems), ""
        if encoding := guess_encoding(self.foreign):
            told["encoding"] = f"not UTF-8, probably {encoding}", f"Convert it: iconv -f {encoding} -t UTF-8"
        return told

    def _rows(self, part: Pairs) -> Iterator[Row]:
        match part.format:
            case "tsv":
                return self._table(part, self._tsv(part.paths[0]), ",;|")
            case "csv":
                return self._table(part, self._csv(part.paths[0]), "\t;|")
            case "jsonl":
                return self._jsonl(part)
            case "text":
                return self._parallel(*part.paths)
        return self._catalogue(part)

    def _as_read(self, pairs: Iterable[Pair]) -> Iterator[Row]:
        try:
            for pair in pairs:
                yield Row(pair.where, pair.source.strip(), pair.target.strip())
        except DataError as problem:
            self.problems.append(str(problem))

    def _catalogue(self, part: Pairs) -> Iterator[Row]:
        """As `readers` has them, untranslated entries too, and those after a fault."""
        faults = Faults()
        try:
            for number, (source, target) in part.rows(faults):
                yield Row(f"entry {number}" if part.format == "mo" else number, source.strip(), target.strip())
        except DataError as problem:
            self.problems.append(str(problem))
        if faults:
            self.problems.append(str(faults))

    def _table(self, part: Pairs, rows: Iterator[Cells], others: str) -> Iterator[Row]:
        """Source and target of each row, as the first row or the user says."""
        begun = False
        places: list[int] | None = None
        for number, cells, faults in rows:
            if isinstance(cells, str):
                yield Row(number, cells.strip(), "", faults | RECORD)
                continue
            columns = [column.strip() for column in cells]
            if not begun and any(columns):
                begun = True
                places, is_header = self._choose(part, columns)
                if is_header:
                    continue
            if not any(columns):
                yield Row(number, "", "", faults)
                continue
            if places is None:
                yield self._row(part, number, columns, faults, others)
                continue
            if len(columns) <= max(places):
                faults |= NARROW
                self._about.setdefault("columns", (f"fewer than {max(places) + 1} columns", "Mend these lines."))
            source, target = (columns[place] if place < len(columns) else "" for place in places)
            yield Row(number, source, target, faults)

    def _choose(self, part: Pairs, names: list[str]) -> tuple[list[int] | None, bool]:
        try:
            places, is_header = part.choose(names)
        except DataError as problem:
            if any(part.columns):  # a slip of the user's, who can choose again
                raise
            self.problems.append(str(problem))
            return [0, 1], True
        if places is None and len(names := readers.trimmed(names)) > 2:
            advice = f"Only the first two are examined. To choose, add for example: {readers.options_for(names)}"
            self._about.setdefault("further", ("more than two columns", advice))
        return places and places[:2], is_header

    def _row(self, part: Pairs, number: int, columns: list[str], faults: int, others: str = "") -> Row:
        columns = readers.trimmed(columns)
        if len(columns) == 1 and columns[0]:
            faults |= NARROW
            if any(separator in columns[0] for separator in others):
                what = f"not two columns, divided by {readers.SEPARATORS[part.format]}"
                self._about.setdefault("columns", (what, "Is the suffix of its name, or --format, right?"))
        elif len(columns) > 2:
            faults |= WIDE
        source, target, *further = [*columns, "", ""][: max(2, len(columns))]
        return Row(number, source, target, faults, tuple(further))

    def _tsv(self, path: Path) -> Iterator[Cells]:
        for number, line, faults in self._lines(path):
            yield number, line.split("\t"), faults

    def _csv(self, path: Path) -> Iterator[Cells]:
        """Records as `readers` has them; what is not CSV costs its first line only, and reading goes on after it."""
        lines = self._lines(path)
        again: deque[Line] = deque()  # later those that a record took in vain
        while len(again) < readers.BEGINNING and sum(len(line) for _, line, _ in again) < files.LONGEST_LINE:
            if (line := next(lines, None)) is None:
                break
            again.append(line)
        delimiter = readers.delimiter_of([line for _, line, _ in again])
        while True:
            taken: list[Line] = []
            try:
                columns = next(csv.reader(_noted(again, lines, taken), delimiter=delimiter, strict=True))
            except StopIteration:
                return
            except csv.Error:
                self._about["record"] = "not CSV: a quote left open, or not doubled", "Mend the quotes of these lines."
                again.extendleft(reversed(taken[1:]))
                yield taken[0]
                continue
            yield taken[0][0], columns, reduce(or_, (faults for _, _, faults in taken))

    def _jsonl(self, part: Pairs) -> Iterator[Row]:
        for number, line, faults in self._lines(part.paths[0]):
            if not line.strip():
                yield Row(number, "", "", faults)
                continue
            columns = None
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                self._about.setdefault("record", _NOT_JSON)
            else:
                columns = part.columns_of(record)
                if columns is None and self._about.get("record", _NOT_JSON) is _NOT_JSON:
                    self._about["record"] = part.wrong_record(record)
            if columns is None:
                yield Row(number, line.strip(), "", faults | RECORD)
            else:
                yield self._row(part, number, [column.strip() for column in columns], faults)

    def _parallel(self, one: Path, other: Path) -> Iterator[Row]:
        for number, (left, right) in enumerate(zip_longest(self._lines(one), self._lines(other)), 1):
            _, source, faults = left or (number, "", UNPAIRED)
            _, target, more = right or (number, "", UNPAIRED)
            yield Row(number, source.strip(), target.strip(), faults | more)

    def _lines(self, path: Path) -> Iterator[Line]:
        """Lines as `readers` divides them, with FOREIGN for those that are not UTF-8."""
        try:
            with path.open("rb") as stream:
                start = stream.read(3)
                stream.seek(0)
                yield from self._decoded(path, stream, start)
        except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
            self.problems.append(f"{path}: not a whole .gz file ({problem}); what came before is examined")
        except DataError as problem:
            self.problems.append(f"{problem} What came before is examined")
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None

    def _decoded(self, path: Path, stream: IO[bytes], start: bytes) -> Iterator[Line]:
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.problems.append(f"{path}: UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8")
            with io.TextIOWrapper(stream, "utf-16", errors="replace", newline="\n") as lines:
                number = 0
                while line := lines.readline(files.LONGEST_LINE):
                    number += 1
                    if len(line) == files.LONGEST_LINE:
                        raise files.too_long(path, number)
                    yield number, line, 0
            return
        compressed = path.suffix.lower() == ".gz"
        if start.startswith(b"\x1f\x8b") and not compressed:
            self.problems.append(f"{path}: compressed, but the name does not end in .gz. Rename it")
        raw = gzip.GzipFile(fileobj=stream) if compressed or start.startswith(b"\x1f\x8b") else stream
        for number, row in enumerate(self._divided(path, cast(IO[bytes], raw)), 1):
            try:
                yield number, row.decode(), 0
            except UnicodeDecodeError:
                if self._room:
                    self.foreign.append(row[: self._room])
                    self._room -= len(self.foreign[-1])
                yield number, row.decode(errors="replace"), FOREIGN

    def _divided(self, path: Path, raw: IO[bytes]) -> Iterator[bytes]:
        first = raw.readline(files.BEGINNING)
        if files.has_old_line_ends(first):
            self.problems.append(f"{path}: {files.OLD_LINE_ENDS}")
            return _old_lines(path, first.removeprefix(b"\xef\xbb\xbf"), raw)
        return files.bounded_lines(path, raw, first)


def _labels(part: Pairs) -> Sides:
    suffixes = [without_gz(path).suffix[1:].lower() for path in part.paths] if len(part.paths) == 2 else ["", ""]
    return Sides(*(known or suffix or None for known, suffix in zip(part.languages, suffixes, strict=True)))


def _old_lines(path: Path, start: bytes, raw: IO[bytes]) -> Iterator[bytes]:
    """Yield lines that end in a carriage return, of a file whose beginning is already read."""
    rest, number = b"", 1
    while start:
        *whole, rest = (rest + start).split(b"\r")
        yield from (line + b"\n" for line in whole)
        number += len(whole)
        if len(rest) > files.LONGEST_LINE:
            raise files.too_long(path, number)
        start = raw.read(files.BEGINNING)
    if rest:
        yield rest


def _noted(again: deque[Line], lines: Iterator[Line], taken: list[Line]) -> Iterator[str]:
    """Yield lines for a record of CSV and put them into `taken`, up to as many as a record may have."""
    size = 0
    while line := again.popleft() if again else next(lines, None):
        taken.append(line)
        size += len(line[1])
        if size > files.LONGEST_LINE:
            raise csv.Error("too long")
        yield line[1]


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
    runs = re.findall(rb"[\x80-\xff]+", whole)
    if not runs:
        return None
    if sum(map(len, runs)) < 1.7 * len(runs):  # single letters within words of ASCII
        return "CP1252"
    for name, first, last, share in _ENCODINGS:
        try:
            text = codecs.getincrementaldecoder(name)().decode(whole)  # the last letter may be cut in two
            letters = [character for character in text if not character.isascii()]
        except UnicodeDecodeError:
            continue
        if sum(first <= character <= last for character in letters) > share * len(letters):
            return {"euc_kr": "CP949"}.get(name, name.upper().replace("_", "-"))
    return None


# --- names of columns ------------------------------------------------------------------------------------------------

_SOURCES, _TARGETS = (set(side) for side in zip(*readers.HEADERS, strict=True))


def is_header(source: str, target: str) -> bool:
    """Whether a first row names the columns: `word, phones`, `en, ko`."""
    cells = {source.lower(), target.lower()}
    return (len(cells) == 2 and cells <= _SOURCES | _TARGETS) or readers.are_languages(source, target)


def are_exchanged(labels: Sides, scripts: tuple[str, str]) -> bool:
    """Whether the sides bear each other's names, by the words themselves or by the scripts of the languages."""
    if labels.source in _TARGETS and labels.target in _SOURCES:
        return True
    expected = [languages.script(code) if (code := languages.known(label or "")) else None for label in labels]
    return None not in expected and expected[0] != expected[1] and tuple(expected) == scripts[::-1]
