"""Files of translators: gettext's .po and .mo catalogues, and TMX translation memories, as rows of two columns.

A pair is one line, so a line break inside a text becomes a space. Format directives (`%s`, `{name}`) are text.
"""

import codecs
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers import expat

from seq2see.errors import DataError
from seq2see.text import languages
from seq2see.text.pair import Sides
from seq2see.text.rows import LONGEST_LINE, Faults, Told, bounded_lines, lines, opened, too_long

EntryRow = tuple[int, list[str]]
"""An entry of a catalogue: the number of its first line (in a .mo file, of the entry), and [source, target]."""
_BREAK = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")


def _one_line(text: str) -> str:
    return _BREAK.sub(" ", text)


# gettext


def _entries(number: int, kind: str = "") -> str:
    return f"1 {kind}entry" if number == 1 else f"{number:,} {kind}entries"


def _forms(singular: str, plural: str | None, translations: list[str]) -> list[list[str]]:
    """Return (source, target) pairs: msgid with form 0, msgid_plural with others (with form 0 if there are none)."""
    pairs = [[singular, translations[0]]]
    if plural is not None:
        pairs += [[plural, each] for each in translations[1:] or translations]
    return [[_one_line(text) for text in pair] for pair in pairs]


def _language(header: str) -> str | None:
    found = re.search(r"^Language:[ \t]*([\w@.-]+)", header, re.MULTILINE)
    return languages.tag(found[1]) if found else None


_CHARSET: Final = re.compile(rb"charset=([\w.:-]+)")
_NO_TEXT: Final = {"utf-7", "unicode-escape", "unicode_escape", "raw-unicode-escape", "raw_unicode_escape", "idna"}
"""Encodings of Python that are refused because they can decode to lone surrogates, which are not valid text."""


def _charset(header: bytes, place: str) -> str:
    """Return the encoding that the header names; UTF-8 if it names none, or still has the template's `CHARSET`."""
    found = _CHARSET.search(header)
    name = found[1].decode() if found else "CHARSET"
    if name == "CHARSET":
        return "UTF-8"
    try:
        b"a".decode(name)
        if codecs.lookup(name).name in _NO_TEXT:
            raise LookupError
    except (LookupError, UnicodeError):
        raise DataError(
            f"{place}: its header says charset={name}, which is unknown. Convert it: msgconv -t UTF-8"
        ) from None
    return name


@dataclass
class _Entry:
    """The part of an entry of a .po file that has been read so far."""

    line: int = 0
    fuzzy: bool = False
    broken: bool = False
    size: int = 0
    texts: dict[str, list[str]] = field(default_factory=dict)
    """The quoted strings of each keyword: msgctxt, msgid, msgid_plural, and msgstr[0], msgstr[1], ..."""

    def text(self, keyword: str) -> str | None:
        return "".join(self.texts[keyword]) if keyword in self.texts else None

    def translations(self) -> list[str]:
        return ["".join(pieces) for keyword, pieces in self.texts.items() if keyword.startswith("msgstr")]


_STATEMENT: Final = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr|domain)\s*(?:\[\s*(\d{1,3})\s*\]\s*)?)?(?=")')
_STRING: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*')
_ESCAPES: Final = re.compile(r"(?:\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{1,2}))+|\\(.)")
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}


