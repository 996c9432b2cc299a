"""Languages by code and by name."""

import pytest

from seq2see.text import languages


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
