"""Read lines and the rows of TSV and CSV files, plain or .gz, as a stream; and find out the format of files of pairs.

    lines -> rows of source and target, with their faults -> pairs

Training reads strictly: `corpora.Pairs` is iterated over, and one message names all faults of a file. The doctor reads
the same rows leniently (`Pairs.rows` with a `Faults` of its own): every row comes with its faults, and no file raises
an error.
"""

import codecs
import csv
import gzip
import json
import stat
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, BinaryIO, Final, NamedTuple, cast

from seq2see.errors import DataError, nearest, nearest_file
from seq2see.text import columns, languages
from seq2see.text.pair import NOTHING, Pair, Sides

FORMATS: Final = ("tsv", "csv", "jsonl", "po", "mo", "tmx", "text")
SEPARATORS: Final = {"tsv": "<TAB>", "csv": ",", "jsonl": ", "}
"""Separators between columns as messages write them, for each format that has any."""
EXPECTED: Final = (
    "Expected a .tsv, .csv, .jsonl, .po, .mo or .tmx file, two parallel files joined by a comma, "
    "or the name of a corpus."
)
LONGEST_LINE: Final = 1 << 24
"""Maximum number of bytes of a line, and of characters of a CSV record or an entry of a catalogue; a longer one is an
error: a small .gz file can contain a line of gigabytes, which would not fit into memory.
"""
BEGINNING: Final = 1 << 16
"""Maximum number of bytes that are read as the first line of a file; if they contain a carriage return and no line
feed, the lines of the file are taken to end in carriage returns.
"""
LONGEST_FIELD: Final = 1 << 22
"""Maximum number of characters of a CSV field; a longer one means that a quote was not closed. (Python's limit of
131,072 is too low for some texts.)
"""
csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))
CSV_LINES: Final = 50
"""Maximum number of lines at the beginning of a CSV file from which its delimiter is recognised."""

FIRST_ROWS: Final = 1000
"""Maximum number of rows at the beginning of a table by which two faults are recognised: a header that was read as a
pair, and quotes around all texts.
"""
_QUOTED: Final = 0.95
"""Minimum share of rows with quotes around both texts for these to be taken for the quotes of CSV."""

FOREIGN, RECORD, NARROW, WIDE, UNPAIRED, NAMES, QUOTED = (1 << bit for bit in range(7))
"""Bit flags for the faults of a row, in this order: not UTF-8; not JSON or CSV, or a record without source or target;
too few columns; too many columns; no line of the same number in the other of two parallel files; a first row that looks
like names of columns; quotes around both texts, as around all others of the file.
"""
NOT_JSON: Final = ("not JSON", "JSONL has one record on each line.")

Line = tuple[int, str, int]
"""The line number, the text of the line, and the bit flags of its faults."""
Cells = tuple[int, list[str] | str, int]
"""A row of a table: number of its first line, its columns (or the unsplit line), and bit flags of its faults."""


@dataclass(frozen=True)
class ReadingOptions:
    """Options for reading files of pairs, for what the files do not state themselves.

    Args:
        format: "tsv", "csv", "jsonl", "po", "mo", "tmx" or "text" (parallel files), where the suffix does not say it.
        columns: Which columns are the source and the target, by name or by number from 1; a dotted path in JSONL.
        languages: The languages of source and target, instead of those that the file states; a TMX file may have more
            than two.
    """

    format: str | None = None
    columns: Sides = NOTHING
    languages: Sides = NOTHING

    def words(self) -> list[str]:
        """Return the options as arguments of the command line: `["--format", "csv"]`."""
        options = ("--source-column", "--target-column", "--source-language", "--target-language")
        values = zip(("--format", *options), (self.format, *self.columns, *self.languages), strict=True)
        return [word for option, value in values if value is not None for word in (option, value)]


