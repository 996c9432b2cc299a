"""What `train` prints after an interruption; tests/end_to_end/test_resume.py interrupts whole trainings."""

from pathlib import Path

import pytest

from seq2see.cli import train
from seq2see.cli.display import Display


@pytest.mark.parametrize(
    ("rank", "processes", "command"),
    [
        (0, 1, "seq2see train 'my pairs.tsv' --out run --resume"),
        (0, 2, "torchrun ... -m seq2see train 'my pairs.tsv' --out run --resume"),
        (1, 2, None),
    ],
)
def test_the_command_that_resumes_is_shown_once(
    rank: int,
    processes: int,
    command: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["seq2see", "train", "my pairs.tsv", "--force", "--out", "run"])
    monkeypatch.setattr("seq2see.distributed.ranks.from_torchrun", lambda: (rank, processes))
    with Display() as display:
        train.say_how_to_resume(display, "run", ["my pairs.tsv"])
    said = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in said[1:]] == ([command] if command else [])


def test_without_a_run_folder_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Display() as display:
        train.say_how_to_resume(display, None, ["my pairs.tsv"])
    assert capsys.readouterr().err == "interrupted before the training began; nothing is saved\n"
