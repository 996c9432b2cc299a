"""Find the characters that each token corresponds to, in the input text and in the output text."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from seq2see.text.tags import tag_of
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.tokenizers import Imported, Tagged, normalize

Span = tuple[int, int]
"""Start and end (exclusive) of a range of characters; it is empty if both are equal."""


def words(text: str) -> list[Span]:
    """Return the spans of the words between spaces."""
    return [found.span() for found in re.finditer(r"\S+", text)]


def written(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Span]:
    """Return the span of each token in the text `decode(ids)`. Tokens that spell one character together all have its
    span.

    Spaces around the text of a token are not part of its span, unless the token is only spaces.
    """
    text = tokenizer.decode(ids)
    lengths = [*_lengths(lambda start, end: len(tokenizer.decode(ids[start:end])), len(ids))[:-1], len(text)]
    for place in reversed(range(len(ids))):  # bytes that do not make a character yet count for more than they will
        lengths[place] = min(lengths[place], lengths[place + 1])
    spans = []
    for token, (start, end) in zip(ids, pairwise(lengths), strict=True):
        if start == end and start and tokenizer.decode([token]):
            start -= 1
        spans.append(_without_blanks(text, start, end))
    return spans


def read(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the span in `text` of each token of `encode([text.strip()])`, even if normalisation changed the text."""
    start, body = len(text) - len(text.lstrip()), text.strip()
    tag = tag_of(body, tokenizer.tags)
    spans = [(start, start + len(tag))] if tag else []
    rest = body[len(tag) :].lstrip() if tag else body
    start += len(body) - len(rest)
    normal = normalize(rest, tokenizer.normalization)
    found = _cut(tokenizer, normal)
    if normal != rest:
        lengths = _lengths(lambda start, end: len(normalize(rest[start:end], tokenizer.normalization)), len(rest))
        for place in reversed(range(len(rest))):
            lengths[place] = min(lengths[place], lengths[place + 1])
        found = [_before(lengths, *span) for span in found]
    return spans + [(start + first, start + last) for first, last in found]


CONTEXT = 32
"""Number of preceding tokens that are considered to find how many characters one more token adds to the text: a
character may consist of several byte tokens, and a syllable of several jamo. For normalisation, characters take the
place of tokens.
"""


def _lengths(length: Callable[[int, int], int], count: int) -> list[int]:
    """Return the number of characters of the text of the first 0, 1, ..., `count` parts (tokens or characters).

    It takes linear time, because only `CONTEXT` parts before each one are considered.

    Args:
        length: Function that returns the length of the text of the parts from a start index to an end index.
    """
    found = [length(0, end) for end in range(min(count, 2 * CONTEXT) + 1)]
    for end in range(len(found), count + 1):  # what one more adds is decided by those just before it
        found.append(found[-1] + length(end - CONTEXT, end) - length(end - CONTEXT, end - 1))
    return found


def _cut(tokenizer: Tokenizer, text: str) -> list[Span]:
    if isinstance(tokenizer, Tagged):
        found: list[Span] = []
        place = 0
        for part, is_tag in tokenizer.sections(text):
            cut = [_without_blanks(part, 0, len(part))] if is_tag else _cut(tokenizer.inner, part)
            found += [(place + start, place + end) for start, end in cut]
            place += len(part)
        return found
    if tokenizer.whole_words:
        spans = words(text)
        counts = map(len, tokenizer.encode([text[slice(*span)] for span in spans]))
        return [span for span, count in zip(spans, counts, strict=True) for _ in range(count)]
    if tokenizer.cuts_characters_alone:
        counts = map(len, tokenizer.encode(list(text)))
        return [(place, place + 1) for place, count in enumerate(counts) for _ in range(count)]
    if isinstance(tokenizer, Imported):  # it has a normalisation of its own
        return [_without_blanks(text, *span) for span in tokenizer.surfaces(text)]
    return written(tokenizer, tokenizer.encode([text])[0])


def _before(lengths: list[int], start: int, end: int) -> Span:
    """Return the span of a text whose normal form has the span from `start` to `end`.

    The first n characters of the text become `lengths[n]` characters when they are normalised.
    """
    first, last = bisect_right(lengths, start) - 1, bisect_left(lengths, end)
    while last + 1 < len(lengths) and lengths[last + 1] == lengths[last]:  # an accent that went into its letter
        last += 1
    return first, max(first, last)


def _without_blanks(text: str, start: int, end: int) -> Span:
    body = text[start:end]
    if not body.strip():
        return start, end
    return start + len(body) - len(body.lstrip()), end - len(body) + len(body.rstrip())


def labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the labels `tokenizer.pieces(ids)`, except that byte tokens which spell a printable character together are
    labelled by it: `漢 1/3`, `漢 2/3`, `漢 3/3`.
    """
    found = tokenizer.pieces(ids)
    spellings, text, spans = tokenizer.spellings(), tokenizer.decode(ids), written(tokenizer, ids)
    bytes_of: dict[Span, list[int]] = {}
    for place, (token, span) in enumerate(zip(ids, spans, strict=True)):
        if re.fullmatch("<0x[0-9A-F]{2}>", spellings[token]):
            bytes_of.setdefault(span, []).append(place)
    for span, places in bytes_of.items():
        letter = text[slice(*span)]
        if len(places) > 1 and letter.isprintable():
            for number, place in enumerate(places, start=1):
                found[place] = f"{letter} {number}/{len(places)}"
    return found


def unknown_words(tokenizer: Tokenizer, text: str, unknown: Collection[int]) -> list[str]:
    """Return the words of a text that have one of the tokens `unknown`, each once, in order.

    For a character between words, such as a second blank, it is the code point: `U+0020`.
    """
    ids = tokenizer.encode([text.strip()])[0]
    found = [span for id, span in zip(ids, read(tokenizer, text), strict=True) if id in unknown]
    named = [text[slice(*word)] for word in words(text) if touching(found, word)]
    between = (text[start] for start, end in found if text[start:end].isspace())
    return list(dict.fromkeys([*named, *(f"U+{ord(blank):04X}" for blank in between)]))


def touching(spans: Sequence[Span], span: Span) -> list[int]:
    """Return the indices of the spans that have a character in common with `span`."""
    return [place for place, (start, end) in enumerate(spans) if max(start, span[0]) < min(end, span[1])]


def is_blank(text: str, span: Span) -> bool:
    """Return whether a span of a text has only spaces and invisible format characters, or nothing."""
    return not any(not each.isspace() and unicodedata.category(each) != "Cf" for each in text[slice(*span)])