class Row(NamedTuple):
    """One row: line number (or a description of its place), source, target, bit flags of faults, further columns."""

    line: int | str
    source: str
    target: str
    faults: int = 0
    further: tuple[str, ...] = ()


class Faults:
    """Faults of a file that is read strictly: for each kind, the number of lines and the first `SHOWN` of them.

    After `KINDS` kinds, all others are counted as one.
    """

    SHOWN = 5
    KINDS = 5
    lenient = False

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], list[int]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.hints: dict[str, None] = {}
        self.undecoded: dict[Path, languages.Undecoded] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, path: Path, line: int, fault: str, hint: str = "") -> None:
        """Record a fault of one line."""
        kind = (str(path), fault)
        if kind not in self.counts and len(self.counts) >= self.KINDS:
            kind = (str(path), "other faults")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        lines = self.lines.setdefault(kind, [])
        if len(lines) < self.SHOWN:
            lines.append(line)
        if hint and len(self.hints) < self.KINDS:
            self.hints[hint] = None

    def foreign(self, path: Path, number: int, line: bytes, charset: str) -> None:
        """Record a line that cannot be decoded."""
        if charset == "UTF-8":
            self.undecoded.setdefault(path, languages.Undecoded(path)).add(line)
        self.add(path, number, f"not {charset}", "" if charset == "UTF-8" else f"Convert the file to {charset}.")

    def tell(self, kind: str, what: str, advice: str) -> None:
        """Ignore a message for the doctor about all rows with one kind of fault; the doctor's subclass records it."""

    def refuse(self, problem: DataError) -> None:
        """Raise a problem of the whole file; the doctor's subclass records it instead, and reading continues."""
        raise problem

    def __str__(self) -> str:
        """Return one message: `corpus.tsv, lines 3, 9 and 12: 1 column, expected 2 (source<TAB>target). Is ...?`"""
        faults = [f"{path}, {self._places(path, fault)}: {fault}" for path, fault in self.counts]
        hints = dict.fromkeys([*(lines.advice for lines in self.undecoded.values()), *self.hints])
        return ". ".join(["; ".join(faults), " ".join(hints)] if hints else ["; ".join(faults)])

    def _places(self, path: str, fault: str) -> str:
        lines = [str(line) for line in self.lines[path, fault]]
        more = self.counts[path, fault] - len(lines)
        if more:
            lines.append(f"{more:,} more")
        return f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(lines[:-1])} and {lines[-1]}"


# Files


class CutShortError(DataError):
    """The rest of a file cannot be read; the rows before it have been yielded."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the bytes of a file, decompressed where its name ends in .gz."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        is_other = str(problem).startswith("Not a gzipped")
        what = "not a gzip file. Is its suffix right?" if is_other else "damaged or cut short. Copy it again"
        raise CutShortError(f"{path}: {what}") from None
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None


def lines(path: Path, faults: Faults, charset: str = "UTF-8") -> Iterator[Line]:
    r"""Yield number, text and fault flags of each line. Only "\n" ends a line (as in `wc -l`); other separators of
    Unicode are text.
    """
    try:
        decoded = 0
        with opened(path) as stream:
            for number, line in enumerate(_byte_lines(path, stream, faults), 1):
                try:
                    text, fault = line.decode(charset), 0
                    decoded += not text.isascii()
                except UnicodeError:
                    faults.foreign(path, number, line, charset)
                    text, fault = line.decode("UTF-8", errors="replace"), FOREIGN
                yield number, text, fault
        if path in faults.undecoded:
            faults.undecoded[path].decoded = decoded
    except CutShortError as problem:
        faults.refuse(problem)


def _byte_lines(path: Path, stream: BinaryIO, faults: Faults) -> Iterator[bytes]:
    r"""Yield the lines of a file. UTF-16, compression and \r line ends are an error in strict reading; else they are
    reported, and the lines are converted.
    """
    start = stream.readline(BEGINNING)
    if (b"\0" in start or start.startswith((b"\xff\xfe", b"\xfe\xff"))) and (encoding := languages.utf_16(start)):
        command = languages.conversion(path, encoding)
        faults.refuse(DataError(f"{path}, line 1: {encoding}, expected UTF-8. Convert it: {command}"))
        decoded = codecs.iterdecode(chain([start], _chunks(stream)), encoding, errors="replace")
        return _divided(path, map(str.encode, decoded), b"\n")
    if start.startswith(b"\x1f\x8b"):
        faults.refuse(DataError(f"{path}, line 1: compressed, but the name does not end in .gz. Rename it"))
        stream.seek(0)
        return bounded_lines(path, cast(BinaryIO, gzip.GzipFile(fileobj=stream)))
    if b"\r" in start and not start.endswith(b"\n"):  # all of such a file is one line
        faults.refuse(DataError(rf"{path}: lines end in carriage returns (\r), expected \n. Convert it: tr '\r' '\n'"))
        return _divided(path, chain([start.removeprefix(codecs.BOM_UTF8)], _chunks(stream)), b"\r")
    return bounded_lines(path, stream, start)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: stream.read(BEGINNING), b"")


def _divided(path: Path, chunks: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the lines of chunks of bytes, in which each line ends in `end`; a line feed takes its place."""
    rest, number = b"", 1
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(end)
        yield from (line + b"\n" for line in whole)
        number += len(whole)
        if len(rest) > LONGEST_LINE:
            raise too_long(path, number)
    if rest:
        yield rest


