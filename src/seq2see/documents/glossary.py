"""Glossaries: terms with the translations that they must have, and where they occur in a sentence.

    glossary = Glossary.read("terms.tsv")
    glossary.terms_in("Save the file name.")         # [Term(start=9, end=18, text="file name", forms=("Dateiname",))]

A term is looked up by its first characters in a hash table, so that the time for a sentence does not depend on the
number of terms. Nothing in a glossary is a regular expression.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from seq2see.documents import termbases
from seq2see.errors import DataError, shown
from seq2see.text import languages, rows, words
from seq2see.text.pair import NOTHING, Sides
from seq2see.text.words import Term

MOST_ENTRIES: Final = 100_000
"""Maximum number of terms in a glossary, above which reading it fails; the largest public ones have some tens of
thousands.
"""
LARGEST_FILE: Final = 1 << 25
"""Maximum size in bytes of a glossary file, after decompression; a larger one is an error."""
LONGEST_TERM: Final = 200
"""Maximum number of characters of a term, and of each of its translations; a longer one is reported as a fault."""
MOST_FORMS: Final = 20
"""Maximum number of allowed translations of one term; more are reported as a fault or, in a TBX file, ignored."""
SHOWN: Final = 5
"""Maximum number of faults of a glossary that one error message names."""
BETWEEN: Final = "|"
"""Character that separates several allowed translations of a term in one column of a file."""
EXPECTED: Final = "Expected a glossary: .tsv, .csv or .tbx, each also .gz."
HEADERS: Final = {"source", "target", "term", "translation", "source term", "target term"}


class GlossaryEntry(NamedTuple):
    """A term, its allowed translations, and where it was read (file and line), for error messages."""

    source: str
    forms: tuple[str, ...]
    """The allowed translations, the preferred one first; empty if the term is copied unchanged."""
    where: str = ""


class Glossary:
    """Terms with the translations that they must have."""

    def __init__(self, entries: Iterable[GlossaryEntry], name: str = "the glossary") -> None:
        """Check and index entries; if some are invalid, one error names the first faults."""
        self.name = name
        self.entries: dict[str, GlossaryEntry] = {}
        self._folded: dict[str, list[GlossaryEntry]] = {}
        self._lengths: dict[str, list[int]] = {}
        """Lengths of the terms, the longest first, by their first `KEY` characters."""
        faults: list[str] = []
        for number, entry in enumerate(entries, 1):
            if len(self.entries) >= MOST_ENTRIES:
                raise DataError(f"{name}: more than {MOST_ENTRIES:,} terms. Leave out those that are not needed")
            entry = _clean(entry._replace(where=entry.where or f"{name}, term {number}"))
            fault = _fault(entry) or self._conflict(entry)
            if fault and len(faults) <= SHOWN:
                faults.append(f"{entry.where}: {fault}")
            elif not fault:
                self.entries.setdefault(entry.source, entry)
        if faults:
            more = ["and more of them"] if len(faults) > SHOWN else []
            raise DataError("; ".join([*faults[:SHOWN], *more]))
        self._index()

    @classmethod
    def of(cls, entries: Mapping[str, str | Sequence[str]], name: str = "the glossary") -> "Glossary":
        """Return a glossary from a dictionary of terms, each with its translation or a list of allowed translations.

        A term with an empty translation is copied unchanged.
        """
        pairs = ((source, (given,) if isinstance(given, str) else tuple(given)) for source, given in entries.items())
        return cls((GlossaryEntry(source, forms) for source, forms in pairs), name)

    @classmethod
    def read(cls, path: str | Path, languages: Sides = NOTHING) -> "Glossary":
        """Read a file: `term<TAB>translation`, the same as CSV, or TBX.

        Further columns, and texts between `|`, are further translations that are allowed. A term whose translation is
        empty is kept as it is. The first row may name the columns.

        Args:
            languages: the languages of source and target, for a TBX file, which may have several.
        """
        path = Path(path)
        if not rows.is_file(path, EXPECTED):
            raise DataError(f"{path}: no such file. {EXPECTED}")
        suffix = rows.without_gz(path).suffix.lower()
        if suffix not in (".tsv", ".csv", ".tbx"):
            raise DataError(f"{path}: the suffix '{suffix}' does not determine the format. {EXPECTED}")
        _check_size(path)
        glossary = cls(_concepts(path, languages) if suffix == ".tbx" else _table(path, suffix[1:]), str(path))
        if not glossary.entries:
            raise DataError(f"{path}: no terms in it. Write one on each line: term<TAB>translation")
        return glossary

    def __len__(self) -> int:
        return len(self.entries)

    def _conflict(self, entry: GlossaryEntry) -> str:
        before = self.entries.get(entry.source)
        if before is None or before.forms == entry.forms:
            return ""
        first, second = (shown(BETWEEN.join(each.forms or (each.source,))) for each in (before, entry))
        return (
            f"{shown(entry.source)} is {second} here and {first} in {before.where}. Allow both in one row, with "
            f"'{BETWEEN}' between them, or leave one out"
        )

    def _index(self) -> None:
        for entry in self.entries.values():
            for form in ("NFC", "NFD"):  # texts of macOS have letters apart from their accents
                spelled = unicodedata.normalize(form, entry.source)
                same = self._folded.setdefault(_folded(spelled), [])
                if entry not in same:
                    same.append(entry)
        for folded in self._folded:
            self._lengths.setdefault(folded[:KEY], []).append(len(folded))
        self._lengths = {key: sorted({*lengths}, reverse=True) for key, lengths in self._lengths.items()}

    def terms_in(self, sentence: str) -> list[Term]:
        """Return the terms that occur in a sentence as whole words, in order, without overlaps.

        Of terms that overlap, the one that begins first is returned; of those that begin together, the longest. A term
        in lower case is also found with capital letters at the beginning of its words; any other term only as it is
        written.
        """
        folded, found = _folded(sentence), []
        place = 0
        while place < len(folded):
            term = self._at(sentence, folded, place) if words.is_boundary(sentence, place) else None
            if term is not None:
                found.append(term)
            place = place + 1 if term is None else term.end
        return found

    def _at(self, sentence: str, folded: str, place: int) -> Term | None:
        """Return the longest term that begins at index `place` of a sentence and is spelled as allowed; None if there
        is none.
        """
        for size in range(KEY, 0, -1):
            for length in self._lengths.get(folded[place : place + size], ()):
                end = place + length
                entries = self._folded.get(folded[place:end], ())
                if not entries or not words.ends_word(sentence, end):
                    continue
                written = sentence[place:end]
                for entry in entries:
                    if _is_spelling(written, entry.source):
                        return Term(place, end, written, _forms(entry, written), not entry.forms)
        return None


KEY: Final = 3
"""Number of leading characters of a term by which the index of a glossary finds it; a shorter term is found by all its
characters.
"""


def _folded(text: str) -> str:
    """Return a text in lower case with plain spaces, of the same length, so that indices remain valid."""
    return "".join(" " if each.isspace() else lower if len(lower := each.lower()) == 1 else each for each in text)


def _is_spelling(written: str, term: str) -> bool:
    """Return whether `written`, which differs from the term at most in upper and lower case, is an allowed spelling."""
    if unicodedata.normalize("NFC", written) == term:
        return True
    return term == term.lower() and all(word[:1] + word[1:].lower() == word for word in written.split())


def _forms(entry: GlossaryEntry, written: str) -> tuple[str, ...]:
    """Return the allowed translations of a term as it is written in a sentence.

    If the sentence capitalises a term that the glossary does not, the translation may be capitalised, too.
    """
    if not entry.forms:
        return (written,)
    if written[:1] == entry.source[:1]:
        return entry.forms
    capital = (form[:1].upper() + form[1:] for form in entry.forms)
    return tuple(dict.fromkeys((*entry.forms, *capital)))


def _clean(entry: GlossaryEntry) -> GlossaryEntry:
    """Return an entry in NFC with single spaces; translations that contain `|` are split at it, and empty ones left
    out.
    """
    forms = [part for form in entry.forms for part in form.split(BETWEEN)]
    source, *cleaned = (
        " ".join(unicodedata.normalize("NFC", each[:10_000]).split()) for each in (entry.source, *forms)
    )
    return entry._replace(source=source, forms=tuple(dict.fromkeys(filter(None, cleaned))))


def _fault(entry: GlossaryEntry) -> str:
    """Return what is wrong with an entry; an empty text if it is valid."""
    if not entry.source:
        return "a translation without a term"
    if len(entry.forms) > MOST_FORMS:
        return f"{len(entry.forms):,} translations of one term, at most {MOST_FORMS} are allowed"
    for text in (entry.source, *entry.forms):
        if len(text) > LONGEST_TERM:
            return f"{shown(text)} is longer than {LONGEST_TERM} characters. A term is a few words"
        if any(unicodedata.category(each) in ("Cc", "Cs", "Co", "Cn") for each in text):
            return f"{shown(text)} holds a control character, or a private, unassigned or surrogate code point"
        if not any(words.is_word_character(each) for each in text):
            return f"{shown(text)} has no letter and no digit"
    return ""


def _check_size(path: Path) -> None:
    size = 0
    with rows.opened(path) as stream:
        while chunk := stream.read(1 << 20):
            size += len(chunk)
            if size > LARGEST_FILE:
                raise DataError(f"{path}: larger than {LARGEST_FILE >> 20} MiB. Is it a glossary?")


def _table(path: Path, format: str) -> Iterator[GlossaryEntry]:
    """Yield the entries of a TSV or CSV file; at its end, raise one error for all faulty rows."""
    faults = rows.Faults()
    read = rows.tsv_rows if format == "tsv" else rows.csv_rows
    is_first = True
    for number, cells, fault in read(path, faults):
        columns = [cell.strip() for cell in ([cells] if isinstance(cells, str) else cells)]
        if fault or not any(columns):
            continue
        is_header, is_first = is_first and _is_header(columns), False
        if is_header:
            continue
        if len(columns) < 2:
            separator = rows.SEPARATORS[format]
            faults.add(
                path, number, f"1 column, expected 2 (term{separator}translation)",
                "To keep a term as it is, leave its translation empty.",
            )  # fmt: skip
        else:
            yield GlossaryEntry(columns[0], tuple(columns[1:]), f"{path}, line {number}")
    if faults:
        raise DataError(str(faults))


def _concepts(path: Path, wanted: Sides) -> Iterator[GlossaryEntry]:
    """Yield the entries of a TBX file; if several concepts have the same term, the translations of all are allowed (at
    most `MOST_FORMS`).
    """
    found: dict[str, tuple[int, dict[str, None]]] = {}
    for line, source, forms in termbases.read(path, wanted):
        if len(found) > MOST_ENTRIES:
            break  # which is reported
        found.setdefault(source, (line, {}))[1].update(dict.fromkeys(form.replace(BETWEEN, " ") for form in forms))
    for source, (line, forms_of) in found.items():
        yield GlossaryEntry(source, tuple(forms_of)[:MOST_FORMS], f"{path}, line {line}")


def _is_header(columns: Sequence[str]) -> bool:
    """Return whether a row names columns: by words such as `source` and `target`, or by two different language
    codes.
    """
    names = [column.lower() for column in columns[:2]]
    codes = [languages.known(name) if len(name) in (2, 5) else None for name in names]
    return {*names} <= HEADERS or (len(names) == 2 and None not in codes and codes[0] != codes[1])
