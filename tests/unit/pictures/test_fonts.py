"""Every letter has a font, or the user hears which package has one."""

from pathlib import Path

import pytest

from seq2see.pictures import labels


def test_missing_korean_asks_for_a_korean_font(monkeypatch):
    monkeypatch.setattr(labels, "search_fonts", lambda characters: (("DejaVu Sans",), frozenset("국한")))
    assert labels.missing_glyphs("한국 한 ab") == "한국"
    assert labels.note("한국") == (
        "no installed font draws '한국': install a Noto or Nanum font, for example `apt-get install fonts-noto-cjk`"
    )


@pytest.mark.parametrize(
    "text", ["한국어", "日本語です", "汉字", "العربية", "हिन्दी", "größe ▁ </s>", "क\u200dष \ufe0f"]
)
def test_families_and_missing_agree(text):
    families = labels.font_families(text)
    assert families[0] == "DejaVu Sans"
    covered = frozenset().union(*map(labels.coverage, families[:-1]))
    missing = labels.missing_glyphs(text)
    assert {c for c in text if ord(c) not in covered and c not in " \u200d\ufe0f"} == set(missing)
    assert len(families) == len(set(families))


@pytest.mark.parametrize(
    ("missing", "package"),
    [
        ("🦊", "fonts-symbola"),
        ("한", "fonts-noto-cjk"),
        ("ก", "fonts-noto-core"),
        ("🦊漢", "fonts-symbola fonts-noto-cjk"),
    ],
)
def test_what_to_install_depends_on_the_letters(missing, package, monkeypatch):
    """An emoji is as wide as a Han character, and no font for these has it."""
    monkeypatch.setattr(labels, "search_fonts", lambda characters: (("DejaVu Sans",), frozenset(missing)))
    assert labels.note(missing).endswith(f"`apt-get install {package}`")


def test_what_no_font_draws_is_written_as_its_number(monkeypatch):
    monkeypatch.setattr(labels, "search_fonts", lambda characters: (("DejaVu Sans",), frozenset("🦊")))
    assert labels.drawn(["a 🦊", "b"], Path("x.png")) == ["a U+1F98A", "b"]
    assert labels.drawn(["a 🦊", "b"], Path("x.svg")) == ["a 🦊", "b"], "who reads it may have the font"


def test_latin_needs_no_other_font():
    assert labels.font_families("größe") == ["DejaVu Sans", "sans-serif"]
    assert labels.font_families("\ue000") == [
        "DejaVu Sans",
        "sans-serif",
    ]  # though some font has a sign of its own there


def test_han_is_drawn_in_the_manner_of_its_neighbours():
    order = ["Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC"]

    def first(text):
        return min(order, key=lambda family: labels.preference(family, frozenset(text)))

    assert [first("한漢"), first("の漢"), first("漢")] == order
