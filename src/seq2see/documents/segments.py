"""Split running text into paragraphs, sentences, and parts of sentences that are too long.

The rules for the ends of sentences are those of sentencex (Wikimedia), which knows abbreviations of many languages.
Everything here returns spans of the text that it was given, so that no text between them is lost.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Span = tuple[int, int]
"""Start and end (exclusive) of a range of characters."""

WINDOW = 2000
"""Number of characters that are split into sentences at a time, since the time that sentencex takes is quadratic in the
length of a text with unmatched quotation marks; `guess_language` examines as many.
"""
WRAPPED = 40
"""Minimum number of characters of a line that may have been wrapped automatically, so that it is joined with the next
line; half of it in scripts without spaces between words.
"""
LONGEST_TOKEN = 16
"""Number of characters per token that `cut` expects at most: it tokenizes this number times `Limit.most` characters at
a time. Text with more characters per token is cut earlier than necessary.
"""

_LINE_END = re.compile(r"\r\n|[\n\r\u2028\u2029\v\f\x85]")
_PREFIX = re.compile(r"[^\S\n]*+((?:>[^\S\n]*+)*+)")
_MARKER = re.compile(r"(?:[-*+•‣◦·–—]|\d{1,3}[.)]|\(\d{1,3}\)|\(?[a-z]\))[^\S\n]+(?:\[[ xX]\][^\S\n]+)?|#{1,6}[^\S\n]+")
_FENCE = re.compile(r"[^\S\n]*+(```|~~~)")
_FINAL = tuple(".!?…:;؟۔।。！？｡：；")
_SCRIPTS = {
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "THAI": "th",
    "DEVANAGARI": "hi",
    "ARABIC": "ar",
    "CYRILLIC": "ru",
    "GREEK": "el",
    "HEBREW": "he",
    "ARMENIAN": "hy",
    "BENGALI": "bn",
    "TAMIL": "ta",
}
_CLAUSES = (
    re.compile(r"(?<=[.!?…;:؛])\s|\s(?=[–—(])|(?<=[。！？；：])"),
    re.compile(r"(?<=[,،])\s|(?<=[，、])"),
    re.compile(r"\s"),
)
"""Patterns of places where a sentence may be cut, the best first."""


@dataclass(frozen=True)
class Limit:
    """Maximum length of a sentence that is given to a model."""

    count: Callable[[Sequence[str]], Sequence[int]]
    """Function that returns the number of tokens of each text."""
    most: int
    """Maximum number of tokens of a sentence, above which it is cut into parts."""


class Line(NamedTuple):
    """One line of plain text."""

    start: int
    end: int
    quoted: str
    """Quotation marks of e-mail (`>`) at the beginning of the line, without the spaces between them."""
    is_item: bool
    """Whether the line begins with a list or heading marker; `start` is after the marker."""

    @property
    def length(self) -> int:
        return self.end - self.start


def paragraphs(text: str, join: bool = True) -> Iterator[list[Span]]:
    """Yield the lines of each paragraph of plain text, as spans without surrounding spaces and markers.

    With `join`, a line belongs to the paragraph of the previous line if a program seems to have wrapped the text: the
    previous line is long, and this one begins with a lower-case letter, or its first word would not have fitted. List
    items, headings, rows and cells of tables, and quotations of another depth are separate paragraphs. Fenced code is
    left out. Without `join`, each line is a paragraph.
    """
    group: list[Line] = []
    is_code = False
    for start, end in _lines(text):
        if _FENCE.match(text, start, end):
            is_code = not is_code
            yield from _joined(text, group, join)
            group = []
            continue
        if is_code:
            continue
        line = _line(text, start, end)
        if line is None or line.is_item or (group and line.quoted != group[-1].quoted):
            yield from _joined(text, group, join)
            group = []
        if line is None:
            continue
        if text.startswith("|", line.start) and text.count("|", line.start, line.end) > 1:
            yield from ([cell] for cell in _cells(text, line))
            continue
        group.append(line)
    yield from _joined(text, group, join)


def single_lines(text: str) -> Iterator[list[Span]]:
    """Yield each non-blank line as a paragraph of its own."""
    for start, end in _lines(text):
        line = trimmed(text, start, end)
        if line[0] < line[1]:
            yield [line]


def _lines(text: str) -> Iterator[Span]:
    start = 0
    for found in _LINE_END.finditer(text):
        yield start, found.start()
        start = found.end()
    yield start, len(text)


def _line(text: str, start: int, end: int) -> Line | None:
    """Return the line from `start` to `end` without quotation, list and heading markers; None if that is empty."""
    prefix = _PREFIX.match(text, start, end)
    start = prefix.end() if prefix else start
    marker = _MARKER.match(text, start, end)
    start, end = trimmed(text, marker.end() if marker else start, end)
    if start == end:
        return None
    return Line(start, end, "".join(prefix[1].split()) if prefix else "", marker is not None)


def _cells(text: str, line: Line) -> Iterator[Span]:
    start = line.start
    for found in re.finditer(r"\||\Z", text[line.start : line.end]):
        cell = trimmed(text, start, line.start + found.start())
        if cell[0] < cell[1]:
            yield cell
        start = line.start + found.end()


def _joined(text: str, lines: Sequence[Line], join: bool) -> Iterator[list[Span]]:
    """Yield consecutive lines as paragraphs: with `join`, lines that a program seems to have wrapped are one
    paragraph.
    """
    if not lines:
        return
    width = max(line.length for line in lines)
    near = sum(line.length >= 0.8 * width for line in lines[:-1])
    found = [lines[0][:2]]
    for line, following in pairwise(lines):
        if join and _is_wrapped(text, line, following, width, near):
            found.append(following[:2])
        else:
            yield found
            found = [following[:2]]
    yield found


def _is_wrapped(text: str, line: Line, following: Line, width: int, near: int) -> bool:
    first = text[following.start]
    if needs_no_blank(first) and needs_no_blank(text[line.end - 1]):
        return line.length >= WRAPPED // 2 and line.length >= width - 2
    if line.length < WRAPPED or first.isdigit():
        return False
    if first.islower():
        return True
    word = text[following.start : following.end].split(None, 1)[0]
    is_full = line.length + 1 + len(word) > width
    return is_full and (near > 1 or line.length >= 65 or text[line.end - 1] in _FINAL)


def needs_no_blank(letter: str) -> bool:
    """Return whether the script of a letter is written without spaces between words."""
    if letter < "\u0e00":
        return False
    if "\u0e00" <= letter <= "\u0eff" or "\u1000" <= letter <= "\u109f" or "\u1780" <= letter <= "\u17ff":
        return True  # Thai, Lao, Burmese, Khmer
    return (
        "\u2e80" <= letter <= "\u9fff"
        or "\uf900" <= letter <= "\ufaff"
        or "\uff00" <= letter <= "\uffef"
        or ("\U00020000" <= letter <= "\U0003ffff")
    )


def trimmed(text: str, start: int, end: int) -> Span:
    """Return the span from `start` to `end` of a text without the spaces at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def guess_language(text: str) -> str:
    """Return a language code for splitting sentences, chosen by the most frequent script of a text: `en` for Latin and
    unknown scripts, and without letters.
    """
    counts: dict[str, int] = {}
    for letter in text[:WINDOW]:
        if letter.isalpha():
            name = unicodedata.name(letter, "").partition(" ")[0]
            found = "zh" if name == "CJK" else _SCRIPTS.get(name, "en")
            counts[found] = counts.get(found, 0) + 1
    if not counts:
        return "en"
    if "ja" in counts and counts.get("zh", 0) + counts["ja"] > sum(counts.values()) / 2:
        return "ja"
    return max(counts, key=lambda code: counts[code])


def sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of a paragraph that has no line breaks, without the spaces around them.

    Args:
        language: a code such as `de`; None to choose one by the script of the text.
    """
    from sentencex import segment

    language = (language or guess_language(text)).partition("-")[0]
    found: list[Span] = []
    begin = 0
    while begin < len(text):
        window = text[begin : begin + WINDOW]
        parts = segment(language, window)
        if "".join(parts) != window:
            parts = [window]
        if begin + len(window) < len(text) and len(parts) > 1:
            parts.pop()  # it may continue behind the window
        for part in parts:
            span = trimmed(text, begin, begin + len(part))
            begin += len(part)
            if span[0] < span[1]:
                found.append(span)
    return found


def cut(text: str, limit: Limit) -> list[Span]:
    """Return the spans of the parts of a sentence, none longer than the limit; a single span if the sentence is short
    enough.

    It is cut between clauses if possible, else after a comma, between words, or anywhere.
    """
    found = []
    begin = 0
    while begin < len(text):
        window = text[begin : begin + limit.most * LONGEST_TOKEN]
        if limit.count([window])[0] <= limit.most:
            size = len(window) if begin + len(window) == len(text) else _best_cut(window)
        else:
            low, high = 1, len(window)  # so many characters fit, and so many do not
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if limit.count([window[:middle]])[0] <= limit.most else (low, middle)
            size = _best_cut(window[:low])
        span = trimmed(text, begin, begin + size)
        if span[0] < span[1]:
            found.append(span)
        begin += size
    return found


def _best_cut(text: str) -> int:
    """Return the index at which to cut a text: the last place of the best kind (see `_CLAUSES`) in its second half,
    else its end.
    """
    for places in _CLAUSES:
        found = [place.end() for place in places.finditer(text, len(text) // 2)]
        if found:
            return found[-1]
    return len(text)
