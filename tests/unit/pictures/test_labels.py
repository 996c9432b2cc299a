"""Labels are readable, and stand for the same tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.pictures import labels


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["▁ab", "c"], ["▁ab", "c"]),
        (["\n", " ", "\t"], ["↵", "␣", "⇥"]),
        (["▁يول", "يو", "▁٢"], ["▁يول\u200d", "\u200dيو", "\u2067▁٢\u2069"]),
        (["▁يول", "▁٢", "▁٢٠", "٢٤", "▁17"], ["▁يول", "\u2067▁٢\u2069", "▁٢٠", "٢٤", "\u2067▁17\u2069"]),
        (["▁on", "▁17"], ["▁on", "▁17"]),
        ([], []),
    ],
)
def test_labels(tokens, expected):
    assert labels.of(tokens) == expected


@given(st.lists(st.text(max_size=5)))
def test_one_label_for_each_token(tokens):
    assert len(labels.of(tokens)) == len(tokens)


def test_each_side_keeps_its_direction():
    assert labels.arrow("١٧", "2024-07-17") == "\u200e\u2068١٧\u2069 → \u20682024-07-17\u2069"


def test_arabic_runs_backwards_and_its_numbers_forwards():
    tokens = ["▁يول", "يو", "▁٢٠", "٢", "٤", "▁ق"]
    assert labels.in_order(tokens, backwards=True) == [5, 2, 3, 4, 1, 0]
    assert labels.in_order(labels.of(tokens), backwards=True) == [5, 2, 3, 4, 1, 0]
    alone = ["▁يول", "▁١٧", "▁ق"]
    assert labels.in_order(labels.of(alone), backwards=True) == labels.in_order(alone, backwards=True) == [2, 1, 0]
    two = ["▁يول", "▁٢٠", "٢٤", "▁١", "٢"]
    assert labels.in_order(labels.of(two), backwards=True) == [3, 4, 1, 2, 0], "two numbers are not one"
    assert labels.in_order(["١٧", "a", "٢", "٤"], backwards=True) == [2, 3, 1, 0]
    assert labels.in_order(tokens, backwards=False) == [0, 1, 2, 3, 4, 5]
    assert labels.right_to_left("١٧ يوليو")
    assert not labels.right_to_left("7월 يو")
    assert not labels.right_to_left("")


def test_wide_letters_count_twice_and_signs_nothing():
    assert labels.columns_wide("ab한\u200d") == 4
