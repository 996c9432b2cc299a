"""Open the pairs that a command names: files of pairs, and built-in or downloaded corpora by name."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final

from seq2see.errors import DataError, nearest, nearest_file
from seq2see.text import catalogues, columns, dates, downloads, languages, pronouns, rows
from seq2see.text.dates import Split
from seq2see.text.downloads import Remote
from seq2see.text.pair import NOTHING, Pair, Sides
from seq2see.text.rows import NARROW, RECORD, SEPARATORS, UNPAIRED, WIDE, Cells, Faults, ReadingOptions, Row, Told

DEFAULT: Final = ReadingOptions()
_SUSPECTS: Final = {"tsv": ",;|", "csv": "\t;|", "jsonl": ""}
"""For each format, the separators of other formats: if a row has only one column and contains one of them, the message
asks whether the format is right.
"""
_LONGEST_NAME: Final = 40
"""Maximum number of characters of a cell of the first row that may be the name of a column or language."""


class Pairs:
    """The pairs of a file or of two parallel files, which are read again at each iteration.

    Pairs with an empty side are left out; `dropped` is their number in the last complete iteration. `languages` and
    `notes` are facts about the file: those of a header are known after the first pair, those of the whole file at the
    end.

    Args:
        pairs: "pairs.tsv", "pairs.jsonl.gz", or "train.en,train.ko"; or a tuple of paths, which need not exist yet.
        references: Read further references: columns after the second or, if there is a header, columns with names such
            as `reference2`. Without it, more than two columns without a header are an error.
        bound: Whether the file must have the named columns. If not, they may be those of another file, and a file
            without them is read as if none had been named.
    """

    def __init__(
        self,
        pairs: str | Path | tuple[Path, ...],
        options: ReadingOptions = DEFAULT,
        references: bool = False,
        bound: bool = True,
    ) -> None:
        self.paths, self.format = rows.locate(pairs, options.format)
        self.references = references
        self.columns = options.columns
        self.name = rows.name_of_files(self.paths)
        self.dropped = 0
        self._given = languages.checked(options.languages) if any(options.languages) else options.languages
        self._bound = bound
        self._told = Told()
        if len(self.paths) == 1 and options.format not in (None, self.format):
            self._note(f"--format {options.format} is ignored: the suffix says .{self.format}")
        asked = self.columns
        self._keys = (asked.source or columns.OWN[0], asked.target or columns.OWN[1]) if any(asked) else None
        if self.format == "text":
            self._told.languages = Sides(*map(_language_of, self.paths))
        elif self.format == "jsonl" and self._keys:
            self._told.languages = Sides(*map(columns.language_of_path, self._keys))

    @property
    def has_columns(self) -> bool:
        return self.format in SEPARATORS

    @property
    def languages(self) -> Sides:
        """Return the languages of source and target: as given in the options, else as the file says."""
        return Sides(*(given or told for given, told in zip(self._given, self._told.languages, strict=True)))

    @property
    def notes(self) -> list[str]:
        """Return notes for the user about how the file was read."""
        return list(self._told.notes)

    def _note(self, text: str) -> None:
        self._told.notes[f"{self.paths[0]}: {text}"] = None

    def __iter__(self) -> Iterator[Pair]:
        place = f"{','.join(map(str, self.paths))}, {'' if self.format == 'mo' else 'line '}"
        faults = Faults()
        told, language = self._told, self._given.target
        dropped, are_narrow = 0, True
        for number, source, target, fault, further in self.rows(faults):
            are_narrow = are_narrow and (fault == NARROW or not source)
            if not (source and target):
                dropped += 1  # a blank line too is a pair with nothing in it
            elif not faults:
                references = tuple(filter(None, further)) if further else ()
                yield Pair(source, target, f"{place}{number}", references, language or told.languages.target)
        if faults:
            advice = self._way_out()
            if are_narrow and self.format == "tsv" and not told.header and advice in faults.hints:
                faults.hints = {"No line has a tab: replace what separates source and target by a tab": None}
            raise DataError(str(faults))
        self.dropped = dropped

    def rows(self, faults: Faults) -> Iterator[Row]:
        """Yield every row with flags of its faults, which are also reported to `faults`."""
        path = self.paths[0]
        match self.format:
            case "tsv" | "csv":
                read = rows.tsv_rows if self.format == "tsv" else rows.csv_rows
                table = self._table(read(path, faults), faults)
                return rows.examined(path, table, self._told, faults, self._way_out("quotes"))
            case "jsonl":
                return self._records(faults)
            case "text":
                return self._parallel(faults)
        return self._entries(faults)

    def _table(self, table: Iterable[Cells], faults: Faults) -> Iterator[Row]:
        """Yield the rows of a table: the columns that the user or the first row names, else the first two."""
        names: list[str] = []
        places: list[int] | None = None
        for number, cells, fault in table:
            if isinstance(cells, str):
                yield Row(number, cells.strip(), "", fault | RECORD)
                continue
            texts = [cell.strip() for cell in cells]
            if not any(texts):
                yield Row(number, "", "", fault)
                continue
            if not names:
                names = texts
                places, self._told.header = self._choose(names, number, faults)
                if self._told.header:
                    continue
            if places is None:
                two = len(texts) == 2
                yield Row(number, texts[0], texts[1], fault) if two else self._row(number, texts, fault, faults)
                continue
            if len(texts) <= (last := max(places[:2])):
                fault |= NARROW
                faults.add(self.paths[0], number, f"{columns.count(texts)}, expected {len(names)}", self._way_out())
                faults.tell("columns", f"fewer than {last + 1} columns", "Correct these lines.")
            source, target, *further = (texts[place] if place < len(texts) else "" for place in places)
            yield Row(number, source, target, fault, tuple(further))

    def _row(self, number: int, texts: list[str], fault: int, faults: Faults) -> Row:
        """Return the row of a table without column names: the first column is the source, the second the target, others
        are references. Other numbers of columns than expected are faults."""
        while len(texts) > 2 and not texts[-1]:  # a tab that ends a line begins no column
            texts.pop()
        if len(texts) == 2:
            return Row(number, texts[0], texts[1], fault)
        if len(texts) == 1:
            fault |= NARROW
            if any(separator in texts[0] for separator in _SUSPECTS[self.format]):
                what = f"not two columns, separated by {SEPARATORS[self.format]}"
                faults.tell("columns", what, "Is the suffix of its name, or --format, right?")
        elif not self.references:
            fault |= WIDE
        if fault & (NARROW | WIDE):
            hint = self._way_out()
            if len(texts) == 1 and self.format == "tsv" and "," in texts[0]:
                hint = "Is the file comma-separated?"
            if len(texts) == 1 and self.format == "csv" and "\t" in texts[0]:
                hint = "Is the file tab-separated?"
            expected = f"expected 2 (source{SEPARATORS[self.format]}target)"
            faults.add(self.paths[0], number, f"{columns.count(texts)}, {expected}", hint)
        return Row(number, texts[0], "".join(texts[1:2]), fault, tuple(texts[2:]))

    def _way_out(self, faulty: str = "such rows") -> str:
        """Return advice with the command that writes a copy without faults; empty if it would lose references."""
        if self.references:
            return ""
        chosen = ReadingOptions(columns=self.columns).words()
        command = shlex.join([str(self.paths[0]), *chosen])
        return f"Write a copy without {faulty}: seq2see doctor {command} --write clean.tsv"

    def _choose(self, names: list[str], number: int, faults: Faults) -> tuple[list[int] | None, bool]:
        """Return the column indices of source, target and further references, or None if no names are known; and
        whether the first row, `names`, is a header."""
        path, spoken = self.paths[0], self._given
        self._told.languages = NOTHING
        short = {name.lower() for name in names if len(name) <= _LONGEST_NAME}
        places, is_header = None, False
        if any(self.columns) or len(short) > 1:  # the names of a header are short, and differ
            try:
                places, is_header = columns.choose(names, self.columns, spoken)
            except DataError as problem:
                if any(self.columns) and not self._bound:
                    self._let_go()
                    return self._choose(names, number, faults)
                problem = DataError(f"{path}: {problem}")
                if any(self.columns):
                    raise problem from None  # the user's slip, also for the doctor
                faults.refuse(problem)
                return [0, 1], True
        if places is None:
            while len(names) > 2 and not names[-1]:
                names.pop()
            if len(names) > 2 and not self.references:
                options = columns.options_for(names)
                advice = f"Training refuses it. Only the first two are examined. To choose, add for example: {options}"
                faults.tell("further", "more than two columns", advice)
                if not faults.lenient:
                    raise DataError(
                        f"{path}, line {number}: {columns.count(names)}, expected 2 (source{SEPARATORS[self.format]}"
                        f"target). The first row is {columns.listed(names)}. To choose, add for example: {options}"
                    )
            elif len(names) > 2:
                advice = f"to choose, add for example: {columns.options_for(names)}"
                self._note(f"columns after the second are taken as further references; {advice}")
            return None, False
        if is_header:
            source, target = (names[place] for place in places)
            self._told.languages = Sides(languages.known(source), languages.known(target))
            if not any(self.columns):
                self._note(f"the source is column '{source}', the target is column '{target}'")
            if self.references:
                further = (i for i, name in enumerate(names) if columns.REFERENCE.fullmatch(name.lower()))
                places += [place for place in further if place not in places]
        return places, is_header

    def _let_go(self) -> None:
        """Ignore the columns that the user named, because this file does not have them, and add a note about it."""
        missing = " and ".join(map(repr, filter(None, self.columns)))
        self._note(f"no column {missing}, so --source-column and --target-column are ignored for this file")
        self.columns, self._keys, self._bound = NOTHING, None, True

    def _records(self, faults: Faults) -> Iterator[Row]:
        """Yield the rows of a JSONL file."""
        path = self.paths[0]
        for number, line, fault in rows.lines(path, faults):
            if not line.strip():
                yield Row(number, "", "", fault)
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                wrong = rows.NOT_JSON
            else:
                texts = self._texts_of(record)
                if texts is not None:
                    if not all(map(_is_text, texts)):
                        faults.add(path, number, "half of a surrogate pair (\\ud800 to \\udfff), which is not text")
                    yield self._row(number, [text.strip() for text in texts], fault, faults)
                    continue
                wrong = columns.wrong_record(record, self._keys or columns.OWN, self.columns)
            faults.add(path, number, *wrong)
            faults.tell("record", *wrong)
            yield Row(number, line.strip(), "", fault | RECORD)

    def _texts_of(self, record: Any) -> list[str] | None:
        """Return source, target and further references of a record; None if one of them is not a string."""
        if not self._bound:  # the first record decides
            if self._keys and all(columns.field(record, key) is None for key in self._keys):
                self._let_go()
                self._told.languages = NOTHING
            self._bound = True
        if isinstance(record, list) and record and not any(self.columns):
            texts = record
        else:
            keys = self._keys_of(record)
            fields = record if isinstance(record, dict) else {}
            texts = [fields[key] if key in fields else columns.field(record, key) for key in keys]
            further = fields.get("references", [])
            if not any(self.columns) and keys == columns.OWN:
                texts += further if isinstance(further, list) else [None]
        if not all(isinstance(text, str) for text in texts):
            return None
        return texts if self.references or isinstance(record, list) else texts[:2]

    def _keys_of(self, record: Any) -> tuple[str, str]:
        """Return the fields of source and target: those of the options, else well-known ones of the first record.

        The first record decides, since fields have no order: {"en", "de"} and {"de", "en"} are the same direction.
        """
        if self._keys is None and isinstance(record, dict):
            names = list(record)
            is_own = record.keys() >= {*columns.OWN} and not any(self._given)
            found = None if is_own else columns.by_name(names, self._given)
            self._keys = (names[found[0]], names[found[1]]) if found else columns.OWN
            if self._keys != columns.OWN:
                self._told.languages = Sides(*map(languages.known, self._keys))
                source, target = self._keys
                self._note(f"the source is field '{source}', the target is field '{target}'")
        return self._keys or columns.OWN

    def _entries(self, faults: Faults) -> Iterator[Row]:
        """Yield the entries of a .po, .mo or TMX file, also untranslated ones. A DataError ends the file; `faults`
        raises it or, if lenient, records it."""
        read = {"po": catalogues.po_rows, "mo": catalogues.mo_rows, "tmx": catalogues.tmx_rows}[self.format]
        strict = Faults() if faults.lenient else faults
        try:
            for number, (source, target) in read(self.paths[0], strict, self._told, self._given):
                yield Row(f"entry {number}" if self.format == "mo" else number, source.strip(), target.strip())
        except DataError as problem:
            faults.refuse(problem)
        if strict and faults.lenient:
            faults.refuse(DataError(str(strict)))

    def _parallel(self, faults: Faults) -> Iterator[Row]:
        sources = targets = 0
        for number, (left, right) in enumerate(zip_longest(*(rows.lines(path, faults) for path in self.paths)), 1):
            sources, targets = number if left else sources, number if right else targets
            _, source, fault = left or (number, "", UNPAIRED)
            _, target, more = right or (number, "", UNPAIRED)
            yield Row(number, source.strip(), target.strip(), fault | more)
        if sources != targets and not faults.lenient:
            counts = f"{self.paths[0]} has {sources:,} lines, {self.paths[1]} has {targets:,}"
            command = shlex.join(["seq2see", "doctor", ",".join(map(str, self.paths))])
            raise DataError(f"{counts}: parallel files must have the same number of lines. Find the place: {command}")


def _language_of(path: Path) -> str | None:
    """Return the language in the name of a file: `train.en` and `en.txt` have one; None for `train.txt`."""
    plain = rows.without_gz(path)
    return languages.known(plain.suffix[1:]) or languages.known(plain.stem)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Corpus:
    """Pairs to train on and, if the corpus has them, to validate and test on; each set can be iterated over
    repeatedly.
    """

    name: str
    train: "Parts"
    valid: Iterable[Pair] | None = None
    test: Iterable[Pair] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings tuned for this corpus; they override those that a survey of it suggests."""
    words: Sequence[str] = ()
    """Arguments by which the command line names the corpus."""


