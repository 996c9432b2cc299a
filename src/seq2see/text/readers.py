"""Files of pairs: TSV, CSV, JSONL, two parallel text files and translators' catalogues, plain or .gz, read as a stream.

Every format is a generator of rows, (line number, columns); `Pairs` checks the columns and makes the `Pair`s. A bad row
does not stop the reading: the rest of the file is looked through, so that one message tells all that is wrong with it.
"""

import contextlib
import csv
import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final

from seq2see.errors import DataError, nearest
from seq2see.text import file_names, files, languages
from seq2see.text.catalogues import mo_rows, po_rows, tmx_rows
from seq2see.text.files import Faults, Row, Told
from seq2see.text.pair import NOTHING, Pair, Sides

SEPARATORS: Final = {"tsv": "<TAB>", "csv": ",", "jsonl": ", "}
"""Between the columns of the formats that have any."""
BEGINNING: Final = 50
"""Lines of a CSV file that are looked at to see what divides its columns."""
HEADERS: Final = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("source_text", "target_text"),
    ("q", "a"),
    ("question", "answer"),
    ("input", "output"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "reply"),
    ("word", "phones"),
    ("text", "translation"),
    ("sentence", "translation"),
    ("질문", "답변"),
    ("원문", "번역문"),
    ("text", "label"),
)
"""Columns and fields that say by their names what they are, those to be preferred first; so do two languages."""
OWN: Final = HEADERS[0]
"""What we call them ourselves: such a record of JSONL may have further references, too."""
REFERENCE: Final = re.compile(r"(ref|reference|target|tgt)s?[ _-]?\d*")


