"""Files of pairs: TSV, CSV, JSONL and two parallel text files, plain or .gz, read one line at a time.

Every format is a generator of rows, (line number, columns); `Pairs` checks the columns and makes the `Pair`s. A bad row
does not stop the reading: the rest of the file is looked through, so that one message tells all that is wrong with it.
"""

import csv
import gzip
import json
import stat
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from seq2see.data.pair import Pair
from seq2see.errors import DataError, nearest

FORMATS: Final = ("tsv", "csv", "jsonl", "text")
SEPARATORS: Final = {"tsv": "<TAB>", "csv": ",", "jsonl": ", "}
HEADERS: Final = {("source", "target"), ("src", "tgt"), ("q", "a"), ("question", "answer"), ("input", "output")}
"""First rows of CSV files that name the columns: they are no pair."""
EXPECTED: Final = "Expected a .tsv, .csv or .jsonl file, two parallel files joined by a comma, or the name of a corpus."

Row = tuple[int, list[str]]


class Pairs:
    """The pairs of a file or of two parallel files, as often as they are iterated over.

    Pairs with an empty side are left out; `dropped` says how many in the last complete iteration.

    Args:
        pairs: "pairs.tsv", "pairs.jsonl.gz", or "train.en,train.ko".
        format: "tsv", "csv", "jsonl" or "text" (parallel), where the suffix does not say it.
        references: take columns after the second as further references; without it they are an error.
    """

    def __init__(self, pairs: str | Path, format: str | None = None, references: bool = False) -> None:
        self.paths = _locate(str(pairs), format)
        self.format = "text" if len(self.paths) == 2 else format or _format_of(self.paths[0])
        self.references = references
        self.name = name_of_files(self.paths)
        self.dropped = 0

    def __iter__(self) -> Iterator[Pair]:
        place = ",".join(map(str, self.paths))
        faults = Faults()
        dropped = 0
        for number, columns in self._rows(faults):
            columns = [column.strip() for column in columns]
            if not any(columns):
                dropped += 1  # a blank line too is a pair with nothing in it
            elif len(columns) < 2 or (len(columns) > 2 and not self.references):
                faults.add(self.paths[0], number, *self._wrong(columns))
            elif not (columns[0] and columns[1]):
                dropped += 1
            elif not faults:
                yield Pair(columns[0], columns[1], f"{place}, line {number}", tuple(filter(None, columns[2:])))
        if faults:
            raise DataError(str(faults))
        self.dropped = dropped

    def _rows(self, faults: "Faults") -> Iterator[Row]:
        match self.format:
            case "tsv":
                return _tsv_rows(self.paths[0], faults)
            case "csv":
                return _csv_rows(self.paths[0], faults)
            case "jsonl":
                return _jsonl_rows(self.paths[0], faults, self.references)
        return _parallel_rows(self.paths[0], self.paths[1], faults)

    def _wrong(self, columns: list[str]) -> tuple[str, str]:
        """What is wrong with a row of so many columns, and the likely reason."""
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        hint = ""
        if len(columns) == 1 and self.format == "tsv" and "," in columns[0]:
            hint = "Is the file comma-separated?"
        if len(columns) == 1 and self.format == "csv" and "\t" in columns[0]:
            hint = "Is the file tab-separated?"
        return f"{count}, expected 2 (source{SEPARATORS[self.format]}target)", hint


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
        if hint:
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


def _tsv_rows(path: Path, faults: Faults) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, faults), 1):
        yield number, line.split("\t")


def _csv_rows(path: Path, faults: Faults) -> Iterator[Row]:
    """Rows by the line they begin on; a quoted field may run over several."""
    reader = csv.reader(_lines(path, faults), strict=True)  # not strict, an open quote would swallow the file silently
    while True:
        start = reader.line_num + 1
        try:
            columns = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            # The reader has lost its place, so this is the last fault it can tell.
            reason = str(problem).partition(" - ")[0]  # what follows the dash is advice to programmers
            faults.add(path, start, f"not CSV ({reason})", "Is a quote left open, or not doubled?")
            return
        if start == 1 and tuple(column.strip().lower() for column in columns) in HEADERS:
            continue
        yield start, columns


