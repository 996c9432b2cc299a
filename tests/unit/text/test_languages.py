"""Languages by code and by name, and encodings of files."""

from pathlib import Path

import pytest

from seq2see.errors import SettingError
from seq2see.text import languages
from seq2see.text.pair import Sides


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("en", "en"),
        (" DE ", "de"),
        ("English", "en"),
        ("german", "de"),
        ("한국어", "ko"),
        ("독일어", "de"),
        ("deu", "de"),
        ("ger", "de"),
        ("pt_BR", "pt-BR"),
        ("EN-us", "en-US"),
        ("zh_hant", "zh-Hant"),
        ("sr@latin", "sr-Latin"),
        ("no", "no"),
    ],
)
def test_known(text: str, code: str) -> None:
    assert languages.known(text) == code


@pytest.mark.parametrize(
    "text", ["", "x", "src", "tgt", "text", "label", "txt", "q", "en de", "en-", "xx", "xx-US", "12"]
)
def test_unknown(text: str) -> None:
    assert languages.known(text) is None


@pytest.mark.parametrize(
    ("text", "tag"),
    [("ko_KR.UTF-8", "ko-KR"), ("EN-US", "en-US"), ("zh_hans_cn", "zh-Hans-CN"), ("kab", "kab"), ("", "")],
)
def test_tag(text: str, tag: str) -> None:
    assert languages.tag(text) == tag


def test_a_language_is_met_by_its_regions_but_a_region_is_not_met_by_another() -> None:
    assert languages.matches("en", "EN_us")
    assert languages.matches("en-GB", "en_gb")
    assert not languages.matches("en-GB", "en-US")
    assert not languages.matches("en-GB", "en")
    assert not languages.matches("e", "en")


@pytest.mark.parametrize(
    ("code", "script"),
    [
        ("en", "Latin"),
        ("ko", "Hangul"),
        ("ja", "Kana"),
        ("zh_TW", "Han"),
        ("pt-BR", "Latin"),
        ("sr", "Cyrillic"),
        ("sr-Latn", "Latin"),
        ("bn", "Bengali"),
        ("xx", None),
    ],
)
def test_what_a_language_is_written_in(code: str, script: str | None) -> None:
    assert languages.script(code) == script


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("안녕하세요 여러분, 만나서 반갑습니다", "cp949", "CP949"),
        ("똠방각하 펲시콜라를 마셨다", "cp949", "CP949"),
        ("Привет, как у вас дела?", "cp1251", "CP1251"),
        ("これは日本語の文章です", "cp932", "CP932"),
        ("テスト コンピュータ", "cp932", "CP932"),
        ("これは日本語の文章です", "euc_jp", "EUC-JP"),
        ("这是一个中文句子，没有别的", "gb18030", "GB18030"),
        ("le café est à côté de la forêt", "cp1252", "CP1252"),
        ("it’s “here”, “there” and everywhere", "cp1252", "CP1252"),
    ],
)
def test_the_encoding_is_guessed(text: str, encoding: str, expected: str) -> None:
    assert languages.guess_encoding([text.encode(encoding), b"plain"]) == expected


def test_no_encoding_is_guessed() -> None:
    assert languages.guess_encoding([]) is None
    assert languages.guess_encoding([b"\xff\xff\xff\x98\x98"]) is None


def test_only_the_beginnings_of_lines_are_remembered() -> None:
    lines = languages.Undecoded(Path("x.tsv"))
    for _ in range(3):
        lines.add("안녕하세요".encode("cp949") * 5000)
    assert "probably CP949" in lines.advice
    lines.decoded = 2
    assert "probably CP949" in lines.advice
    lines.decoded = 3
    assert lines.advice == "Other lines of the file are UTF-8. These are probably CP949: correct them."
    unknown = languages.Undecoded(Path("x.tsv"))
    unknown.add(b"\xff\xff\xff\x98\x98")
    assert unknown.advice == "Convert the file to UTF-8."


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"", None),
        ("안녕\thello\n".encode(), None),
        (b"a\0b\tc d\n", None),
        (b"\0", None),
        (b"\xff\0\x01\0", None),
        ("\ufeffa".encode("utf-16-be"), "UTF-16"),
        ("안녕\t여러분\n".encode("utf-16-le"), "UTF-16LE"),
        ("안녕\t여러분\n".encode("utf-16-le")[:-1], "UTF-16LE"),
        ("hello\tyou\n".encode("utf-16-be"), "UTF-16BE"),
    ],
)
def test_utf_16(start: bytes, expected: str | None) -> None:
    assert languages.utf_16(start) == expected


@pytest.mark.parametrize("text", ["de", "pt_BR", "zh-Hant-TW", "sr@latin", "phonemes", "en-x-1990", "German", "독일어"])
def test_a_user_may_give_codes_and_names_of_languages(text: str) -> None:
    assert languages.checked(Sides(text, None)) == Sides(text, None)


@pytest.mark.parametrize("text", ["", "x", "xx yy", "!!", "../../x", "de-", "a/b"])
def test_other_texts_are_no_languages(text: str) -> None:
    with pytest.raises(SettingError, match=r"--target-language .*: not a language code"):
        languages.checked(Sides("en", text))