class Pairs:
    """The pairs of a file or of two parallel files, as often as they are iterated over.

    Pairs with an empty side are left out; `dropped` says how many in the last complete iteration. `languages` and
    `notes` are what is known of the file: of a header only once the first pair has come, of the whole at the end.

    Args:
        pairs: "pairs.tsv", "pairs.jsonl.gz", or "train.en,train.ko"; or paths that exist.
        format: "tsv", "csv", "jsonl", "po", "mo", "tmx" or "text" (parallel), where the suffix does not say it.
        references: take columns after the second as further references; without it they are an error.
        columns: which columns are the source and the target, by name or by number from 1; a dotted path in JSONL.
        languages: of source and target, over what the file says; a TMX file may have more than two.
        bound: the columns must be there; else they may be those of another file, and one without them is read as if
            none had been named.
    """

    def __init__(
        self,
        pairs: str | Path | tuple[Path, ...],
        format: str | None = None,
        references: bool = False,
        columns: Sides = NOTHING,
        languages: Sides = NOTHING,
        bound: bool = True,
    ) -> None:
        self.paths = pairs if isinstance(pairs, tuple) else file_names.locate(str(pairs), format)
        self.format = "text" if len(self.paths) == 2 else file_names.format_of(self.paths[0], format)
        self.references = references
        self.columns = columns
        self.name = file_names.name_of_files(self.paths)
        self.dropped = 0
        self._given = languages
        self._bound = bound
        self._told = Told()
        if len(self.paths) == 1 and format not in (None, self.format):
            self._note(f"its name says {self.format}, so that --format {format} is not for it. If it is, rename it")
        self._keys = (columns.source or OWN[0], columns.target or OWN[1]) if any(columns) else None
        if self.format == "text":
            self._told.languages = Sides(*map(file_names.language_of, self.paths))
        elif self.format == "jsonl" and self._keys:
            self._told.languages = Sides(*map(_language, self._keys))

    @property
    def has_columns(self) -> bool:
        return self.format in SEPARATORS

    @property
    def languages(self) -> Sides:
        """Of source and target: as given, else as the file says."""
        return Sides(*(given or told for given, told in zip(self._given, self._told.languages, strict=True)))

    @property
    def notes(self) -> list[str]:
        """What the user should hear about how the file was read."""
        return list(self._told.notes)

    def _note(self, text: str) -> None:
        self._told.notes[f"{self.paths[0]}: {text}"] = None

    def _let_go(self) -> None:
        """Read on as if no columns had been named: those that were are another file's."""
        self._note(f"no {' and '.join(map(repr, filter(None, self.columns)))}, so it is read without these options")
        self.columns, self._keys, self._bound = NOTHING, None, True

    def __iter__(self) -> Iterator[Pair]:
        place = f"{','.join(map(str, self.paths))}, {'entry' if self.format == 'mo' else 'line'}"
        faults = Faults()
        told, language = self._told, self._given.target
        dropped = 0
        for number, columns in self.rows(faults):
            columns = trimmed(columns)
            if not any(columns):
                dropped += 1  # a blank line too is a pair with nothing in it
            elif len(columns) < 2 or (len(columns) > 2 and not self.references):
                faults.add(self.paths[0], number, *self._wrong(columns))
            elif not (columns[0] and columns[1]):
                dropped += 1
            elif not faults:
                further = tuple(filter(None, columns[2:]))
                yield Pair(columns[0], columns[1], f"{place} {number}", further, language or told.languages.target)
        if faults:
            raise DataError(str(faults))
        self.dropped = dropped

    def rows(self, faults: Faults) -> Iterator[Row]:
        """Rows as the format has them, the columns chosen; what is wrong with the others goes into `faults`."""
        path = self.paths[0]
        match self.format:
            case "tsv":
                return self._chosen(_tsv_rows(path, faults), faults)
            case "csv":
                return self._chosen(_csv_rows(path, faults), faults)
            case "jsonl":
                return self._jsonl_rows(faults)
            case "po":
                return po_rows(path, faults, self._told)
            case "mo":
                return mo_rows(path, self._told)
            case "tmx":
                return tmx_rows(path, faults, self._given, self._told)
        return _parallel_rows(self.paths[0], self.paths[1], faults)

    def _wrong(self, columns: list[str]) -> tuple[str, str]:
        """What is wrong with a row of so many columns, and the likely reason."""
        hint = self._way_out()
        if len(columns) == 1 and self.format == "tsv" and "," in columns[0]:
            hint = "Is the file comma-separated?"
        if len(columns) == 1 and self.format == "csv" and "\t" in columns[0]:
            hint = "Is the file tab-separated?"
        return f"{_count(columns)}, expected 2 (source{SEPARATORS[self.format]}target)", hint

    def _way_out(self) -> str:
        """The command that writes a copy without faulty rows; it would lose further references, so not with those."""
        if self.references:
            return ""
        chosen = zip(("--source-column", "--target-column"), self.columns, strict=True)
        words = [str(self.paths[0]), *(word for option, name in chosen if name for word in (option, name))]
        return f"Write a copy without such rows: seq2see doctor {shlex.join(words)} --write clean.tsv"

    # Tables

    def _chosen(self, rows: Iterator[Row], faults: Faults) -> Iterator[Row]:
        """Source, target and further references of each row, by what the first row or the user says."""
        for number, cells in rows:
            if any(cell.strip() for cell in cells):
                break
            yield number, []
        else:
            return
        names = [cell.strip() for cell in cells]
        chosen, is_header = self.choose(names)
        if not is_header:
            rows = chain([(number, cells)], rows)
        if chosen is None:
            if len(names := trimmed(names)) > 2 and not self.references:
                raise DataError(
                    f"{self.paths[0]}, line {number}: {_count(names)}, expected 2 (source{SEPARATORS[self.format]}"
                    f"target). To choose among {_listed(names)}, add for example: {options_for(names)}"
                )
            yield from rows
            return
        needed = max(chosen[:2]) + 1
        for number, cells in rows:
            if not any(cell.strip() for cell in cells):
                yield number, []
            elif len(cells) < needed:
                faults.add(self.paths[0], number, f"{_count(cells)}, expected {len(names)}", self._way_out())
            else:
                yield number, [cells[index] for index in chosen if index < len(cells)]

    def choose(self, names: list[str]) -> tuple[list[int] | None, bool]:
        """Places of source, target and further references in a table, and whether its first row names them.

        None: the columns as they are, nothing was said of them.
        """
        chosen, is_header = self._by_name(trimmed(names)), True
        spoken = len(names) > 2 and all(map(languages.known, trimmed(names)))
        if any(self.columns):
            try:
                chosen, is_header = self._by_option(names, spoken or chosen is not None)
            except DataError:
                if self._bound:
                    raise
                self._let_go()
        if chosen is None and spoken:
            raise DataError(
                f"{self.paths[0]}: {len(names)} languages, {_listed(names)}. "
                f"Choose two, for example: {_options(names[0], names[1])}"
            )
        if chosen is None or not is_header:
            self._told.languages = Sides()
            return chosen, False
        self._told.languages = Sides(*(languages.known(names[index]) for index in chosen))
        if not any(self.columns):
            source, target = (names[index] for index in chosen)
            self._note(f"the source is column '{source}', the target is column '{target}'")
        if self.references:
            chosen += [i for i, name in enumerate(names) if i not in chosen and REFERENCE.fullmatch(name.lower())]
        return chosen, True

    def _by_name(self, names: list[str]) -> list[int] | None:
        """Places of columns with well-known names."""
        small = [name.lower() for name in names]
        spoken = {place: code for place, name in enumerate(names) if (code := languages.known(name))}
        if _is_numbered(names):
            spoken.pop(0, None)
        if any(self._given):  # a language that was asked for, and the other one
            sides = [
                [place for place, code in spoken.items() if wanted is not None and languages.matches(wanted, code)]
                for wanted in self._given
            ]
            rest = [place for place in spoken if place not in chain(*sides)]
            source, target = (found or rest for found in sides)
            if len(source) == len(target) == 1 and source != target:
                return [source[0], target[0]]
        for source_name, target_name in HEADERS:
            if source_name in small and target_name in small:
                return [small.index(source_name), small.index(target_name)]
        if len(spoken) == 2 and are_languages(*(names[place] for place in spoken)):
            return list(spoken)
        return None

    def _by_option(self, names: list[str], is_header: bool) -> tuple[list[int], bool]:
        """Places of the columns that were asked for; a column by its name makes the first row a header."""
        places: list[int] = []
        small = [name.lower() for name in names]
        for option, wanted in zip(("--source-column", "--target-column"), self.columns, strict=True):
            if wanted is None:
                if len(names) != 2:
                    raise DataError(f"{self.paths[0]}: {_count(names)} ({_listed(names)}): give {option}, too")
                places.append(-1)
            elif wanted.strip().lower() in small:
                places.append(names.index(wanted) if wanted in names else small.index(wanted.strip().lower()))
                is_header = True
            elif wanted.isdecimal() and 1 <= int(wanted) <= len(names):
                places.append(int(wanted) - 1)
            else:
                close = difflib.get_close_matches(wanted.lower(), small, n=1, cutoff=0.5)
                meant = f" Did you mean '{names[small.index(close[0])]}'?" if close else ""
                raise DataError(
                    f"{self.paths[0]}: no column '{wanted}' ({option}).{meant} "
                    f"There are {_listed(names)}; a number counts from 1"
                )
        places = [1 - max(places) if place < 0 else place for place in places]
        if places[0] == places[1]:
            raise DataError(f"{self.paths[0]}: column '{names[places[0]]}' cannot be both source and target")
        return places, is_header

    # JSONL

    def _jsonl_rows(self, faults: Faults) -> Iterator[Row]:
        path = self.paths[0]
        for number, line in enumerate(files.lines(path, faults), 1):
            if not line.strip():
                yield number, []
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                faults.add(path, number, "not JSON", "JSONL has one record on each line.")
                continue
            columns = self.columns_of(record)
            if columns is None:
                faults.add(path, number, *self.wrong_record(record))
            elif not all(map(_is_text, columns)):
                faults.add(path, number, "half of a surrogate pair (\\ud800 to \\udfff), which is not text")
            else:
                yield number, columns

    def columns_of(self, record: Any) -> list[str] | None:
        """Source, target and further references of a record; None where one of them is no text."""
        if not self._bound:  # the first record decides
            if self._keys and all(_field(record, key) is None for key in self._keys):
                self._let_go()
                self._told.languages = Sides()
            self._bound = True
        if isinstance(record, list) and record and not any(self.columns):
            columns = record
        else:
            keys = self._keys_of(record)
            columns = [_field(record, key) for key in keys]
            further = record.get("references", []) if isinstance(record, dict) else []
            if not any(self.columns) and keys == OWN:
                columns += further if isinstance(further, list) else [None]
        if not all(isinstance(column, str) for column in columns):
            return None
        return columns if self.references or isinstance(record, list) else columns[:2]

    def _keys_of(self, record: Any) -> tuple[str, str]:
        """The fields of source and target, as asked for; else those of the first record, by well-known names.

        Of the first, since fields have no order: {"en", "de"} and {"de", "en"} are the same direction.
        """
        if self._keys is None and isinstance(record, dict):
            names = list(record)
            found = self._by_name(names)
            self._keys = (names[found[0]], names[found[1]]) if found else OWN
            if self._keys != OWN:
                self._told.languages = Sides(*map(languages.known, self._keys))
                source, target = self._keys
                self._note(f"the source is field '{source}', the target is field '{target}'")
        return self._keys or OWN

    def wrong_record(self, record: Any) -> tuple[str, str]:
        """What is wrong with a record that lacks a field, and the options that name those it has."""
        fields = list(_fields(record))
        keys = self._keys or OWN
        if any(self.columns) or keys != OWN:
            missing = [key for key in keys if key not in fields]
            fault = f"no text in {' and '.join(map(repr, missing))}"
            meant = " ".join(nearest(name, fields) for name in missing) if fields else ""
            return fault, f"{meant} There are {_listed(fields)}." if "mean" in meant else meant
        fault = 'expected {"source": "...", "target": "..."} or ["...", "..."]'
        if not isinstance(record, dict) or len(fields) < 2 or {"source", "target"} & record.keys():
            return fault, ""
        return fault, f"To choose among {_listed(fields)}, add for example: {options_for(fields)}"


