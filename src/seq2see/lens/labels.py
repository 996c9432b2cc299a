"""Tokens as labels: what would vanish gets a sign, letters stay joined, and text stands in its own direction."""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

_JOINER = "\u200d"
_FROM_THE_RIGHT, _END = "\u2067", "\u2069"


def of(tokens: Sequence[str]) -> list[str]:
    """Labels for tokens in the order of their text."""
    labels = [visible(token) for token in tokens]
    # Arabic letters join their neighbours, also across the cut between two tokens: an invisible sign says so.
    for place, (one, other) in enumerate(pairwise(tokens)):
        if _joins(one[-1:]) and _joins(other[:1]):
            labels[place] += _JOINER
            labels[place + 1] = _JOINER + labels[place + 1]
    # A number alone knows no direction, but the blank before it stands where the text puts it. (That before the first
    # of several pieces of a number stays on the left: on the right it would cut the number in two.)
    if right_to_left("".join(tokens)):
        for place, token in enumerate(tokens):
            goes_on = "".join(tokens[place + 1 : place + 2]).isdecimal()
            if token.startswith("▁") and _is_number(token) and not goes_on:
                labels[place] = f"{_FROM_THE_RIGHT}{labels[place]}{_END}"
    return labels


def about_blanks(text: str) -> str:
    """End of a subtitle, where blanks are seen in a picture."""
    return "  ·  ▁: a blank" if "▁" in text else ""


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
        if _is_number(token) and "▁" in token:  # another one begins
            order, number = [*number, *order], [place]
        elif _is_number(token):
            number.append(place)
        else:
            order = [place, *number, *order]
            number = []
    return [*number, *order]


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


def _is_number(token: str) -> bool:
    return token.strip(f"▁{_FROM_THE_RIGHT}{_END}").isdecimal()


def _joins(character: str) -> bool:
    return "\u0620" <= character <= "\u06ff" and unicodedata.category(character) in ("Lo", "Lm")