class Parts:
    """The pairs of one or several files or built-in corpora, one after another, and facts about them,
    which are complete after an iteration."""

    def __init__(self, *parts: "Pairs | BuiltIn") -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Pair]:
        return chain.from_iterable(self.parts)

    @property
    def files(self) -> list[str]:
        """Return the files as the command line names them; a built-in corpus has none."""
        return [",".join(map(str, part.paths)) for part in self.parts if isinstance(part, Pairs)]

    @property
    def dropped(self) -> int:
        return sum(part.dropped for part in self.parts)

    @property
    def notes(self) -> list[str]:
        return [note for part in self.parts for note in part.notes]

    @property
    def languages(self) -> Sides:
        """Return the languages of source and target; None for a side on which the parts differ."""
        sides = (set(side) for side in zip(*(part.languages for part in self.parts), strict=True))
        return Sides(*(side.pop() if len(side) == 1 else None for side in sides))


@dataclass(frozen=True)
class BuiltIn:
    """A split of a built-in corpus, generated again at each iteration."""

    corpus: str
    split: Split
    dropped = 0
    notes = ()
    has_columns = False

    @property
    def languages(self) -> Sides:
        return Sides() if self.corpus == "dates" else Sides("en", pronouns.LANGUAGES[self.corpus])

    def __iter__(self) -> Iterator[Pair]:
        return dates.pairs(self.split) if self.corpus == "dates" else pronouns.pairs(self.corpus, self.split)


