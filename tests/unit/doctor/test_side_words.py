"""Words tell which side a text belongs to, where the corpus has two languages, and only there."""

import random

from seq2see.doctor import side_words
from seq2see.text.pair import Sides

DICE = random.Random(3)
ENGLISH = [
    "the",
    "a",
    "man",
    "dog",
    "is",
    "on",
    "in",
    "with",
    "and",
    "woman",
    "street",
    "red",
    "of",
    "two",
    "people",
    "are",
    "at",
    "playing",
]
GERMAN = [
    "der",
    "ein",
    "mann",
    "hund",
    "ist",
    "auf",
    "in",
    "mit",
    "und",
    "frau",
    "straße",
    "rot",
    "von",
    "zwei",
    "leute",
    "sind",
    "an",
    "spielen",
]


def pairs(count: int, ones: list[str] = ENGLISH, others: list[str] = GERMAN) -> list[tuple[str, str]]:
    return [
        (" ".join(DICE.choices(ones, k=DICE.randint(4, 12))), " ".join(DICE.choices(others, k=DICE.randint(4, 12))))
        for _ in range(count)
    ]


def test_exchanged_pairs_are_told_from_the_others() -> None:
    corpus = pairs(500)
    for number in range(0, 500, 25):
        corpus[number] = corpus[number][::-1]
    odds = side_words.learn(corpus)
    found = [number for number, pair in enumerate(corpus) if side_words.are_exchanged(odds, *pair)]
    assert set(found) <= set(range(0, 500, 25))
    assert len(found) >= 18


def test_a_word_of_both_languages_tells_nothing() -> None:
    odds = side_words.learn(pairs(500))
    assert "in" not in odds
    assert odds["der"] < 0 < odds["the"]


def test_one_language_on_both_sides_tells_nothing() -> None:
    assert not any(
        side_words.are_exchanged(side_words.learn(pairs(500, ENGLISH, ENGLISH)), *pair) for pair in pairs(100)
    )


def test_half_of_all_pairs_exchanged_tells_nothing() -> None:
    corpus = [pair[:: 1 if number % 2 else -1] for number, pair in enumerate(pairs(500))]
    odds = side_words.learn(corpus)
    assert not any(side_words.are_exchanged(odds, *pair) for pair in corpus)


def test_one_side_alone_is_not_enough() -> None:
    odds = side_words.learn(pairs(500))
    assert side_words.are_exchanged(odds, "der hund ist", "the dog is")
    assert not side_words.are_exchanged(odds, "der hund ist", "der hund ist")
    assert not side_words.are_exchanged(odds, "der", "the")


def test_nothing_to_learn_from() -> None:
    assert side_words.learn([]) == {}
    assert side_words.tell({}, "a b c") == 0


def test_names_of_columns() -> None:
    assert side_words.is_header("Source", "target")
    assert side_words.is_header("en", "Korean")
    assert not side_words.is_header("en", "en")
    assert not side_words.is_header("is", "est")
    assert side_words.is_header("word", "phones")
    assert not side_words.is_header("hello", "target")
    assert side_words.have_exchanged_names(Sides("target", "source"), ("", ""))
    assert side_words.have_exchanged_names(Sides("ko", "en"), ("Latin", "Hangul"))
    assert side_words.have_exchanged_names(Sides("zh-TW", "ru"), ("Cyrillic", "Han"))
    assert not side_words.have_exchanged_names(Sides(None, "en"), ("Latin", "Hangul"))
    assert not side_words.have_exchanged_names(Sides("en", "ko"), ("Latin", "Hangul"))
    assert not side_words.have_exchanged_names(Sides("en", "de"), ("Latin", "Latin"))
    assert not side_words.have_exchanged_names(Sides("en", "ko"), ("Latin", "Latin"))
