"""Where words begin and end, and where a phrase occurs as words."""

import pytest

from seq2see.text import words


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("Datei, Dateien und Datei", "Datei", [(0, 5), (19, 24)]),
        ("삭제합니다", "삭제", [(0, 2)]),
        ("열기 열을", "열", [(3, 4)]),
        ("API를", "API", [(0, 3)]),
        ("文件夹", "文件", [(0, 2)]),
        ("aa aa", "", []),
    ],
)
def test_occurrences(text: str, phrase: str, expected: list[tuple[int, int]]) -> None:
    assert list(words.occurrences(text, phrase)) == expected


def test_what_a_script_needs() -> None:
    assert [words.needs_blanks(each) for each in "aé가中のก-"] == [True, True, True, False, False, False, False]
    assert [words.is_whole_word(each) for each in ("Datei", "파일", "文件")] == [True, False, False]
