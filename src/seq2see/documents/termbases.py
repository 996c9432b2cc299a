"""Read TBX termbases (ISO 30042, versions 2 and 3): the terms of each concept in two languages.

    <conceptEntry> <langSec xml:lang="en"> <termSec> <term>file</term> ...          version 3
    <termEntry> <langSet xml:lang="en"> <tig> <term>file</term> ...                 version 2

Each term of a concept in the source language may be translated by any of its terms in the target language; terms that
are marked as deprecated or superseded are left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from seq2see.errors import DataError
from seq2see.text import languages
from seq2see.text.catalogues import XmlReader
from seq2see.text.pair import Sides

ROOTS: Final = ("tbx", "martif")
CONCEPTS: Final = {"conceptEntry", "termEntry"}
LANGUAGES: Final = {"langSec", "langSet"}
TERMS: Final = {"termSec", "tig", "ntig"}
LEFT_OUT: Final = ("deprecatedTerm", "supersededTerm")
"""Values (or their prefixes) of `administrativeStatus` that mark terms which must not be used."""
MOST_TERMS: Final = 1000
"""Maximum number of terms of one concept, in all languages together, above which reading the file fails."""
LONGEST: Final = 10_000
"""Number of characters after which the text of a term is no longer read; such a text is not a term, and the glossary
refuses it.
"""


class TermsOfConcept(NamedTuple):
    """The terms of one concept by language, and the number of the line where the concept begins."""

    line: int
    terms: dict[str, list[str]]


def read(path: Path, wanted: Sides) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield (line number of the concept, source term, all its target terms) for each source term that has any.

    Args:
        wanted: the languages of source and target. If one of them is None, the file must have exactly two languages: an
            unknown source is the first one that is not the target, and an unknown target is the other one.
    """
    concepts = list(_concepts(path))
    seen = list(dict.fromkeys(language for concept in concepts for language in concept.terms))
    if not seen:
        raise DataError(f"{path}: no terms in it. Is it a TBX file?")
    source, target = _languages(path, wanted, seen)
    for line, terms in concepts:
        forms = [text for language in target for text in terms.get(language, ())]
        for text in [text for language in source for text in terms.get(language, ()) if forms]:
            yield line, text, tuple(forms)


def _languages(path: Path, wanted: Sides, seen: list[str]) -> tuple[list[str], list[str]]:
    """Return the file's language codes that match the source and those that match the target (`en-US` matches `en`)."""
    shown = ", ".join(seen[:20])
    found = [
        [each for each in seen if side is not None and (languages.matches(side, each) or languages.matches(each, side))]
        for side in wanted
    ]
    for side, some in zip(wanted, found, strict=True):
        if side is not None and not some:
            raise DataError(f"{path}: no term in '{side}', which is a language of the run. Its languages are {shown}")
    if None in wanted:
        if len(seen) != 2:
            raise DataError(
                f"{path}: {len(seen)} languages ({shown}), and the languages of the run are unknown. "
                "Keep only two of them in the file"
            )
        first = [each for each in seen if each not in found[1]][:1]
        found = [found[0] or first, found[1] or [each for each in seen if each not in (found[0] or first)]]
    return found[0], found[1]


def _concepts(path: Path) -> Iterator[TermsOfConcept]:
    reader = _TbxReader(path)
    for _ in reader.read():
        done, reader.done = reader.done, []
        yield from done


class _TbxReader(XmlReader):
    """Builds concepts from the events of the XML parser."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ROOTS, "TBX")
        self.done: list[TermsOfConcept] = []
        self._concept: TermsOfConcept | None = None
        self._count = 0
        self._language = ""
        self._pieces: list[str] | None = None
        """Text so far of the element being read (a term or its status); None outside such elements."""
        self._term, self._status = "", ""
        self._is_status = False

    def begun(self, name: str, attributes: dict[str, str]) -> None:
        if name in CONCEPTS:
            self._concept, self._count = TermsOfConcept(self.line, {}), 0
        elif name in LANGUAGES:
            self._language = languages.tag(attributes.get("xml:lang", attributes.get("lang", "")))
        elif name in TERMS and self._concept is not None:
            self._term = self._status = ""
            self._count += 1
            if self._count > MOST_TERMS:
                raise DataError(f"{self.path}, line {self.line}: a concept with more than {MOST_TERMS:,} terms")
        elif name == "term" or (name == "termNote" and attributes.get("type") == "administrativeStatus"):
            self._pieces, self._is_status = [], name != "term"
        elif name == "administrativeStatus":  # version 3 may have an element for it
            self._pieces, self._is_status = [], True

    def text(self, text: str) -> None:
        if self._pieces is not None and sum(map(len, self._pieces)) < LONGEST:
            self._pieces.append(text[:LONGEST])

    def ended(self, name: str) -> None:
        if name in ("term", "termNote", "administrativeStatus") and self._pieces is not None:
            text = " ".join("".join(self._pieces).split())
            self._term, self._status = (self._term, text) if self._is_status else (text, self._status)
            self._pieces = None
        elif name in TERMS and self._concept is not None:
            if self._term and self._language and not self._status.startswith(LEFT_OUT):
                self._concept.terms.setdefault(self._language, []).append(self._term)
            self._term = ""
        elif name in CONCEPTS and self._concept is not None:
            self.done.append(self._concept)
            self._concept = None
