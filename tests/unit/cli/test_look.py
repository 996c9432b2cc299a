"""`seq2see look` as a Python function: a page, or one picture of a sentence."""

from pathlib import Path

import pytest

from seq2see.cli.look import look
from seq2see.errors import SeqError


def test_a_page_is_written(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "look.html"
    look(str(trained), "abc", output=str(path))
    assert "<html" in path.read_text(encoding="utf-8")


def test_a_picture_needs_a_format_that_is_known(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(SeqError, match=r"\.xyz"):
        look(str(trained), "abc", output=str(tmp_path / "look.xyz"))