def _jsonl_rows(path: Path, faults: Faults, references: bool) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, faults), 1):
        if not line.strip():
            yield number, []
            continue
        try:
            columns = _columns(json.loads(line), references)
        except (ValueError, RecursionError):
            faults.add(path, number, "not JSON", "JSONL has one record on each line.")
            continue
        if columns is None:
            faults.add(path, number, 'expected {"source": "...", "target": "..."} or ["...", "..."]')
        elif not all(map(_is_text, columns)):
            faults.add(path, number, "half of a surrogate pair (\\ud800 to \\udfff), which is not text")
        else:
            yield number, columns


def _columns(record: Any, references: bool) -> list[str] | None:
    """The columns of a JSON record, or None if it is of another shape. Other keys of an object are left alone."""
    match record:
        case {"source": source, "target": target, "references": list(further)}:
            columns = [source, target, *further]
        case {"source": source, "target": target} if "references" not in record:
            columns = [source, target]
        case [_, *_]:
            columns = record
        case _:
            return None
    if not all(isinstance(column, str) for column in columns):
        return None
    return columns[:2] if isinstance(record, dict) and not references else columns


def _is_text(column: str) -> bool:
    try:
        column.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parallel_rows(source: Path, target: Path, faults: Faults) -> Iterator[Row]:
    sources = targets = 0
    for number, (left, right) in enumerate(zip_longest(_lines(source, faults), _lines(target, faults)), 1):
        sources += left is not None
        targets += right is not None
        if left is not None and right is not None:
            yield number, [left, right]
    if sources != targets:
        counts = f"{source} has {sources:,} lines, {target} has {targets:,}"
        raise DataError(f"{counts}: parallel files must have one line each for every pair")


def _lines(path: Path, faults: Faults) -> Iterator[str]:
    """Lines with their ends, which are "\\n" only: other separators of Unicode stay inside the text, as in `wc -l`."""
    compressed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path, "rb") if compressed else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if number == 1:
                    _check_start(path, line)
                    line = line.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield line.decode()
                except UnicodeDecodeError:
                    faults.add(path, number, "not UTF-8", "Convert the file to UTF-8.")
                    yield line.decode(errors="replace")
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: not a whole .gz file ({problem})") from None
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None


def read_lines(path: Path) -> list[str]:
    """All lines of a text file, plain or .gz, without blanks around them."""
    if not is_file(path):
        raise DataError(f"{path}: no such file")
    faults = Faults()
    lines = [line.strip() for line in _lines(path, faults)]
    if faults:
        raise DataError(str(faults))
    return lines


def _check_start(path: Path, line: bytes) -> None:
    """Files that begin like another kind of file altogether."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}, line 1: UTF-16, expected UTF-8. Convert it: iconv -f UTF-16 -t UTF-8")
    if line.startswith(b"\x1f\x8b"):
        raise DataError(f"{path}, line 1: compressed, but the name does not end in .gz. Rename it")


def _locate(pairs: str, format: str | None) -> tuple[Path, ...]:
    """One path, or two for parallel files, all of them existing files."""
    paths: tuple[Path, ...]
    if format is not None and format not in FORMATS:
        raise DataError(f"unknown format '{format}'. {nearest(format, FORMATS)}")
    if format in (None, "text") and "," in pairs and not is_file(Path(pairs)):
        paths = tuple(Path(part) for part in map(str.strip, pairs.split(",")) if part)
        wanted = 2
    else:
        paths = (Path(pairs),)
        wanted = 2 if format == "text" else 1
    if len(paths) != wanted:
        raise DataError(f"{pairs}: expected two parallel files joined by a comma, such as train.en,train.ko")
    for path in paths:
        if not is_file(path):
            raise DataError(f"{path}: no such file or corpus. {EXPECTED}")
    return paths


def is_file(path: Path) -> bool:
    """Whether there is such a file; a folder is an error at once."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: a folder. {EXPECTED}")
    return True


def _format_of(path: Path) -> str:
    plain = _without_gz(path)
    suffix = plain.suffix.lower()
    if suffix[1:] in SEPARATORS:
        return suffix[1:]
    shown = f"the suffix '{plain.suffix}'" if suffix else "a name without a suffix"
    raise DataError(f"{path}: {shown} does not say the format. Use --format tsv, csv or jsonl")


def name_of_files(paths: Sequence[Path]) -> str:
    """ "pairs" for `dir/pairs.tsv.gz`, "train" for `train.en` and `train.ko`, "en-ko" for `en.txt` and `ko.txt`."""
    return "-".join(dict.fromkeys(_without_gz(path).stem for path in paths))


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path
