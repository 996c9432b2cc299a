"""Unicode normal forms in linear time."""

import unicodedata
from typing import Final, Literal

MOST_MARKS: Final = 512
"""Combining marks after one another that are put in order together; no language has more than a few."""


def normal_form(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Call `unicodedata.normalize` in linear time: it sorts marks in time that is quadratic in their number."""
    if len(text) <= MOST_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    pieces: list[str] = []
    begin = marks = 0
    for place, combines in enumerate(map(unicodedata.combining, text)):
        marks = marks + 1 if combines else 0
        if marks > MOST_MARKS:
            pieces.append(text[begin:place])
            begin, marks = place, 0
    return "".join(unicodedata.normalize(form, piece) for piece in [*pieces, text[begin:]])
