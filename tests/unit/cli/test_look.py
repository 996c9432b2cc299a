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


def test_two_runs_are_shown_on_one_page(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "look.html"
    look(str(trained), "abc", output=str(path), beside=str(trained))
    assert 'id="part:B/attention/cross/0"' in path.read_text(encoding="utf-8")
    told = capsys.readouterr()
    assert told.out.splitlines() == ["ABC", "ABC"]
    assert "both outputs are the same" in told.err


def test_two_runs_are_no_picture(trained: Path, tmp_path: Path) -> None:
    for given in ({"output": str(tmp_path / "look.png")}, {"picture": "beam"}):
        with pytest.raises(SeqError, match="--beside shows two runs on a page"):
            look(str(trained), "abc", beside=str(trained), **given)
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_that_is_none_is_named(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(SeqError, match="nowhere"):
        look(str(trained), "abc", output=str(tmp_path / "look.html"), beside=str(tmp_path / "nowhere"))
    assert list(tmp_path.iterdir()) == []
