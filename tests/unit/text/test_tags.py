"""Tags are found by position, shape and a closed set of forms; nothing else is taken for one."""

import random

import pytest

from seq2see.text import dates
from seq2see.text.tags import NO_TAGS, TagWords, tag_parts, tag_words, where_tags_are

DICE = random.Random(7)
FEATURES = [["N", "V"], ["NOM", "DAT", "GEN", "IN+ALL", "PST"], ["SG", "PL"], ["1", "2", "3"]]


def word(letters: str = "abcdefghijklmnoprstu", least: int = 3) -> str:
    return "".join(DICE.choices(letters, k=DICE.randint(least, 9)))


WORDS = [word() for _ in range(800)]


def sentence() -> str:
    return " ".join(DICE.choices(WORDS, k=DICE.randint(3, 12)))


def features() -> str:
    return ";".join(map(DICE.choice, FEATURES))


def molecule() -> str:
    return "C" + "".join(DICE.choices(["C(=O)", "[NH3+]", "c1ccccc1", "N", "#N"], k=5))


TAGGED = {
    "reaction classes": (lambda: f"<RX_{DICE.randint(1, 10)}> {molecule()}", "first"),
    "features in front": (lambda: f"<{features()}> {word()}", "first"),
    "features behind": (lambda: f"{word()} {features()}", "last"),
    "capitals behind": (lambda: f"{word()} {DICE.choice(['PST', 'PRS', 'FUT'])}", "last"),
    "target languages": (lambda: f"<2{DICE.choice(['de', 'fr', 'ko'])}> {sentence()}", "first"),
    "underlined codes": (lambda: f"__{DICE.choice(['de', 'fr'])}__ {sentence()}", "first"),
    "bare codes": (lambda: f"{DICE.choice(['zz', 'qq'])} {sentence()}", "first"),
    "both ends": (lambda: f"<{DICE.choice('ab')}> {sentence()} {features()}", "both"),
    "Hangul": (lambda: f"{word('가나다라마바사아자차', 2)} V;{DICE.choice(['PST', 'PRS'])}", "last"),
    "several lemmas": (lambda: f"<{features()}> {word()}{DICE.choice(['', '', ' ' + word()])}", "first"),
}


@pytest.mark.parametrize("lines", [100, 3000])
@pytest.mark.parametrize("name", TAGGED)
def test_tags_are_found(name: str, lines: int) -> None:
    make, where = TAGGED[name]
    texts = [make() for _ in range(lines)]
    for place in range(0, lines, 40):  # a few odd lines change nothing
        texts[place] = word()
    assert where_tags_are(texts) == where


@pytest.mark.parametrize(("make", "where"), [("{} V;PST|{} V;PRS", "last"), ("<SG> {}|<PL> {}", "first")])
def test_tags_are_found_in_lines_that_alternate(make: str, where: str) -> None:
    """Tables of forms have the same order for each lemma, and are in the sample in the order of the file."""
    assert where_tags_are([form.format(lemma) for lemma in WORDS for form in make.split("|")]) == where


UNTAGGED = {
    "sentences": sentence,
    "sentences with signs apart": lambda: f"{sentence()} {DICE.choice('.?!')}",
    "sentences that end with a period": lambda: f"{sentence()}.",
    "sentences with a capital": lambda: sentence().capitalize(),
    "questions": lambda: f"{DICE.choice(['how', 'what', 'who'])} {sentence()} {DICE.choice(['how', 'ever'])} {word()}",
    "commands": lambda: f"{DICE.choice(['walk', 'jump'])} left and {DICE.choice(['walk', 'run'])}",
    "sounds": lambda: " ".join(DICE.choices("aeioubdg", k=6)),
    "words": word,
    "molecules": molecule,
    "sums": lambda: f"{DICE.randint(1, 999)} + {DICE.randint(1, 999)}",
}  # fmt: skip


@pytest.mark.parametrize("lines", [100, 3000])
@pytest.mark.parametrize("name", UNTAGGED)
def test_nothing_else_is_a_tag(name: str, lines: int) -> None:
    assert where_tags_are([UNTAGGED[name]() for _ in range(lines)]) == "none"


def test_dates_have_no_tags() -> None:
    pairs = list(dates.pairs("valid"))
    assert where_tags_are([pair.source for pair in pairs]) == "none"
    assert where_tags_are([]) == where_tags_are([""]) == where_tags_are(["a b"]) == "none"


def test_parts_of_a_tag() -> None:
    assert tag_parts("V;IN+ALL;3") == ["V", ";IN", "+ALL", ";3"]
    assert tag_parts("<N;DAT;SG>") == ["<N", ";DAT", ";SG", ">"]
    assert [tag_parts(each) for each in ("<RX_1>", "<2de>", "V", ";", "")] == [
        ["<RX_1>"],
        ["<2de>"],
        ["V"],
        [";"],
        [""],
    ]


def test_texts_are_split_at_their_tags() -> None:
    found = tag_words(["<a;b> x y", "<b;b> z", "<a;c> w", "<a;c> v"], "first")
    assert found.front == {"<a", ";b", ";c", "> "}
    assert found.split("<a;c> x y") == (["<a", ";c", "> "], "x y", [])
    assert found.split("<a;new> x") == (["<a", ";new", "> "], "x", [])  # most of it is known
    assert found.split("<new> x") == ([], "<new> x", [])
    assert found.split("<a;b>") == ([], "<a;b>", [])
    behind = tag_words(["x V;P", "y V;P", "z w V;Q", "u V;Q"], "last")
    assert behind == TagWords(frozenset(), frozenset({" V", ";P", ";Q"}))
    assert behind.split("x  V;P") == ([], "x ", [" V", ";P"])
    assert behind.split("V;P") == ([], "V;P", [])
    assert NO_TAGS.split("a b") == ([], "a b", [])


def test_several_tags_in_a_row() -> None:
    texts = [f"<2{DICE.choice(['de', 'fr'])}> <{DICE.choice(['formal', 'informal'])}> {sentence()}" for _ in range(500)]
    found = tag_words(texts, where_tags_are(texts))
    assert found.front == {"<2de> ", "<2fr> ", "<formal> ", "<informal> "}
    assert found.split("<2de> <formal> a b")[1] == "a b"


def test_endless_tags_take_no_long_time() -> None:
    found = TagWords(frozenset({"a "}), frozenset({" a"}))
    front, between, back = found.split("a " * 200_000)
    assert (len(front), len(back)) == (4, 0)
    assert "".join([*front, between, *back]) == "a " * 200_000
