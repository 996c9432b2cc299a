"""Opening files of pairs, plain or .gz; what they tell about themselves, and what is wrong with them."""

import csv
import gzip
import stat
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from seq2see.errors import DataError
from seq2see.text.pair import Sides

LONGEST_FIELD: Final = 1 << 22
"""Characters of a field of CSV: beyond that a quote was left open. Texts may well pass the library's own 131,072."""
csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))

LONGEST_LINE: Final = 1 << 24
"""Bytes of a line, a record of CSV, or an entry of a catalogue. A small .gz file can hold one of gigabytes, which would
have to fit in memory."""
BEGINNING: Final = 1 << 16
"""Bytes in which a line should have ended, if it holds a carriage return."""
OLD_LINE_ENDS: Final = r"lines end in carriage returns (\r), expected \n. Convert it: tr '\r' '\n'"

Row = tuple[int, list[str]]
"""The line that a row begins on, and its columns."""


@dataclass
class Told:
    """What a file tells about itself while it is read."""

    languages: Sides = Sides()
    notes: dict[str, None] = field(default_factory=dict)
    """What the user should hear, each once, however often the file is read."""


class Faults:
    """What is wrong with a file: for each kind of fault its first lines and how many there are."""

    SHOWN = 5
    KINDS = 5

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], list[int]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.hints: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, path: Path, line: int, fault: str, hint: str = "") -> None:
        kind = (str(path), fault)
        if kind not in self.counts and len(self.counts) >= self.KINDS:
            kind = (str(path), "other faults")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        lines = self.lines.setdefault(kind, [])
        if len(lines) < self.SHOWN:
            lines.append(line)
        if hint and len(self.hints) < self.KINDS:
            self.hints[hint] = None

    def __str__(self) -> str:
        """`corpus.tsv, lines 3, 9 and 12: 1 column, expected 2 (source<TAB>target). Is the file comma-separated?`"""
        faults = [f"{path}, {self._places(path, fault)}: {fault}" for path, fault in self.counts]
        return ". ".join(["; ".join(faults), " ".join(self.hints)] if self.hints else ["; ".join(faults)])

    def _places(self, path: str, fault: str) -> str:
        lines = [str(line) for line in self.lines[path, fault]]
        more = self.counts[path, fault] - len(lines)
        if more:
            lines.append(f"{more:,} more")
        if len(lines) == 1:
            return f"line {lines[0]}"
        return f"lines {', '.join(lines[:-1])} and {lines[-1]}"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes, taken out of .gz where its name says so."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: not a whole .gz file ({problem})") from None
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None


def lines(path: Path, faults: Faults, charset: str = "UTF-8") -> Iterator[str]:
    """Lines with their ends, which are "\\n" only: other separators of Unicode stay inside the text, as in `wc -l`."""
    with opened(path) as stream:
        start = stream.readline(BEGINNING)
        _check_start(path, start)
        for number, line in enumerate(bounded_lines(path, stream, start), 1):
            try:
                yield line.decode(charset)
            except UnicodeError:
                faults.add(path, number, f"not {charset}", f"Convert the file to {charset}.")
                yield line.decode("UTF-8", errors="replace")


def bounded_lines(path: Path, stream: IO[bytes], start: bytes = b"") -> Iterator[bytes]:
    """Yield the lines of a stream without the byte order mark of the first; one that is far too long is an error.

    Args:
        path: the file, for the message.
        start: the beginning of the first line, where that has been read already.
    """
    number = 1
    line = start if start.endswith(b"\n") else start + stream.readline(LONGEST_LINE + 1 - len(start))
    line = line.removeprefix(b"\xef\xbb\xbf")
    while line:
        if len(line) > LONGEST_LINE:
            raise too_long(path, number)
        yield line
        line = stream.readline(LONGEST_LINE + 1)
        number += 1


def too_long(path: Path | str, number: int, what: str = "") -> DataError:
    """Return the error for a line that is longer than `LONGEST_LINE`; `what` names something else that begins there."""
    what = f"{what} " if what else ""
    return DataError(f"{path}, line {number}: {what}longer than {LONGEST_LINE >> 20} MiB. Is it a file of pairs?")


class Rows:
    """Lines for a reader of CSV, whose rows may run over several lines; one that is far too long is a `csv.Error`."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._first: deque[str] = deque()
        self.size = 0
        """Characters since it was last set to 0, which is at the beginning of each row."""

    def beginning(self, most: int) -> list[str]:
        """Return the first lines, at most so many, and few more characters than one line may have."""
        size = 0
        while len(self._first) < most and size < LONGEST_LINE and (line := next(self._lines, None)) is not None:
            self._first.append(line)
            size += len(line)
        return list(self._first)

    def __iter__(self) -> "Rows":
        return self

    def __next__(self) -> str:
        line = self._first.popleft() if self._first else next(self._lines)
        self.size += len(line)
        if self.size > LONGEST_LINE:
            raise csv.Error(f"a row longer than {LONGEST_LINE >> 20} MiB")
        return line


def read_lines(path: Path) -> list[str]:
    """All lines of a text file, without blanks around them."""
    if not is_file(path, "Expected a text file."):
        raise DataError(f"{path}: no such file")
    faults = Faults()
    found = [line.strip() for line in lines(path, faults)]
    if faults:
        raise DataError(str(faults))
    return found


def has_old_line_ends(start: bytes) -> bool:
    """Whether lines end in a carriage return alone, by the beginning of the first one: all of such a file is one."""
    return b"\r" in start and not start.endswith(b"\n")


def _check_start(path: Path, line: bytes) -> None:
    """Files that begin like another kind of file altogether."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}, line 1: UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8")
    if line.startswith(b"\x1f\x8b"):
        raise DataError(f"{path}, line 1: compressed, but the name does not end in .gz. Rename it")
    if has_old_line_ends(line):
        raise DataError(f"{path}: {OLD_LINE_ENDS}")


def is_file(path: Path, expected: str) -> bool:
    """Whether there is such a file; a folder is an error at once."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: a folder. {expected}")
    return True


def without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path
