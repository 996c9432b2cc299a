"""Ends of messages about what does not exist: the closest name."""

from pathlib import Path

import pytest

from seq2see import errors


@pytest.fixture(autouse=True)
def _in_a_folder_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pairs.tsv", "pairs.tsv.bak", "train.en", "train.ko.gz", "train.txt", "notes.tsv"):
        Path(name).touch()
    Path("pears.tsv.d").mkdir()
    Path("data").mkdir()
    Path("data/corpus.jsonl").touch()


@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ("pears.tsv", "pairs.tsv"),
        ("Pairs.TSV", "pairs.tsv"),
        ("pairs.csv", "pairs.tsv"),
        ("pairs", "pairs.tsv"),
        ("train.ko", "train.ko.gz"),
        ("data/corpsu.jsonl", "data/corpus.jsonl"),
    ],
)
def test_the_closest_file_of_the_folder(missing: str, found: str) -> None:
    assert errors.nearest_file(Path(missing)) == f"Did you mean '{found}'?"


def test_other_files_of_the_command_are_not_meant() -> None:
    assert errors.nearest_file(Path("train.kr"), [Path("train.en")]) == "Did you mean 'train.ko.gz'?"
    assert errors.nearest_file(Path("corpus.tsv")) == ""


def test_a_link_to_a_missing_file_is_named(tmp_path: Path) -> None:
    link = tmp_path / "link.tsv"
    link.symlink_to("gone.tsv")
    assert errors.nearest_file(link) == "It is a link to 'gone.tsv', which does not exist."


@pytest.mark.parametrize("missing", ["nowhere/pairs.tsv", "other.tsv", "pears.tsv/pairs.tsv", "\0.tsv", "x" * 5000])
def test_nothing_is_close(missing: str) -> None:
    assert errors.nearest_file(Path(missing)) == ""