def trimmed(cells: Sequence[str]) -> list[str]:
    """Cells without blanks around them, and without empty ones at the end: a tab that ends a line begins no column."""
    columns = [cell.strip() for cell in cells]
    while len(columns) > 2 and not columns[-1]:
        columns.pop()
    return columns


def _count(columns: Sequence[object]) -> str:
    return "1 column" if len(columns) == 1 else f"{len(columns)} columns"


def _listed(names: Sequence[str]) -> str:
    """Names of columns for a message, or the texts that stand in the place of names, cut short."""
    shown = [name if len(name) <= 24 else f"{name[:23]}…" for name in names[:12]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _examples(names: Sequence[str]) -> tuple[str, str]:
    """Two columns to choose: well-known ones by name, else the first two; by number if those are no names."""
    first = int(_is_numbered(names))
    names = names[first:]
    small = {name.lower(): name for name in names}
    for source, target in HEADERS:
        if source in small and target in small:
            return small[source], small[target]
    spoken = [name for name in names if _language(name)]
    if len(spoken) >= 2:
        return spoken[0], spoken[1]
    looks_named = len(small) == len(names) and all(re.fullmatch(r"[^\W\d][\w.:-]{0,30}", name) for name in names)
    return (names[0], names[1]) if looks_named else (str(first + 1), str(first + 2))


def are_languages(one: str, other: str) -> bool:
    """Whether two cells are a header that names two languages: `en` and `de`, `English` and `Korean`, `ko` and `en-US`.

    `is` and `est` are Icelandic and Estonian by their codes, and the first words of a dictionary: people write codes of
    two letters or of three, not both, so codes of different lengths are words.
    """
    codes = languages.known(one), languages.known(other)
    alike = len(one) == len(other) or max(len(one), len(other)) > 3 or not (one + other).isascii()
    return None not in codes and codes[0] != codes[1] and alike


def _is_numbered(names: Sequence[str]) -> bool:
    """Whether the first column numbers the rows: `id` is then not Indonesian, nor `no` Norwegian."""
    return len(names) > 2 and names[0].lower() in ("id", "no")


def options_for(names: Sequence[str]) -> str:
    """The options that choose two of these columns, as an example."""
    return _options(*_examples(names))


def _options(source: str, target: str) -> str:
    return f"--source-column {shlex.quote(source)} --target-column {shlex.quote(target)}"


def _tsv_rows(path: Path, faults: Faults) -> Iterator[Row]:
    for number, line in enumerate(files.lines(path, faults), 1):
        yield number, line.split("\t")


def delimiter_of(beginning: Sequence[str]) -> str:
    """What divides the columns of a CSV file that begins so: a comma, or the semicolon of many European spreadsheets.

    The semicolon does where a comma leaves the first row whole, or where only it gives two columns each time.
    """
    commas, semicolons = (_widths(beginning, delimiter) for delimiter in ",;")
    if not (commas and semicolons) or semicolons[0] == 1:
        return ","
    return ";" if commas[0] == 1 or ({*semicolons} == {2} != {*commas}) else ","


def _widths(lines: Sequence[str], delimiter: str) -> list[int]:
    """How many columns the rows have; not strictly, since with the wrong delimiter quotes stand in odd places."""
    widths = []
    with contextlib.suppress(csv.Error):
        for row in csv.reader(lines, delimiter=delimiter):
            if any(cell.strip() for cell in row):
                widths.append(len(row))
    return widths


def _csv_rows(path: Path, faults: Faults) -> Iterator[Row]:
    """Rows by the line they begin on; a quoted field may run over several."""
    lines = files.Rows(files.lines(path, faults))
    # Not strict, an open quote would swallow the file silently.
    reader = csv.reader(lines, delimiter=delimiter_of(lines.beginning(BEGINNING)), strict=True)
    while True:
        start, lines.size = reader.line_num + 1, 0
        try:
            columns = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            # The reader has lost its place, so this is the last fault it can tell.
            reason = str(problem).partition(" - ")[0]  # what follows the dash is advice to programmers
            faults.add(path, start, f"not CSV ({reason})", "Is a quote left open, or not doubled?")
            return
        yield start, columns


def _language(key: str) -> str | None:
    """The language that the last step of a dotted path names: `translation.en` -> `en`."""
    return languages.known(key.rpartition(".")[2])


def _field(record: Any, name: str) -> Any:
    """What a record has under a key, a dotted path of keys, or a number from 1 in a list; None where it has nothing."""
    if isinstance(record, dict) and name in record:
        return record[name]
    if isinstance(record, list) and name.isdecimal() and 1 <= int(name) <= len(record):
        return record[int(name) - 1]
    head, dot, rest = name.partition(".")
    return _field(record.get(head), rest) if dot and isinstance(record, dict) else None


def _fields(record: Any, before: str = "") -> Iterable[str]:
    """Every path in a record that leads to a text, a few levels deep."""
    if isinstance(record, dict) and before.count(".") < 4:
        for key, value in record.items():
            if isinstance(value, str):
                yield f"{before}{key}"
            else:
                yield from _fields(value, f"{before}{key}.")
    elif isinstance(record, list) and not before:
        yield from (str(number) for number, value in enumerate(record, 1) if isinstance(value, str))


def _is_text(column: str) -> bool:
    try:
        column.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parallel_rows(source: Path, target: Path, faults: Faults) -> Iterator[Row]:
    sources = targets = 0
    both = zip_longest(files.lines(source, faults), files.lines(target, faults))
    for number, (left, right) in enumerate(both, 1):
        sources += left is not None
        targets += right is not None
        if left is not None and right is not None:
            yield number, [left, right]
    if sources != targets:
        counts = f"{source} has {sources:,} lines, {target} has {targets:,}"
        raise DataError(f"{counts}: parallel files must have one line each for every pair")
