"""Which columns are the source and the target: by number, by name, by language."""

import random

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


DICE = random.Random(5)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = list(dict.fromkeys("".join(DICE.choices(LETTERS, k=DICE.randint(3, 9))) for _ in range(400)))
SENTENCES = [(" ".join(DICE.choices(WORDS, k=8)), " ".join(DICE.choices(WORDS, k=7)) + ".") for _ in range(300)]
PHONES = [(word, " ".join(word.upper())) for word in WORDS]
HANGUL = [(word, "".join(chr(0xAC00 + 7 * ord(letter) % 300) for letter in word)) for word in WORDS]
SPELLINGS = [(word, word.replace("v", "u")) for word in WORDS]
TABLES = {"sentences": SENTENCES, "phones": PHONES, "Hangul": HANGUL, "spellings": SPELLINGS}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("command", "action"),
        ("word", "phonemes"),
        ("text", "summary"),
        ("원문", "번역"),
        ("english text", "German_Text"),
    ],
)
def test_usual_words_look_like_names_before_any_rows(source: str, target: str, table: str) -> None:
    assert columns.look_like_names([(source, target), *TABLES[table]])
    assert columns.look_like_names([(source, target), ("one row", "is enough")])


@pytest.mark.parametrize("table", ["sentences", "phones", "Hangul"])
def test_unusual_names_are_recognised_if_other_rows_look_different(table: str) -> None:
    assert columns.look_like_names([("haystack", "needle"), *TABLES[table]])
    assert columns.look_like_names([("word", "zielwort"), *TABLES[table]])
    assert not columns.look_like_names([("haystack", "needle"), *TABLES[table][:19]])  # too few to tell


@pytest.mark.parametrize("table", TABLES)
def test_a_first_pair_is_no_header(table: str) -> None:
    rows = TABLES[table]
    assert not any(columns.look_like_names(rows[start:] + rows[:start]) for start in range(0, len(rows), 7))


@pytest.mark.parametrize(
    ("first", "table"),
    [
        (("haystack", "needle"), "spellings"),
        (("text", "Text"), "sentences"),
        (("2024", "2025"), "sentences"),
        (("Hello!", "Hallo!"), "sentences"),
        (("a name of columns", "in four words"), "sentences"),
        (("a", "A"), "phones"),
        ((SENTENCES[0][0].split()[0], "needle"), "sentences"),
    ],
)
def test_what_does_not_look_like_names(first: tuple[str, str], table: str) -> None:
    assert not columns.look_like_names([first, *TABLES[table]])


def test_words_that_are_both_entries_are_no_names() -> None:
    assert columns.look_like_names([("word", "summary"), ("word", "w")])
    assert not columns.look_like_names([("word", "summary"), ("word", "w"), ("summary", "s")])


def test_fields_of_records_by_path() -> None:
    record = {"translation": {"en": "a house"}, "list": ["x", "y"]}
    assert columns.field(record, "translation.en") == "a house"
    assert columns.field(record, "list.2") == "y"
    assert columns.field(record, "translation.de") is None
    assert columns.language_of_path("translation.en") == "en"
