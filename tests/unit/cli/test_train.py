"""What `train` prints after an interruption; tests/end_to_end/test_resume.py interrupts whole trainings."""

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
    rank: int, processes: int, command: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["seq2see", "train", "my pairs.tsv", "--force", "--out", "run"])
    monkeypatch.setattr("seq2see.distributed.ranks.from_torchrun", lambda: (rank, processes))
    with Display() as display:
        train.say_how_to_resume(display)
    said = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in said[1:]] == ([command] if command else [])
