"""The course: both languages have the same chapters and cells; `make docs` executes them."""

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

COURSE = Path(__file__).parents[1] / "docs" / "course"
CHAPTERS = sorted(path.stem for path in (COURSE / "en").glob("*.md"))
WRONG_TERMS = ("질의", "파동", "위치 벡터", "임베딩 표", "확신", "빈칸", "끝 기호", "작은 신경망", "을(를)", "(으)로")
"""Words that our Korean pages avoid, because the Korean literature has other terms."""


@cache
def generator() -> ModuleType:
    """Return docs/reference/generate.py as a module."""
    found = importlib.util.spec_from_file_location("generate", COURSE.parent / "reference" / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def text(language: str, chapter: str) -> str:
    return (COURSE / language / f"{chapter}.md").read_text(encoding="utf-8")


def cells(language: str, chapter: str) -> list[str]:
    """Return the sources of the cells of code of a chapter."""
    return generator().CELL.findall(text(language, chapter))


def test_both_languages_have_the_same_chapters() -> None:
    assert sorted(path.stem for path in (COURSE / "ko").glob("*.md")) == CHAPTERS
    assert [int(name[:2]) for name in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter(chapter: str) -> None:
    english, korean = text("en", chapter), text("ko", chapter)
    assert cells("en", chapter) == cells("ko", chapter)
    assert len(cells("en", chapter)) == english.count("{code-cell}")
    for number, cell in enumerate(cells("en", chapter)):
        compile(re.sub(r"^[!%].*$", "pass", cell, flags=re.MULTILINE), f"{chapter}, cell {number}", "exec")
    for page in (english, korean):
        assert page.count("\n**1.** ") == 1
        assert page.count("<details>") == page.count("</details>") > 0
        assert re.search(rf"^# {int(chapter[:2])}\. ", page, re.MULTILINE)
    assert "\n## Exercises\n" in english
    assert "\n## 연습 문제\n" in korean
    assert len(re.findall(r"^## ", english, re.MULTILINE)) == len(re.findall(r"^## ", korean, re.MULTILINE))
    assert not [term for term in WRONG_TERMS if term in korean]


def test_a_chapter_becomes_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "chapter.ipynb"
    generator().write_notebook(text("ko", CHAPTERS[0]), path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code == cells("ko", CHAPTERS[0])
    assert notebook["cells"][0]["source"].startswith("# 1. ")
    assert not any("code-cell" in cell["source"] for cell in notebook["cells"])
