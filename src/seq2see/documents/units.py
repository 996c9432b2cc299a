"""Units of a translation (words, punctuation, placeholders), and the positions in the source that each is aligned
with.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from seq2see.documents.segments import Span, needs_no_blank


class Item(NamedTuple):
    """A tag, a comment, a placeholder or a line break of a sentence."""

    kind: str
    """Start tag (`open`), end tag (`close`), empty or unpaired tag or comment (`point`), placeholder (`object`), line
    `break`.
    """
    span: Span
    """Span in the text of the sentence: for a placeholder, that of its stand-in; for all other kinds, an empty span at
    the index before which the item stands.
    """
    raw: Span
    """Span of the item in the document, in characters."""
    number: int = -1
    partner: int = -1
    blank_before: bool = False
    blank_after: bool = False


class Unit(NamedTuple):
    """A word, a punctuation mark or symbol, a letter of a script without spaces, or a placeholder of a translation."""

    span: Span
    votes: tuple[float, ...] = ()
    """For each word link of the unit, the middle of the linked part of the sentence, as a character index; for a
    placeholder, the middle of its stand-in in the sentence.
    """
    item: Item | None = None


def units_of(translation: str, links: Sequence[tuple[Span, Span]], objects: Sequence[tuple[Span, Item]]) -> list[Unit]:
    """Return the units of a translation, each with the positions of the sentence that it is aligned with.

    Args:
        links: characters of the sentence, and characters of the translation that come from them.
        objects: spans of placeholders in the translation, with the placeholders.
    """
    spans = word_spans(translation)
    ordered = sorted(objects, key=lambda each: each[0])
    found: list[Unit] = []
    place = 0
    for span, item in ordered:
        while place < len(spans) and spans[place][0] < span[1]:
            if spans[place][1] <= span[0]:
                found.append(Unit(spans[place]))
            elif spans[place][0] < span[0]:
                found.append(Unit((spans[place][0], span[0])))
            if spans[place][1] > span[1]:  # a stand-in inside a longer word
                spans[place] = span[1], spans[place][1]
                break
            place += 1
        found.append(Unit(span, (sum(item.span) / 2,), item))
    found += [Unit(span) for span in spans[place:]]
    votes: list[list[float]] = [[] for _ in found]
    first = 0
    for source, target in sorted(links, key=lambda link: link[1]):
        while first < len(found) and found[first].span[1] <= target[0]:
            first += 1
        for number in range(first, len(found)):
            if found[number].span[0] >= target[1]:
                break
            votes[number].append((source[0] + source[1]) / 2)
    return [unit if unit.item else unit._replace(votes=tuple(each)) for unit, each in zip(found, votes, strict=True)]


def word_spans(text: str) -> list[Span]:
    """Return the spans of words and of single punctuation marks; in scripts without spaces, each letter is a word."""
    found: list[Span] = []
    start, kind = 0, "blank"
    for at, letter in enumerate(text):
        following = _kind(letter)
        if following == "joint":  # accents belong to the letter before; so do hyphens and apostrophes inside a word
            is_inside = unicodedata.category(letter).startswith("M") or (
                kind == "word" and at + 1 < len(text) and _kind(text[at + 1]) == "word"
            )
            following = kind if is_inside and kind != "blank" else "sign"
            if following == kind and is_inside:
                continue
        if following != kind or kind in ("sign", "letter"):
            if kind != "blank":
                found.append((start, at))
            start, kind = at, following
    if kind != "blank":
        found.append((start, len(text)))
    return found


def _kind(letter: str) -> str:
    if letter.isspace():
        return "blank"
    category = unicodedata.category(letter)
    if letter in "-'’‑·_" or category[0] == "M":
        return "joint"
    if category[0] in "LN":
        return "letter" if needs_no_blank(letter) else "word"
    return "sign"


def score(unit: Unit, span: Span, outside: float) -> float:
    """Return how much a unit belongs to a span of the sentence: the share of its votes inside, minus `outside` times
    the share of those outside.

    The result is multiplied by 3 for a placeholder, and by 1 to 1.2 for a word, according to its length. A unit without
    votes has the score -0.1.
    """
    if not unit.votes:
        return -0.1
    share = sum(span[0] <= vote < span[1] for vote in unit.votes) / len(unit.votes)
    length = unit.span[1] - unit.span[0]
    weight = 3 if unit.item else 1 + min(length, 20) / 100  # a placeholder is certain; of two words, the longer counts
    return weight * (share - outside * (1 - share))


def best_run(scores: Sequence[float]) -> Span:
    """Return the first range of scores with the greatest sum; an empty range if no score is positive."""
    best, found = 0.0, (0, 0)
    total, start = 0.0, 0
    for place, score in enumerate(scores):
        if total <= 0:
            total, start = 0.0, place
        total += score
        if total > best:
            best, found = total, (start, place + 1)
    return found
