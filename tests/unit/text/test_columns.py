"""Which columns are the source and the target: by number, by name, by language."""

import pytest

from seq2see.errors import DataError
from seq2see.text import columns
from seq2see.text.pair import NOTHING, Sides


def test_two_columns_without_a_header() -> None:
    assert columns.choose(["ein Haus", "a house"], NOTHING, NOTHING) == (None, False)  # the first two


def test_well_known_names_make_a_header() -> None:
    assert columns.choose(["Q", "A", "label"], NOTHING, NOTHING) == ([0, 1], True)
    assert columns.choose(["label", "target", "source"], NOTHING, NOTHING) == ([2, 1], True)


def test_columns_by_option() -> None:
    assert columns.choose(["x", "y", "z"], Sides("3", "1"), NOTHING)[0] == [2, 0]
    assert columns.choose(["x", "y", "z"], Sides("y", "z"), NOTHING) == ([1, 2], True)
    with pytest.raises(DataError, match="w"):
        columns.choose(["x", "y", "z"], Sides("w", "z"), NOTHING)


def test_two_languages_are_a_header() -> None:
    assert columns.are_languages("Korean", "en-US")
    assert not columns.are_languages("hello", "world")


def test_fields_of_records_by_path() -> None:
    record = {"translation": {"en": "a house"}, "list": ["x", "y"]}
    assert columns.field(record, "translation.en") == "a house"
    assert columns.field(record, "list.2") == "y"
    assert columns.field(record, "translation.de") is None
    assert columns.language_of_path("translation.en") == "en"
