"""Flows: stretches of continuous text, independent of how a file writes them, and the origin of each character.

A paragraph of plain text is a flow whose lines are joined. In HTML, a flow is the text between two block elements, with
entities decoded and inline tags removed. Later steps treat both kinds in the same way.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

from seq2see.documents import placeholders, segments
from seq2see.documents.segments import Span

Split = Literal["paragraphs", "lines", "sentences", "nowhere"]
OBJECT = "\ufffc"
"""Unicode's object replacement character, which stands for a placeholder or other part of a flow that is not
translated.
"""
_BLANKS = re.compile(r"[ \t\r\n\f]+")


class Mark(NamedTuple):
    """A tag, a comment or a line break inside a flow; it is not part of the flow's text, but stands at an index of
    it.
    """

    place: int
    """Index in the text of the flow, in characters, before which the mark stands."""
    kind: Literal["open", "close", "point", "break"]
    raw: Span
    """Span of the tag, comment or line break in the document, in characters."""
    number: int = -1
    """Index of the tag or comment among the tokens of the document (`markup.scan`); -1 for a line break."""
    partner: int = -1
    """Value of `number` of the other tag of the same element; -1 if there is no other tag."""
    name: str = ""


class _Chunk(NamedTuple):
    """Consecutive characters of a flow, from index `place` on, and their span in the document.

    If not `is_literal`, the document spells them differently, such as by an entity.
    """

    place: int
    raw: Span
    is_literal: bool


class TextFlow:
    """A stretch of continuous text, to which parts of the document are added from left to right."""

    def __init__(self) -> None:
        self.text = ""
        """The text as a reader sees it, set by `finish`: single spaces between words, `OBJECT` for untranslated
        parts.
        """
        self.marks: list[Mark] = []
        self._parts: list[str] = []
        self._length = 0
        self._last = ""
        self._chunks: list[_Chunk] = []

    def _add(self, text: str, raw: Span, is_literal: bool) -> None:
        self._chunks.append(_Chunk(self._length, raw, is_literal))
        self._parts.append(text)
        self._length += len(text)
        self._last = text[-1:]

    def add_text(self, document: str, start: int, end: int) -> None:
        """Add the characters of the document from `start` to `end`; consecutive white space becomes one space."""
        at = start
        for found in _BLANKS.finditer(document, start, end):
            if at < found.start():
                self._add(document[at : found.start()], (at, found.start()), True)
            self.add_blanks(document, *found.span())
            at = found.end()
        if at < end:
            self._add(document[at:end], (at, end), True)

    def add_blanks(self, document: str, start: int, end: int) -> None:
        """Add the white space of the document from `start` to `end` as one space, with a mark if it has a line break;
        nothing at the start of the text or after a space.
        """
        if self._last == " " or not self._length:
            last = self.marks[-1] if self.marks else None
            if last and last.kind == "point" and last.raw[1] == start:  # both spaces around an image or a comment
                self.marks[-1] = last._replace(raw=(last.raw[0], end))
            return
        if "\n" in document[start:end] or "\r" in document[start:end]:
            self.marks.append(Mark(self._length, "break", (start, end)))
        self._add(" ", (start, end), False)

    def add_break(self, start: int, end: int, blank: bool = False) -> None:
        """Add a mark for a line break, which the document has from `start` to `end`.

        With `blank`, also add a space, except at the start of the text or after a space.
        """
        if blank and self._length and self._last != " ":
            self.marks.append(Mark(self._length, "break", (start, end)))
            self._add(" ", (start, end), False)
        else:
            self.marks.append(Mark(self._length, "break", (start, end)))

    def add_literal(self, text: str, start: int, end: int) -> None:
        """Add `text`, which the document spells differently from `start` to `end`, such as by an entity."""
        self._add(text, (start, end), False)

    def add_object(self, start: int, end: int) -> None:
        """Add `OBJECT` for the part of the document from `start` to `end`, which is not translated."""
        self._add(OBJECT, (start, end), False)

    def add_mark(self, mark: Mark) -> None:
        """Add a tag or a comment at the end of the text so far."""
        self.marks.append(mark._replace(place=self._length))

    def finish(self, protect: bool) -> "TextFlow":
        """Join the parts; with `protect`, replace every placeholder that has no mark (tag, comment, line break) inside
        by `OBJECT`. Return the finished flow, which may be a new object.
        """
        self.text = "".join(self._parts)
        return self._protected() if protect else self

    def _protected(self) -> "TextFlow":
        spans = [span for span in placeholders.find(self.text) if not self._is_marked(span)]
        if not spans:
            return self
        found, at = TextFlow(), 0
        moved = iter(self.marks)
        mark = next(moved, None)
        for start, end in [*spans, (self._length, self._length)]:
            while mark is not None and mark.place <= start:
                found.marks.append(mark._replace(place=found._length + mark.place - at))
                mark = next(moved, None)
            for piece in self._pieces(at, start):
                found._add(*piece)
            if start < end:
                found.add_object(*self.raw(start, end))
            at = end
        found.text = "".join(found._parts)
        return found

    def _is_marked(self, span: Span) -> bool:
        """Return whether a mark (tag, comment, line break) stands inside a span."""
        first = bisect_right(self.marks, span[0], key=lambda mark: mark.place)
        return first < len(self.marks) and self.marks[first].place < span[1]

    def _pieces(self, start: int, end: int) -> Iterator[tuple[str, Span, bool]]:
        """Yield the text from index `start` to `end` in parts: the characters, their span in the document, and whether
        the document spells them in the same way (entities do not).
        """
        number = max(0, bisect_right(self._chunks, start, key=lambda chunk: chunk.place) - 1)
        while start < end:
            chunk = self._chunks[number]
            following = self._chunks[number + 1].place if number + 1 < len(self._chunks) else self._length
            stop = min(end, following)
            yield self.text[start:stop], self.raw(start, stop), chunk.is_literal
            start, number = stop, number + 1

    def raw(self, start: int, end: int) -> Span:
        """Return the span in the document of the characters of the text from index `start` to `end`."""
        first = self._chunk(start)
        last = self._chunk(end - 1)
        raw_start = first.raw[0] + (start - first.place if first.is_literal else 0)
        raw_end = last.raw[0] + end - last.place if last.is_literal else last.raw[1]
        return raw_start, raw_end

    def _chunk(self, place: int) -> _Chunk:
        return self._chunks[bisect_right(self._chunks, place, key=lambda chunk: chunk.place) - 1]


def of_plain_text(document: str, is_language: bool, split: Split = "paragraphs") -> Iterator[TextFlow]:
    """Yield the flows of plain text: paragraphs with their lines joined or, depending on `split`, single lines or the
    whole text.

    If the text is not in a human language, a paragraph is a single line. Otherwise, placeholders are replaced by
    `OBJECT`.
    """
    if split in ("paragraphs", "lines") and is_language:
        parts = segments.paragraphs(document, join=split == "paragraphs")
    else:
        parts = segments.single_lines(document)
        if split in ("sentences", "nowhere"):
            parts = iter([[line for (line,) in parts]])
    for lines in parts:
        flow = TextFlow()
        before = None
        for start, end in lines:
            if before is not None:
                near = document[before - 1], document[start]
                if all(map(segments.needs_no_blank, near)):
                    flow.add_break(before, start)
                else:
                    flow.add_blanks(document, before, start)
            flow.add_text(document, start, end)
            before = end
        yield flow.finish(is_language)
