"""The built-in corpus: many languages, one meaning for each text, the same everywhere."""

import re
import unicodedata
from collections import Counter
from datetime import date

import pytest

from seq2see.text import dates
from seq2see.text.pair import Pair

DAY = date(2024, 3, 7)  # a Thursday


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Pair]]:
    return {split: list(dates.pairs(split)) for split in dates.SIZES}


def language(pair: Pair) -> str:
    return pair.where.rpartition(", ")[2]


def test_sizes_and_equal_shares(corpus: dict[str, list[Pair]]) -> None:
    assert len(dates.LANGUAGES) == len(set(dates.LANGUAGES)) >= 40
    for split, size in {"train": 40_000, "valid": 1_000, "test": 2_000}.items():
        shares = Counter(map(language, corpus[split]))
        assert set(shares) == set(dates.LANGUAGES)
        assert set(shares.values()) == {size // len(dates.LANGUAGES)}


def test_languages_are_interleaved_and_named(corpus: dict[str, list[Pair]]) -> None:
    turn = len(dates.LANGUAGES)
    assert tuple(language(pair) for pair in corpus["train"][turn : 2 * turn]) == dates.LANGUAGES
    assert {pair.where for pair in corpus["valid"] if language(pair) == "ko"} == {"dates valid, ko"}


def test_no_day_is_in_two_splits_nor_twice_in_one(corpus: dict[str, list[Pair]]) -> None:
    targets = [pair.target for pairs in corpus.values() for pair in pairs]
    assert len(set(targets)) == len(targets) == sum(dates.SIZES.values())


def test_targets_are_days_of_two_centuries(corpus: dict[str, list[Pair]]) -> None:
    for split, pairs in corpus.items():
        days = [date.fromisoformat(pair.target) for pair in pairs]
        assert all(pair.target == day.isoformat() for pair, day in zip(pairs, days, strict=True))
        assert {day.month for day in days} == set(range(1, 13))
        assert {day.day for day in days} == set(range(1, 32))
        years = {day.year for day in days}
        assert years <= set(range(1900, 2100))
        assert len(years) > 190, split


def test_the_text_alone_gives_day_and_year(corpus: dict[str, list[Pair]]) -> None:
    """Four digits of the year and one or two of the day are in every text; the month may be a number, if marked."""
    for pair in corpus["test"]:
        numbers = [int(number) for number in re.findall(r"\d+", pair.source)]  # \d and int know all digits of Unicode
        day = date.fromisoformat(pair.target)
        assert day.year in numbers, pair
        assert day.day in numbers, pair
        assert len(numbers) == 2 or (len(numbers) == 3 and day.month in numbers), pair
        assert any(character.isalpha() for character in pair.source), pair


def test_no_text_has_two_meanings() -> None:
    """Over every form of every language: days that differ in one part only, and all days that numbers could confuse."""
    days = [
        date(year, month, day) for year in (2001, 2012) for month in range(1, 13) for day in (1, 2, 3, 10, 11, 12, 28)
    ]
    meaning: dict[str, date] = {}
    for each in dates.LANGUAGES:
        for write in dates.writers(each):
            for day in days:
                text = write(day)
                assert text == text.strip()
                assert meaning.setdefault(text, day) == day, f"{text} in {each}"


def test_the_whole_corpus_is_unambiguous(corpus: dict[str, list[Pair]]) -> None:
    meaning: dict[str, str] = {}
    for pairs in corpus.values():
        for pair in pairs:
            assert meaning.setdefault(pair.source, pair.target) == pair.target


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("en", ["Mar 7, 2024", "March 7, 2024", "Thursday, March 7, 2024"]),
        ("ko", ["2024년 3월 7일", "2024년 3월 7일 목요일"]),
        ("ja", ["2024年3月7日", "2024年3月7日木曜日"]),
        ("de", ["7. März 2024", "Donnerstag, 7. März 2024"]),
        ("ar_EG", ["٧ مارس ٢٠٢٤", "الخميس، ٧ مارس ٢٠٢٤"]),
    ],
)
def test_forms_without_the_numeric_ones(name: str, texts: list[str]) -> None:
    assert [write(DAY) for write in dates.writers(name)] == texts


@pytest.mark.parametrize(
    ("name", "year"),
    [("ar_EG", "٢٠٢٤"), ("fa", "۲۰۲۴"), ("my", "၂၀၂၄"), ("bn", "২০২৪"), ("mr", "२०२४"), ("ne", "२०२४"), ("dz", "༢༠༢༤")],
)
def test_native_digits_where_they_are_the_default(name: str, year: str) -> None:
    for write in dates.writers(name):
        text = write(DAY)
        assert year in text
        assert not re.search("[0-9]", text)


@pytest.mark.parametrize(("name", "year"), [("hi", "२०२४"), ("th", "๒๐๒๔"), ("km", "២០២៤"), ("ta", "௨௦௨௪")])
def test_both_kinds_of_digits_where_both_are_in_use(name: str, year: str) -> None:
    texts = [write(DAY) for write in dates.writers(name)]
    assert [year in text for text in texts] == [False, False, False, True, True, True]
    assert ["2024" in text for text in texts] == [True, True, True, False, False, False]


def test_zeros_are_zeros() -> None:
    for zero in dates.ZEROS.values():
        assert [unicodedata.digit(chr(ord(zero) + digit)) for digit in range(10)] == list(range(10))


def test_scripts(corpus: dict[str, list[Pair]]) -> None:
    """Every language is written in the script it is listed under."""
    named = {"Han": "CJK"}
    script = {each: named.get(name, name.upper()) for name, languages in dates.SCRIPTS.items() for each in languages}
    for pair in corpus["valid"]:
        letters = Counter(unicodedata.name(letter).split()[0] for letter in pair.source if letter.isalpha())
        assert letters.most_common(1)[0][0] == script[language(pair)], pair


def test_the_same_twice_and_on_every_machine(corpus: dict[str, list[Pair]]) -> None:
    assert list(dates.pairs("valid")) == corpus["valid"]
    assert [day.isoformat() for day in dates.days("test")[:3]] == ["2026-08-18", "1981-04-10", "1970-03-11"]
