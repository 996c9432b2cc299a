"""Scripts, signs and digits of many texts at once; damage undone, and right texts left alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.doctor import characters
from seq2see.doctor.characters import mend, unmangle


def scripts(*texts: str) -> list[str]:
    return [characters.script_name(int(kind)) for kind in characters.measure(list(texts)).script]


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("hello", "Latin"),
        ("Größe", "Latin"),
        ("안녕하세요", "Hangul"),
        ("привет", "Cyrillic"),
        ("Ελλάδα", "Greek"),
        ("שלום", "Hebrew"),
        ("مرحبا", "Arabic"),
        ("हिन्दी", "Devanagari"),
        ("สวัสดี", "Thai"),
        ("汉字", "Han"),
        ("漢字漢字です", "Kana"),
        ("カタカナ", "Kana"),
        ("LibreOffice를 시작하십시오", "Latin"),
        ("2024-07-17", ""),
        ("١٧", ""),
        ("...", ""),
        ("", ""),
        ("😀", ""),
    ],
)
def test_the_script_of_most_letters(text: str, script: str) -> None:
    assert scripts(text) == [script]
    assert scripts("привет", text, "") == ["Cyrillic", script, ""]  # whatever stands beside it


def test_pure_is_nine_letters_of_ten() -> None:
    measures = characters.measure(["abcdefghij", "가나다라마바사아자z", "가나다라마바사아yz", "1", "漢字です", ""])
    assert measures.pure.tolist() == [True, True, False, False, True, False]
    assert measures.length.tolist() == [10, 10, 10, 1, 4, 0]


def test_digits_are_the_same_in_all_scripts_and_orders() -> None:
    digits = characters.measure(["2024-07-17", "17/07/2024", "١٧ ٠٧ ٢٠٢٤", "2024-07-18", "no digits"]).digits.tolist()
    assert digits[0] == digits[1] == digits[2] != digits[3]
    assert digits[4] == 0


def test_signs_are_the_same_in_all_scripts() -> None:
    signs = characters.measure(["Who? (me)", "谁？（我）", "Who"]).signs.tolist()
    assert signs[0] == signs[1] > 0
    assert signs[2] == 0


@given(st.lists(st.text(), min_size=1, max_size=8))
def test_a_text_measures_the_same_alone_and_among_others(texts: list[str]) -> None:
    together = characters.measure(texts)
    for number, text in enumerate(texts):
        alone = characters.measure([text])
        assert [each[number] for each in together[:-1]] == [each[0] for each in alone[:-1]]


def mangled(text: str, encoding: str = "utf-8") -> str:
    """As a program shows a text that it takes for cp1252, or for Latin-1 where that has no letter."""
    wrong = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
    return "".join(chr(byte) if byte in wrong else bytes([byte]).decode("cp1252") for byte in text.encode(encoding))


@pytest.mark.parametrize(
    "text",
    [
        "café",
        "It’s “quoted” – so",
        "안녕하세요, 여러분",
        "Привет, как дела?",
        "日本語です",
        "Größe: 5 °C",
        "voilà\u00a0!",
        "Ελληνικά",
        "€ 5, 10 %",
        "CÔTÉ, SCHÖN, NIÑO, ÅR",
        "PARIS\u00a0: «OUI»",
    ],
)
def test_letters_read_in_the_wrong_encoding(text: str) -> None:
    assert mangled(text) != text
    assert unmangle(mangled(text)) == text
    assert unmangle(text.encode().decode("latin-1")) == text
    assert unmangle(mangled(mangled(text))) == text
    assert bool(characters.measure([mangled(text)]).damaged[0])


def test_korean_of_the_windows_encoding() -> None:
    assert unmangle("¾È³çÇÏ¼¼¿ä ABC") == "안녕하세요 ABC"
    assert mangled("안녕하세요 ABC", "cp949") == "¾È³çÇÏ¼¼¿ä ABC"


@pytest.mark.parametrize(
    "text",
    [
        "« J’ai donné… »",
        "il a donné\u00a0»",
        "Das macht Spaß–und Ärger",
        "« né…»",
        "NÃO, AMANHÃ NÃO",
        "Ñandú, Ægir, Øl",
        "3×4²",
        "Straße, naïveté, façade, ÄÖÜ äöü",
        "Họ là người Việt Nam",
        "안녕, Café!",
        "Þið eruð",
        "“AMANHÃ” é bom",
        "«IRMÃ»",
        "»IRMÃ« und „IRMÃ“",
        "AMANHÃ…",
        "AMANHÃ’, IRMÃ\u00a0MARIA, AMANHÃ—SIM",
        "“CAFÉ” e “BEBÊ”",
        "„Spaß“ und Gruß–so",
        "« né…» « thé…”",
    ],
)
def test_a_right_text_is_left_alone(text: str) -> None:
    assert mend(text) == (text, False, False, False, False)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=40))
def test_what_is_not_called_damaged_needs_no_mending(text: str) -> None:
    text = text.strip()
    if not characters.measure([text]).damaged[0]:
        assert mend(text) == (text, False, False, False, False)


@given(st.text(max_size=40))
def test_mended_is_mended(text: str) -> None:
    once = mend(text)
    again = mend(once.text)
    assert not again.controls
    assert not again.breaks
    assert "\n" not in once.text
    once.text.encode()


@pytest.mark.parametrize("line_break", list("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
def test_every_break_becomes_a_blank(line_break: str) -> None:
    assert mend(f"one {line_break}\ttwo") == ("one two", False, True, False, False)
    assert bool(characters.measure([f"one{line_break}two"]).damaged[0])


def test_controls_go_and_what_is_lost_is_told() -> None:
    assert mend("a\x07b\ufeffc\x00") == ("abc", False, False, True, False)
    assert mend("x\ud800y") == ("xy", False, False, True, False)
    assert mend("w\ufffdrd").lost
    assert mend("tab\tand\u00a0no-break") == ("tab\tand\u00a0no-break", False, False, False, False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hello, world!", "hello world", True),
        ("안녕!", "안녕", True),
        ("你好吗？", "你好吗", True),
        ("Page 3 of 7", "Page 4 of 7", False),
        ("12 mars 1987", "13 mars 1987", False),
        ("कि मैं", "की मैं", False),  # the vowel signs are no punctuation
        ("c1ccccc1", "C1CCCCC1", False),  # benzene and cyclohexane
        ("i++", "i--", False),
        ("1 + 2", "1 - 2", False),
        ("x = a*b + (c)", "x = a/b - [c]", False),
        ("Straße am Berg", "STRASSE AM BERG", True),
    ],
)
def test_keys_of_near_duplicates(one: str, other: str, same: bool) -> None:
    first, second = characters.keys([one, other])
    assert (first == second) is same


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])), min_size=1))
def test_a_key_is_the_same_alone_and_among_others(texts: list[str]) -> None:
    texts = [mend(text).text for text in texts]
    assert characters.keys(texts) == [characters.keys([text])[0] for text in texts]


def test_what_is_invisible() -> None:
    for text in ("", "\u200b", "\u00ad\u2060 \u200e", "\u00a0\u3000", "\U000e0020"):
        assert characters.is_invisible(text)
    for text in (".", "\u200b1", "😀", "می\u200cخواهم", "\ue000"):
        assert not characters.is_invisible(text)


def test_tables_are_small_enough_for_a_byte() -> None:
    assert len(characters.tables().scripts) < 256
    assert characters.tables().kind.dtype == np.uint8