def po_rows(path: Path, faults: Faults, told: Told, wanted: Sides) -> Iterator[EntryRow]:
    """Yield msgid and msgstr of each entry and plural form, except the header, fuzzy entries and obsolete entries."""
    charset = _po_charset(path)
    entry = _Entry()
    fuzzy = 0

    def finished() -> Iterator[EntryRow]:
        nonlocal fuzzy
        if entry.broken or not entry.texts:
            return
        translations, original = entry.translations(), entry.text("msgid")
        if original is None or not translations:
            missing, there = ("msgid", "msgstr") if translations else ("msgstr", "msgid")
            faults.add(path, entry.line, f"{there} without {missing}")
        elif not original and "msgctxt" not in entry.texts:
            told.languages = Sides(None, _language(translations[0]))
        elif entry.fuzzy:
            fuzzy += 1
        else:
            for pair in _forms(original, entry.text("msgid_plural"), translations):
                yield entry.line, pair

    keyword = ""
    for number, line, _ in lines(path, faults, charset):
        text = line.strip()
        if text.startswith("#"):
            if entry.translations():
                yield from finished()
                entry, keyword = _Entry(), ""
            if text.startswith("#~"):
                entry.fuzzy = False  # that was said of the obsolete entry
            elif text.startswith(("#,", "#=")) and re.search(r"\bfuzzy\b", text):
                entry.fuzzy = True
            continue
        if not text:
            continue
        statement = _STATEMENT.match(text)
        try:
            if statement is None:
                raise ValueError("expected msgid, msgstr or a text in quotes")
            if statement[1]:
                keyword = f"msgstr[{int(statement[2] or 0)}]" if statement[1] == "msgstr" else statement[1]
                if keyword in entry.texts or (keyword in ("msgctxt", "domain") and entry.texts):
                    if keyword.startswith("msgstr"):
                        raise ValueError("a second msgstr, without a msgid before it")
                    yield from finished()
                    entry = _Entry()
                entry.line = entry.line or number
                entry.texts[keyword] = []
            elif not keyword:
                raise ValueError("expected msgid before a text in quotes")
            entry.texts[keyword].append(_unquoted(text[statement.end() :], charset))
            entry.size += len(text)
            if entry.size > LONGEST_LINE:
                raise too_long(path, entry.line, "an entry")
            if keyword == "domain":
                entry, keyword = _Entry(), ""
        except ValueError as problem:
            entry.broken = True
            faults.add(path, number, str(problem))
    yield from finished()
    if fuzzy:
        told.notes[f"{path}: {_entries(fuzzy, 'fuzzy ')} left out"] = None


def _po_charset(path: Path) -> str:
    """Return the encoding of a .po file, read from the bytes of its header, since the header names its own encoding."""
    header = b""
    with opened(path) as stream:
        entries = 0
        for line in bounded_lines(path, stream):
            entries += line.startswith(b"msgid ")
            if entries > 1 or len(header) > 1 << 16:
                break
            if not line.startswith(b"#"):
                header += line
    return _charset(header, str(path))


def _unquoted(text: str, charset: str) -> str:
    """Return the text of one or more quoted strings; raise a ValueError that says what is wrong with them."""
    parts, end = [], 0
    while end < len(text):
        string = _STRING.match(text, end)
        if string is None:
            raise ValueError("a text that does not end in a quote" if text[end] == '"' else "text outside the quotes")
        parts.append(string[1])
        end = string.end()
    joined = "".join(parts)
    return _ESCAPES.sub(lambda found: _unescaped(found, charset), joined) if "\\" in joined else joined


def _unescaped(found: re.Match[str], charset: str) -> str:
    if found[1] is None:  # bytes of the file's encoding, \303\251
        codes = [code[1:] for code in re.findall(r"\\x?[0-9A-Fa-f]+", found[0])]
        try:
            return bytes(int(code[1:], 16) if code[0] == "x" else int(code, 8) for code in codes).decode(charset)
        except (UnicodeError, ValueError):
            raise ValueError(f"the escaped bytes {found[0]} are not valid {charset}") from None
    if found[1] not in _NAMED:
        raise ValueError(f"unknown escape \\{found[1]}")
    return _NAMED[found[1]]


MOST_FORMS: Final = 1000
"""Maximum number of plural forms of an entry, as many as a .po file can number; languages have up to six."""
LARGEST_MO: Final = 1 << 26
"""Maximum size of a .mo file in bytes; it is read whole. 64 MiB are ten times the largest real file."""


