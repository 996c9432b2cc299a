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
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["seq2see", "train", "my pairs.tsv", "--force", "--out", "run"])
    monkeypatch.setattr("seq2see.distributed.ranks.from_torchrun", lambda: (rank, processes))
    with Display() as display:
        train.say_how_to_resume(display, Path("run"))
    said = [line.strip() for line in capsys.readouterr().err.splitlines()]
    first = "interrupted; everything is saved. Resume with:"  # in trials, whose steps are not shown
    assert said == ([first, command] if command else [])


@pytest.mark.parametrize(("is_saved", "said"), [(True, "after step 7; everything"), (False, "; everything up to the")])
def test_a_second_signal_saves_nothing_more(
    is_saved: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").touch()
    (tmp_path / "checkpoints").mkdir()
    with Display() as display:
        display.step = 7
        train.say_how_to_resume(display, tmp_path, is_saved)
    assert capsys.readouterr().err.startswith(f"interrupted {said}" if is_saved else f"interrupted{said}")


def test_an_earlier_run_that_was_not_replaced_yet_is_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that resumes would resume the run that `--force` was to replace."""
    manifest = tmp_path / "manifest.json"
    manifest.touch()
    before = train.manifest_of(tmp_path)
    with Display() as display:
        train.say_how_to_resume(display, tmp_path, is_saved=False, replaced=before)
        assert capsys.readouterr().err.endswith(f"the earlier run in {tmp_path} is unchanged\n")
        (tmp_path / "new").touch()
        (tmp_path / "new").rename(manifest)
        train.say_how_to_resume(display, tmp_path, is_saved=False, replaced=before)
    said = capsys.readouterr().err
    assert said.startswith("interrupted before the first checkpoint; the prepared corpus is saved. To train with it:")


def test_without_a_run_folder_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Display() as display:
        train.say_how_to_resume(display, train.folder_of(None, ["my pairs.tsv"]))
    assert capsys.readouterr().err == "interrupted before the training began; nothing is saved\n"
