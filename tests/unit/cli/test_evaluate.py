"""`seq2see evaluate` as a Python function: what is refused before anything is translated, and what is printed."""

import json
from pathlib import Path

import pytest

from seq2see.cli.evaluate import evaluate
from seq2see.errors import DataError, SettingError


def test_translations_of_several_runs_do_not_fit_one_file(trained: Path) -> None:
    with pytest.raises(SettingError, match="--output"):
        evaluate([str(trained), str(trained)], "pairs.tsv", output="out.txt")


def test_further_references_need_a_line_for_each_pair(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("ab\tAB\ncd\tCD\n")
    (tmp_path / "more.txt").write_text("AB\n")
    with pytest.raises(DataError, match="1 line, expected 2"):
        evaluate([str(trained)], str(tmp_path / "pairs.tsv"), references=[str(tmp_path / "more.txt")])


def test_scores_as_json(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.tsv").write_text("ab\tAB\ncd\tCD\n")
    evaluate([str(trained)], str(tmp_path / "pairs.tsv"), engine="torch", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == 2
    assert 0 <= found["scores"]["exact"]["value"] <= 100