def mo_rows(path: Path, faults: Faults, told: Told, wanted: Sides) -> Iterator[EntryRow]:
    """Yield msgid and msgstr of a compiled catalogue, as `po_rows` does; rows are numbered by entry."""
    with opened(path) as stream:
        data = stream.read(LARGEST_MO + 1)
    if len(data) > LARGEST_MO:
        raise DataError(f"{path}: larger than {LARGEST_MO >> 20} MiB. Is it a .mo catalogue?")
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise DataError(f"{path}: not a .mo catalogue (it begins {data[:4].hex(' ') or 'with nothing'})")
    if len(data) < 20:
        raise DataError(f"{path}: cut short inside its first 20 bytes")
    revision, count, *tables = struct.unpack_from(f"{order}4I", data, 4)
    if revision >> 16 > 1:
        raise DataError(f"{path}: revision {revision >> 16} of .mo, expected 0 or 1")
    if revision & 0xFFFF and len(data) >= 40 and (machine_dependent := struct.unpack_from(f"{order}I", data, 36)[0]):
        # They lie in tables of their own, in pieces (`<PRIu64>`); Python's gettext leaves them, too.
        told.notes[f"{path}: {_entries(machine_dependent)} left out: <PRIu64> in them depends on the machine"] = None
    if max(tables) + 8 * count > len(data):
        raise DataError(f"{path}: cut short: it is too small for the {count:,} entries in its header")

    for table in tables:
        entries = memoryview(data)[table : table + 8 * count]
        places = struct.iter_unpack(f"{order}2I", entries)
        within = sum(length for length, start in places if start + length < len(data))
        if within > len(data):  # a few bytes could stand for gigabytes otherwise
            raise DataError(f"{path}: cut short or damaged, its {count:,} entries are larger than the file")

    def string(table: int, index: int) -> bytes:
        length, start = struct.unpack_from(f"{order}2I", data, table + 8 * index)
        if start + length >= len(data) or data[start + length] != 0:
            raise DataError(f"{path}, entry {index + 1}: cut short or damaged, a text runs past the end of the file")
        if length > LONGEST_LINE:
            raise DataError(f"{path}, entry {index + 1}: longer than {LONGEST_LINE >> 20} MiB. Is it a .mo catalogue?")
        return data[start : start + length]

    header = next((string(tables[1], index) for index in range(count) if not string(tables[0], index)), b"")
    charset = _charset(header, str(path))
    told.languages = Sides(None, _language(header.decode(charset, errors="replace")))
    for index in range(count):
        try:
            ids, translations = (string(table, index).decode(charset) for table in tables)
        except UnicodeError:
            raise DataError(f"{path}, entry {index + 1}: not {charset}, as its header says it is") from None
        if ids:
            if translations.count("\0") >= MOST_FORMS:
                raise DataError(f"{path}, entry {index + 1}: over {MOST_FORMS:,} plural forms. The file is damaged")
            singular, *plural = ids.rpartition("\x04")[2].split("\0", 2)
            for pair in _forms(singular, plural[0] if plural else None, translations.split("\0")):
                yield index + 1, pair


# TMX


@dataclass
class _Unit:
    """A <tu>: the first text of each language, and the source language that it or the file states (or empty)."""

    line: int
    source: str
    texts: dict[str, str] = field(default_factory=dict)


def tmx_rows(path: Path, faults: Faults, told: Told, wanted: Sides) -> Iterator[EntryRow]:
    """Yield the texts of two languages: those in `wanted`, else those of the first unit that has two.

    In that unit, the source is the language that it or the file names as the source, else the first, and the target
    is the first other one. If the file has more languages to choose from, an error is raised after the last row.
    """
    seen: dict[str, None] = {}
    source, target = wanted
    certain = source is not None
    for unit in _units(path, faults):
        seen |= dict.fromkeys(unit.texts)
        if len(seen) > MOST_NAMES:
            raise DataError(f"{path}, line {unit.line}: more than {MOST_NAMES:,} languages. Is it a TMX file?")
        if source is None and len(unit.texts) > 1:
            others = [each for each in unit.texts if target is None or not languages.matches(target, each)]
            first = [each for each in others if _same_language(unit.source, each)]
            certain = bool(first)
            source = next(iter(first or others), None)
        if target is None and source is not None:
            target = next((each for each in unit.texts if not languages.matches(source, each)), None)
        told.languages = Sides(source, target)
        yield unit.line, [_text_in(unit, source), _text_in(unit, target)]
    if not seen:
        return
    there = ", ".join(list(seen)[:20])
    for option, asked in (("--source-language", wanted.source), ("--target-language", wanted.target)):
        if asked is not None and not any(languages.matches(asked, each) for each in seen):
            raise DataError(f"{path}: no text in '{asked}' ({option}). Its languages are {there}")
    targets = [each for each in seen if source is not None and not languages.matches(source, each)]
    sources = [each for each in seen if target is not None and not languages.matches(target, each)]
    if (wanted.target is None and len(targets) > 1) or (not certain and len(sources) > 1):
        raise DataError(
            f"{path}: {len(seen)} languages, {there}. Choose two, for example: "
            f"--source-language {source} --target-language {target}"
        )