def bounded_lines(path: Path, stream: IO[bytes], start: bytes = b"") -> Iterator[bytes]:
    """Yield the lines of a stream, without its byte order mark, if any; a line longer than `LONGEST_LINE` is an error.

    Args:
        path: The file, for the message.
        start: The beginning of the first line, if that has been read already.
    """
    number = 1
    line = start if start.endswith(b"\n") else start + stream.readline(LONGEST_LINE + 1 - len(start))
    line = line.removeprefix(codecs.BOM_UTF8)
    while line:
        if len(line) > LONGEST_LINE:
            raise too_long(path, number)
        yield line
        line = stream.readline(LONGEST_LINE + 1)
        number += 1


def too_long(path: Path | str, number: int, what: str = "") -> DataError:
    """Return the error for line `number` of a file, or for the entry that begins there, longer than `LONGEST_LINE`.

    Args:
        what: What is too long, for the message; empty for a line.
    """
    what = f"{what} " if what else ""
    return CutShortError(f"{path}, line {number}: {what}longer than {LONGEST_LINE >> 20} MiB. Is it a text file?")


def read_lines(path: Path) -> list[str]:
    """Return all lines of a text file, stripped."""
    if not is_file(path, "Expected a text file."):
        raise DataError(f"{path}: no such file")
    faults = Faults()
    found = [line.strip() for _, line, _ in lines(path, faults)]
    if faults:
        raise DataError(str(faults))
    return found


# Names of files