BUILT_IN: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "dates": dates.SETTINGS,
    **dict.fromkeys(pronouns.LANGUAGES, pronouns.SETTINGS),
}
"""Built-in corpora by name, and the settings that were tuned for each."""


def open_corpus(
    pairs: str | Path | Sequence[str | Path],
    options: ReadingOptions = DEFAULT,
    watch: downloads.Watch = downloads.unwatched,
) -> Corpus:
    """Open a corpus by its name, one file or two parallel files; several arguments are concatenated in their order.

    `./dates` is always a file.

    Args:
        watch: Called with the progress while a corpus is downloaded.
    """
    words = _words(pairs)
    if len(words) == 1 and words[0] in BUILT_IN:
        train, valid, test = (Parts(BuiltIn(words[0], split)) for split in ("train", "valid", "test"))
        return Corpus(words[0], train, valid, test, BUILT_IN[words[0]], words)
    parts: list[Pairs | BuiltIn] = []
    for word in words:
        # Columns are those of the first file that has any; the others may have other ones.
        bound = not any(part.has_columns for part in parts)
        parts.append(_named(word, "train", options, watch) or _file(word, options, bound=bound))
    _check_columns(words, parts, options)
    found = downloads.REMOTES.get(words[0]) if len(words) == 1 else None
    given = {split: Parts(_split(found, split, options)) for split in found.splits} if found else {}
    return Corpus(
        name_of(pairs), Parts(*parts), given.get("valid"), given.get("test"), words=[*words, *options.words()]
    )


