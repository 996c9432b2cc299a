"""Symbols are split into letters and marks where that tells something, and joined to the same text again."""

import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from seq2see import special
from seq2see.errors import DataError, RunError
from seq2see.tokens import marks, spans, tokenizers
from seq2see.tokens.interface import LONGEST_TOKEN

SERBO_CROATIAN = ["d r ǎː ʒ i", "ʒ îː v o t", "i z a ɡ r ǎ d", "r̂ d a t͡ʃ", "o b a a i r", "d i n a r"]
COMPOSED = unicodedata.normalize("NFC", "á̰ a a̰ á")


def test_the_last_mark_is_split_off_first_and_then_those_before_the_letter():
    assert list(marks.forms("ˌtʰː")) == [
        ("ˌtʰː", ("ˌtʰː",)),
        ("ˌtʰ", ("ˌtʰ", "◌ː")),
        ("ˌt", ("ˌt", "◌ʰ", "◌ː")),
        ("t", ("ˌ◌", "t", "◌ʰ", "◌ː")),
    ]


@pytest.mark.parametrize("symbol", ["t͡ʃ", "AH0", "a", "ː", "ːː", "^", "x^", "◌", ""])
def test_what_has_no_mark_outside_of_its_letter_stays_whole(symbol: str) -> None:
    """The bar of an affricate is inside of it, digits and ASCII are no marks, and marks alone have no letter."""
    assert list(marks.forms(symbol)) == [(symbol, (symbol,))]


def test_many_marks_take_no_time():
    assert len(list(marks.forms("i" + "\u0301" * 100_000))) == marks.MOST_SPLIT + 1


@pytest.mark.parametrize(
    ("symbols", "tokens"),
    [
        ({"i": 50, "iː": 10}, {"i": 60, "◌ː": 10}),
        ({"a̠": 50, "i": 9}, {"a̠": 50, "i": 9}),  # a letter that always has its mark
        ({"a̠": 50, "a̠ː": 10}, {"a̠": 60, "◌ː": 10}),  # the first mark is always there, and the second not
        ({"a": 2, "aː": 50}, {"a": 2, "aː": 50}),  # seldom without
        ({"a": 3, "aː": 50}, {"a": 53, "◌ː": 50}),
        ({"áː": 5, "àː": 5}, {"a": 10, "◌́": 5, "◌̀": 5, "◌ː": 10}),  # neither letter is alone, but both marks differ
        ({"ˈa": 5, "a": 5}, {"a": 10, "ˈ◌": 5}),
        ({"iː": 5, "ːi": 5}, {"i": 10, "◌ː": 5, "ː◌": 5}),
    ],
)
def test_a_mark_is_split_off_if_the_letter_is_not_rare_without_it(
    symbols: dict[str, int], tokens: dict[str, int]
) -> None:
    def decomposed(counts: dict[str, int]) -> dict[str, int]:
        return {unicodedata.normalize("NFD", symbol): count for symbol, count in counts.items()}

    assert marks.count_tokens(decomposed(symbols)) == decomposed(tokens)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_texts_in_either_form_of_unicode_come_back_as_they_were(form: str) -> None:
    texts = [unicodedata.normalize(form, text) for text in SERBO_CROATIAN]
    learned = tokenizers.train("marks", texts, 100)
    for text in [*texts, unicodedata.normalize(form, "i ǐː ǎ r̂ z")]:  # the last has combinations that were not seen
        assert learned.decode(learned.encode([text])[0]) == text
        assert learned.can_write(text)
    ids = learned.encode([texts[0]])[0]
    assert learned.pieces(ids) == ["d", "r", "a", "◌̌", "◌ː", "ʒ", "i"]


def test_texts_of_which_some_are_composed_come_back_as_well():
    texts = [*SERBO_CROATIAN, unicodedata.normalize("NFD", "d r ǎː")]
    learned = tokenizers.train("marks", texts, 100)
    assert [learned.decode(ids) for ids in learned.encode(texts)] == texts


def test_marks_in_any_order_come_back_in_the_order_of_unicode():
    learned = tokenizers.train("marks", [COMPOSED, COMPOSED], 100)
    assert learned.can_write(COMPOSED)