def _same_language(one: str, other: str) -> bool:
    return one.partition("-")[0] == other.partition("-")[0]


def _text_in(unit: _Unit, wanted: str | None) -> str:
    found = [
        text for language, text in unit.texts.items() if wanted is not None and languages.matches(wanted, language)
    ]
    return found[0] if found else ""


LONGEST_TAG: Final = 1 << 20
"""Maximum number of bytes of a tag, of a comment, and of everything before <tmx>: the parser keeps each in memory."""
MOST_NAMES: Final = 10_000
"""Maximum number of different names of elements and attributes in a file, and of its languages. TMX has about fifty."""
DEEPEST: Final = 100
"""Maximum depth of nested elements. TMX needs five, and codes within codes a few more."""
CODES: Final = {"bpt", "ept", "it", "ut", "ph"}
"""Inline elements that contain a code of another program's format, such as bold, or a placeholder; not text."""


def _units(path: Path, faults: Faults) -> Iterator[_Unit]:
    """Yield the translation units (<tu>) of a file while it is read."""
    reader = _TmxReader(path, faults)
    for _ in reader.read():
        yield from reader.take()


class XmlReader:
    """Reads a file with the XML parser Expat; subclasses handle elements in `begun`, `text` and `ended`.

    Nothing outside the file is fetched, and entities that the file defines are not expanded: a few lines of them can
    expand to gigabytes.
    `roots` are names that the outermost element may have, and `kind` is what messages call the file.
    """

    def __init__(self, path: Path, roots: Sequence[str], kind: str) -> None:
        self.path, self._roots, self._kind = path, roots, kind
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.CommentHandler = self.parser.ProcessingInstructionHandler = self._comment
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.SkippedEntityHandler = self._refuse_entity
        self.open: list[str] = []
        """Names of the elements that are open, the outermost first, without prefixes of namespaces."""
        self._names: set[str] = set()
        self._unseen = 0
        """Bytes that were read since the parser last reported anything: it holds a whole tag or comment in memory."""

    line = property(lambda self: self.parser.CurrentLineNumber, doc="The line that is being read.")

    def begun(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the beginning of an element, before its name is appended to `open`."""
        raise NotImplementedError

    def text(self, text: str) -> None:
        """Handle a part of the text of an element."""
        raise NotImplementedError

    def ended(self, name: str) -> None:
        """Handle the end of an element, after its name is removed from `open`."""
        raise NotImplementedError

    def read(self) -> Iterator[None]:
        """Parse the file in chunks, and yield after each."""
        try:
            with opened(self.path) as stream:
                while chunk := stream.read(1 << 16):
                    self._unseen += len(chunk)
                    self.parser.Parse(chunk, False)
                    if self._unseen > LONGEST_TAG:
                        what = "a tag or comment" if self.open else f"what comes before <{self._roots[0]}> is"
                        self._refuse(f"{what} longer than {LONGEST_TAG >> 20} MiB")
                    yield
                self.parser.Parse(b"", True)
                yield
        except expat.ExpatError as problem:
            raise DataError(
                f"{self.path}, line {problem.lineno}: not XML ({expat.ErrorString(problem.code)})"
            ) from None
        except (LookupError, ValueError) as problem:  # of an encoding that expat does not know
            raise DataError(f"{self.path}, line {self.line}: {problem}. Convert it to UTF-8") from None

    def _refuse(self, what: str) -> NoReturn:
        raise DataError(f"{self.path}, line {self.line}: {what}. Is it a {self._kind} file?")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"{self.path}, line {self.line}: the entity '{name}', which is not supported. Write the text itself"
        )

    def _comment(self, *_: str) -> None:
        if self.open:
            self._unseen = 0

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._unseen = 0
        self._names.update((name, *attributes))  # the parser keeps each name for ever
        if len(self._names) > MOST_NAMES:
            self._refuse(f"more than {MOST_NAMES:,} element and attribute names")
        if len(self.open) > DEEPEST:
            self._refuse(f"nested deeper than {DEEPEST} elements")
        name = name.rpartition(":")[2]
        if not self.open and name not in self._roots:
            raise DataError(f"{self.path}, line {self.line}: <{name}>, expected <{self._roots[0]}>")
        self.begun(name, attributes)
        self.open.append(name)

    def _text(self, text: str) -> None:
        self._unseen = 0
        self.text(text)

    def _end(self, name: str) -> None:
        self._unseen = 0
        self.ended(self.open.pop())


class _TmxReader(XmlReader):
    """Builds translation units from the events of the parser."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path, ("tmx",), "TMX")
        self.faults = faults
        self._done: list[_Unit] = []
        self._source = ""
        self._unit: _Unit | None = None
        self._language: str | None = None
        self._segment: list[str] | None = None
        self._codes: list[int] = []
        """Length of the segment's text at the start of each inline element from `CODES` that is open."""
        self._had_codes = False
        self._size = 0
        """Number of characters in the texts of the current unit."""

    def take(self) -> list[_Unit]:
        done, self._done = self._done, []
        return done

    def begun(self, name: str, attributes: dict[str, str]) -> None:
        if self._segment is not None:
            if name in CODES:
                self._codes.append(len(self._segment))
        elif name == "header":
            self._source = languages.tag(attributes.get("srclang", ""))
        elif name == "tu":
            self._unit = _Unit(self.line, languages.tag(attributes.get("srclang", self._source)))
            self._size = 0
        elif name == "tuv":
            spelled = attributes.get("xml:lang", attributes.get("lang", "")).strip()
            self._language = languages.tag(spelled) if spelled else None
            self._grow(100 + len(spelled))
            if not spelled:
                self.faults.add(self.path, self.line, "a <tuv> without its language (xml:lang)")
        elif name == "seg":
            self._segment = []
            self._had_codes = False

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > LONGEST_LINE:
            raise too_long(self.path, self._unit.line if self._unit else self.line, "a <tu>")

    def text(self, text: str) -> None:
        if self._segment is not None:
            self._grow(len(text))
            self._segment.append(text)

    def ended(self, name: str) -> None:
        if self._segment is not None and name in CODES:
            start = self._codes.pop()
            if not self._codes:
                self._close_code(name, start)
        elif name == "seg" and self._segment is not None:
            text = _one_line("".join(self._segment)).strip()
            if self._had_codes:
                text = re.sub("  +", " ", text)  # a code between spaces leaves two
            if self._unit is not None and self._language is not None:
                self._unit.texts.setdefault(self._language, text)
            self._segment = None
            self._size = self._size if self._unit else 0
        elif name == "tu" and self._unit is not None:
            self._done.append(self._unit)
            self._unit = None

    def _close_code(self, name: str, start: int) -> None:
        """Remove the content of an inline element; that of <ph> stays (`%s`), or becomes a space if it is markup."""
        assert self._segment is not None
        content = "".join(self._segment[start:])
        self._segment[start:] = []
        self._had_codes = True
        if name == "ph":
            self._segment.append(" " if content.lstrip().startswith(("<", "{\\")) else content)