def _named(name: str, split: Split, options: ReadingOptions, watch: downloads.Watch) -> "Pairs | BuiltIn | None":
    """Return a split of a corpus by name, which is downloaded if needed; None if no corpus has this name."""
    if name in BUILT_IN:
        return BuiltIn(name, split)
    found = downloads.REMOTES.get(name)
    if found is None:
        return None
    wanted = _split(found, split, options)  # first: a corpus without that split need not be downloaded
    downloads.download(found.name, found.files, watch)
    return wanted


def _split(found: Remote, split: Split, options: ReadingOptions) -> Pairs:
    if split not in found.splits:
        what = {"train": "training", "valid": "validation", "test": "test"}[split]
        raise DataError(f"{found.name}: no {what} set, only {' and '.join(found.splits)}. Give a file of pairs instead")
    folder = downloads.folder_of(found.name)
    return Pairs(tuple(folder / file.name for file in found.splits[split]), replace(options, format=None))


def _words(pairs: str | Path | Sequence[str | Path]) -> list[str]:
    names = [str(pairs)] if isinstance(pairs, str | Path) else [str(each) for each in pairs]
    if not names:
        raise DataError("no pairs: give at least one file or the name of a corpus")
    return names


def _file(name: str, options: ReadingOptions, references: bool = False, bound: bool = True) -> Pairs:
    if not set(name) & set("./\\,") and not rows.is_file(Path(name)):  # a bare word was meant as a name
        meant = nearest_file(Path(name)) or nearest(name, downloads.names())
        raise DataError(f"{name}: no such file or corpus. {meant}")
    return Pairs(name, options, references, bound)