def is_file(path: Path, expected: str = EXPECTED) -> bool:
    """Return whether the file exists; raise an error if the path is a folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: a folder. {expected}")
    return True


def without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def split_names(pairs: str) -> tuple[Path, ...]:
    """Return the paths in an argument, separated by commas; an existing file with a comma in its name is one path."""
    if "," not in pairs or is_file(Path(pairs)):
        return (Path(pairs),)
    return tuple(Path(part) for part in map(str.strip, pairs.split(",")) if part)


def name_of_files(paths: Sequence[Path]) -> str:
    """Return `pairs` for dir/pairs.tsv.gz, `train` for train.en and train.ko, `en-ko` for en.txt and ko.txt."""
    return "-".join(dict.fromkeys(without_gz(path).stem for path in paths))


def locate(pairs: str | Path | tuple[Path, ...], format: str | None) -> tuple[tuple[Path, ...], str]:
    """Return the paths of one file or of two parallel ones, and the format; unless `pairs` is a tuple, they must exist.

    Two files have the format "text". For one file, its suffix decides; if that is not the suffix of a format, `format`
    decides; if that is None, the first lines do.
    """
    if format is not None and format not in FORMATS:
        raise DataError(f"unknown format '{format}'. {nearest(format, FORMATS)}")
    paths = pairs if isinstance(pairs, tuple) else split_names(str(pairs))
    suffix = without_gz(paths[0]).suffix.lower()[1:] if paths else ""
    said = suffix if suffix in FORMATS[:-1] else None
    wanted = 2 if len(paths) > 1 or str(pairs).endswith(",") or (said or format) == "text" else 1
    if len(paths) != wanted:
        raise DataError(f"{pairs}: expected two parallel files joined by a comma, such as train.en,train.ko")
    for path in paths:
        if paths is not pairs and not is_file(path):
            raise DataError(f"{path}: no such file or corpus. {nearest_file(path, paths) or EXPECTED}")
    return paths, "text" if wanted == 2 else said or format or _guess_format(paths[0])


def _guess_format(path: Path) -> str:
    """Return "tsv" if all non-empty lines among the first 20 contain tabs; otherwise raise an error."""
    beginning = [line for _, line, _ in islice(lines(path, Faults()), 20) if line.strip()]
    if beginning and all("\t" in line for line in beginning):
        return "tsv"
    suffix = without_gz(path).suffix
    shown = f"the suffix '{suffix}'" if suffix else "a name without a suffix"
    raise DataError(
        f"{path}: {shown} does not determine the format. Use --format {', '.join(FORMATS[:-2])} or {FORMATS[-2]}; "
        "two parallel files are joined by a comma: SOURCES,TARGETS"
    )


# Tables


def tsv_rows(path: Path, faults: Faults) -> Iterator[Cells]:
    """Yield the number, the columns and the bit flags of the faults of each line."""
    return ((number, line.split("\t"), fault) for number, line, fault in lines(path, faults))


class _RecordLines:
    """An iterator of lines for `csv.reader` that remembers the lines of each record, which may span several."""

    def __init__(self, numbered: Iterator[Line]) -> None:
        self._lines = numbered
        self._again: deque[Line] = deque()
        self.taken: list[Line] = []
        """The lines of the current record."""
        self._size = 0

    def beginning(self) -> list[str]:
        """Return the first lines, up to `CSV_LINES` or about `LONGEST_LINE` characters, without consuming them."""
        while len(self._again) < CSV_LINES and sum(len(line) for _, line, _ in self._again) < LONGEST_LINE:
            if (line := next(self._lines, None)) is None:
                break
            self._again.append(line)
        return [line for _, line, _ in self._again]

    def begin(self, again: Sequence[Line] = ()) -> None:
        """Begin a new record; the lines in `again` are put back and read again first."""
        self._again.extendleft(reversed(again))
        self.taken, self._size = [], 0

    def __iter__(self) -> "_RecordLines":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.taken.append(line)
        self._size += len(line[1])
        if self._size > LONGEST_LINE:
            raise csv.Error(f"a row longer than {LONGEST_LINE >> 20} MiB")
        return line[1]


def csv_rows(path: Path, faults: Faults) -> Iterator[Cells]:
    """Yield records with the number of their first line. If a record is not valid CSV, its first line is yielded
    as faulty; strict reading then ends, and lenient reading resumes at the next line."""
    source = _RecordLines(lines(path, faults))
    delimiter = columns.delimiter(source.beginning())
    reader = csv.reader(source, delimiter=delimiter, strict=True)  # not strict, an open quote would swallow the file
    while True:
        source.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            (number, first, fault), *rest = source.taken
            reason = str(problem).partition(" - ")[0]  # what follows the dash is advice to programmers
            faults.add(path, number, f"not CSV ({reason})", "Is a quote left open, or not doubled?")
            faults.tell("record", "not CSV: a quote left open, or not doubled", "Correct the quotes of these lines.")
            yield number, first, fault
            if not faults.lenient:  # each line of a long quotation would be the next fault
                return
            source.begin(rest)
            reader = csv.reader(source, delimiter=delimiter, strict=True)
            continue
        fault = 0
        for line in source.taken:
            fault |= line[2]
        yield source.taken[0][0], cells, fault


@dataclass
class Told:
    """Languages that a file states, whether it has a header, and notes about how it was read."""

    languages: Sides = NOTHING
    header: bool = False
    """Whether the first row of a table was taken for a header, and so not for a pair."""
    notes: dict[str, None] = field(default_factory=dict)
    """Notes for the user; each is kept once, even if the file is read several times."""


def examined(path: Path, table: Iterator[Row], told: Told, faults: Faults, way_out: str) -> Iterator[Row]:
    """Yield the rows of a table. If its first rows show that the first one looks like names of columns, or that all
    texts are in quotes, a note says so; for the doctor, such rows are flagged, and the quotes removed.

    Args:
        way_out: Advice with the command that writes a copy without quotes.
    """
    first: list[Row] = []
    size = 0
    for row in table:
        first.append(row)
        size += len(row.source) + len(row.target)
        if not faults.lenient:
            yield row
        if len(first) == FIRST_ROWS or size >= LONGEST_FIELD:
            break
    are_quoted = _are_quoted([row for row in first if row.source and row.target])
    if are_quoted and faults.lenient:
        first, table = [*map(_without_quotes, first)], map(_without_quotes, table)
    elif are_quoted:
        told.notes[f"{path}: all texts are in quotes, which are read as part of them. {way_out}".rstrip()] = None
    whole = [number for number, row in enumerate(first) if row.source and row.target and not row.faults]
    if whole and not (told.header or are_quoted):
        row = first[whole[0]]
        if row.source.lower() != row.target.lower() and columns.look_like_names(
            [(first[number].source, first[number].target) for number in whole]
        ):
            note, advice = columns.possible_names(path, row.line, row.source, row.target)
            faults.tell("first line", "", advice)
            if faults.lenient:
                first[whole[0]] = row._replace(faults=NAMES)
            else:
                told.notes[note] = None
    if faults.lenient:
        yield from first
    yield from table


def _are_quoted(rows: Sequence[Row]) -> bool:
    """Return whether nearly all rows after the first, which may be a header, have quotes around both texts."""
    return len(rows) > 1 and sum(_without_quotes(row) is not row for row in rows[1:]) >= _QUOTED * (len(rows) - 1)


def _without_quotes(row: Row) -> Row:
    """Return a row with the texts in its quotes; a row without quotes around both, as CSV has them, is unchanged."""
    texts = [text[1:-1] for text in row[1:3] if len(text) > 1 and text[0] == text[-1] == '"']
    if len(texts) < 2 or any('"' in text.replace('""', "") for text in texts):
        return row
    source, target = (text.replace('""', '"').strip() for text in texts)
    return row._replace(source=source, target=target, faults=row.faults | QUOTED)


def in_blocks(pairs: Iterable[Pair], most: int) -> Iterator[list[Pair]]:
    """Yield the pairs in blocks of `most`; a block ends earlier once its texts have `LONGEST_FIELD` characters.

    A block is held in memory, and a single text may have millions of characters.
    """
    block: list[Pair] = []
    size = 0
    for pair in pairs:
        block.append(pair)
        size += len(pair.source) + len(pair.target)
        if len(block) == most or size >= LONGEST_FIELD:
            yield block
            block, size = [], 0
    if block:
        yield block


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs as JSON lines, with their further references."""
    rows = (
        {"source": pair.source, "target": pair.target} | ({"references": pair.references} if pair.references else {})
        for pair in pairs
    )
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
