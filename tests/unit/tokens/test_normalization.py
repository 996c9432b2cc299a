"""Unicode normalisation: the same as Python's own for any text that somebody writes, and linear for all others."""

import unicodedata

import pytest

from seq2see.tokens import interface
from seq2see.tokens.interface import MOST_MARKS, normal_form


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize(
    "text", ["", "e\u0301" * 2000, "ﬁ한국" * 999, "q\u0323\u0307" * 999, "\u1112\u1161\u11ab" * 999]
)
def test_it_is_the_normal_form(form, text):
    assert normal_form(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_marks_without_end_are_put_in_order_in_pieces(form, monkeypatch):
    """Python sorts marks in time that grows with the square of their number: 10,000 of them took 0.13 s."""
    text = "a" + "\u0301\u0316" * 20_000
    lengths = []

    def normalize(form, piece):
        lengths.append(len(piece))
        return unicodedata.normalize(form, piece)

    monkeypatch.setattr(
        interface, "unicodedata", type("", (), {"normalize": normalize, "combining": unicodedata.combining})
    )
    found = normal_form(form, text)
    assert max(lengths) <= MOST_MARKS + 2
    assert sorted(found) == sorted(unicodedata.normalize(form, text))
