"""Unicode normalisation of text before it is tokenised, the same for every kind of tokenizer."""

import re
import unicodedata
from typing import Final, Literal

Normalization = Literal["identity", "nfkc", "nfkc_lower"]
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which is no character and cannot be written as UTF-8."""


def normalize(text: str, how: Normalization) -> str:
    """Return the text as the tokenizer sees it; half a surrogate pair becomes U+FFFD whatever the setting."""
    if not text.isascii():
        text = SURROGATE.sub("\ufffd", text)
        if how != "identity":
            text = normal_form("NFKC", text)
    if how == "nfkc_lower":
        text = normal_form("NFKC", text.lower())  # again, since lower() may take a letter apart
    return text


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
