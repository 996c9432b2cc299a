"""Tokens as labels: what would vanish gets a sign, bytes become the character that they spell, letters stay joined."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

_BYTE = re.compile(r"x([89A-F][0-9A-F])")
_SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_JOINER = "\u200d"


def of(tokens: Sequence[str]) -> list[str]:
    """Labels for tokens in the order of their text.

    >>> of(["▁", "xEC", "x9A", "xB0", "ab"])
    ['▁', '우₁', '우₂', '우₃', 'ab']
    """
    labels = [visible(token) for token in tokens]
    start = 0
    while start < len(tokens):
        for length in (4, 3, 2):
            if character := _spelled(tokens[start : start + length], length):
                for number in range(length):
                    labels[start + number] = f"{character}{str(number + 1).translate(_SMALL)}"
                start += length - 1
                break
        start += 1
    # Arabic letters join their neighbours, also across the cut between two tokens: an invisible sign says so.
    for place, (one, other) in enumerate(pairwise(tokens)):
        if _joins(one[-1:]) and _joins(other[:1]):
            labels[place] += _JOINER
            labels[place + 1] = _JOINER + labels[place + 1]
    return labels


def arrow(source: str, translation: str) -> str:
    """`source → translation` from left to right; each keeps its own direction, or Arabic would turn 2024-07-17 over."""
    return f"\u200e\u2068{source}\u2069 → \u2068{translation}\u2069"


def right_to_left(text: str) -> bool:
    """Whether a text begins with a letter of Arabic, Hebrew or their like."""
    strong = (kind for kind in map(unicodedata.bidirectional, text) if kind in ("L", "R", "AL"))
    return next(strong, "L") != "L"


def in_order(tokens: Sequence[str], backwards: bool) -> list[int]:
    """The places of tokens as they stand from left to right; in Arabic and Hebrew, numbers still run that way."""
    if not backwards:
        return list(range(len(tokens)))
    order: list[int] = []
    number: list[int] = []
    for place, token in enumerate(tokens):
        if token.strip("▁").isdecimal():
            number.append(place)
        else:
            order = [place, *number, *order]
            number = []
    return [*number, *order]


def touching(spans: Sequence[tuple[int, int]], span: tuple[int, int]) -> list[int]:
    """The tokens, by their spans of characters, that have a character in common with a span."""
    return [place for place, (start, end) in enumerate(spans) if start < span[1] and span[0] < end]


def visible(token: str) -> str:
    """A token as it is labelled: white space that would vanish gets a sign."""
    token = token.replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")
    return token if token.strip() else "␣" * len(token)


def columns_wide(text: str) -> int:
    """Width in columns of a terminal: East Asian characters count twice, joiners and marks nothing."""
    return sum(
        0 if unicodedata.category(character) in ("Mn", "Cf") else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def _spelled(tokens: Sequence[str], length: int) -> str | None:
    """The character that so many bytes in UTF-8 make, if they do."""
    found = [_BYTE.fullmatch(token) for token in tokens]
    if len(found) < length or not all(found):
        return None
    try:
        character = bytes(int(each[1], 16) for each in found if each).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return character if len(character) == 1 and character.isprintable() else None


def _joins(character: str) -> bool:
    return "\u0620" <= character <= "\u06ff" and unicodedata.category(character) in ("Lo", "Lm")