def name_of(pairs: str | Path | Sequence[str | Path]) -> str:
    """Return the name that a corpus gets from the arguments of a command, even if its files no longer exist."""
    names = list(dict.fromkeys(rows.name_of_files(rows.split_names(name)) for name in _words(pairs)))
    return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"


def for_validation(
    pairs: str | Path, options: ReadingOptions = DEFAULT, watch: downloads.Watch = downloads.unwatched
) -> Parts:
    """Open what `train --valid` names: the validation split of a corpus, or a file, in which further columns may be
    references."""
    named = _named(str(pairs), "valid", options, watch)
    return Parts(named or _file(str(pairs), options, references=True, bound=False))


def for_scoring(
    pairs: str | Path,
    options: ReadingOptions = DEFAULT,
    watch: downloads.Watch = downloads.unwatched,
    bound: bool = False,
) -> Parts:
    """Open what `evaluate` scores on: the test split of a named corpus, or a file with any further references.

    Args:
        bound: Whether a file must have the columns in `options`. If not, they may be those of another file, and are
            ignored in a file that does not have them.
    """
    part = _named(str(pairs), "test", options, watch) or _file(str(pairs), options, references=True, bound=bound)
    if bound:
        _check_columns([str(pairs)], [part], options)
    return Parts(part)


def _check_columns(words: Sequence[str], parts: "Sequence[Pairs | BuiltIn]", options: ReadingOptions) -> None:
    """Raise an error if columns were chosen but no part of the corpus has columns."""
    if any(options.columns) and not any(part.has_columns for part in parts):
        raise DataError(f"{', '.join(words)}: no columns to choose from; --source-column is for CSV, TSV and JSONL")