def test_a_symbol_that_cannot_be_written_is_one_unknown_token():
    learned = tokenizers.train("marks", SERBO_CROATIAN, 100)
    ids = learned.encode(["q qː aʷ ǐː ◌ː"])[0]
    assert ids[:3] == [special.UNKNOWN] * 3
    assert ids[-1] == special.UNKNOWN, "text that looks like the token of a mark is none"
    assert special.UNKNOWN not in ids[3:-1]
    assert learned.unknown("q ǐː qː") == ["q", "qː"]
    assert learned.decode(ids).startswith("⁇ ⁇ ⁇ ǐː")


def test_each_token_of_a_symbol_has_its_place_in_the_text():
    learned = tokenizers.train("marks", SERBO_CROATIAN, 100)
    text = " a  ǐː r"
    assert spans.read(learned, text) == [(1, 2), (4, 6), (4, 6), (4, 6), (7, 8)]
    assert spans.written(learned, learned.encode(["a ǐː r"])[0]) == [(0, 1), (2, 3), (2, 3), (3, 4), (5, 6)]


def test_any_order_of_tokens_is_a_text():
    tokens = ["◌ː", "a", "ˈ◌", "ˈ◌", "◌ː", "i", "◌ː", "t", "ˈ◌"]
    assert marks.join(tokens, composed=False) == "ː a ˈˈː iː t ˈ"


def test_a_language_tag_is_no_symbol():
    learned = tokenizers.train("marks", ["<2de> a aː", "<2de> i iː"], 100, tags=["<2de>"])
    assert learned.pieces(learned.encode(["<2de> iː"])[0]) == ["<2de>", "i", "◌ː"]


def test_empty_lines_only_are_an_error():
    with pytest.raises(DataError, match="every line is empty"):
        tokenizers.train("marks", ["", " "], 100)


def test_the_file_holds_whether_text_is_composed(tmp_path: Path) -> None:
    learned = tokenizers.train("marks", SERBO_CROATIAN, 100)
    learned.save(tmp_path / "tokenizer.json")
    loaded = tokenizers.load(tmp_path / "tokenizer.json")
    assert [loaded.decode(ids) for ids in loaded.encode(SERBO_CROATIAN)] == SERBO_CROATIAN
    state = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    del state["composed"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(RunError, match="damaged"):
        tokenizers.load(tmp_path / "tokenizer.json")


def test_how_many_marks_a_phoneme_has():
    assert marks.per_phoneme(SERBO_CROATIAN) == pytest.approx(6 / 32)
    assert marks.per_phoneme(["AH0 L OW1", "t͡ʃ a"]) == 0
    assert marks.per_phoneme([]) == marks.per_phoneme(["", " "]) == 0


@pytest.mark.parametrize(
    "texts",
    [
        ["un été très chaud", "la forêt est là"],  # words with accents, which also occur without
        ["ç o c", "ç a c a"],  # the cedilla belongs to the phonetic letter
        ["☀\ufe0f ☀", "❤ ❤\ufe0f"],  # the appearance of emoji
        ["a ◌ː aː a", "aː ◌ː"],  # signs that look like the tokens of marks
    ],
)
def test_symbols_that_are_no_phonemes_with_marks_have_none(texts: list[str]) -> None:
    assert marks.per_phoneme(texts) == 0


def test_a_dotted_circle_with_marks_is_not_split_into_what_would_be_the_token_of_a_mark():
    assert list(marks.forms("◌ːː")) == [("◌ːː", ("◌ːː",))]


def test_a_symbol_that_is_too_long_for_a_token_is_unknown():
    long = "a" * (LONGEST_TOKEN + 1)
    for kind in ("marks", "symbols"):
        learned = tokenizers.train(kind, [f"a aː i {long} iː"], 100)
        assert learned.unknown(f"a {long} iː") == [long]


def test_what_is_left_of_a_language_tag_with_a_mark_behind_it_is_no_token():
    learned = tokenizers.train("marks", ["<2de> a aː <2de>ː", "<2de> i iː <2de>ː"], 100, tags=["<2de>"])
    assert learned.spellings().count("<2de>") == 1


def test_the_most_frequent_tokens_are_in_a_small_vocabulary():
    counts = marks.count_tokens(Counter(["a", "a", "a", "a", "i", "i", "iː", "iː", "b"]))
    assert counts == {"a": 4, "i": 4, "◌ː": 2, "b": 1}
    learned = tokenizers.train("marks", ["a a a a i i iː iː b"], special.COUNT + 3)
    assert learned.spellings()[special.COUNT :] == ["a", "i", "◌ː"]
