"""The journal: a line for each event, cut where a resumed run starts again."""

import json
from pathlib import Path

import pytest

from seq2see.training import journal
from seq2see.training.events import Finished, ThreadsChanged, Trained, Validated
from seq2see.training.journal import Journal


def trained(step: int) -> Trained:
    return Trained(step, 0, 2.5, 2.25, 1.5, 1e-3, 1000.0, step / 10)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    log = Journal(tmp_path, 0)
    for event in (
        trained(5),
        trained(10),
        Validated(10, {"loss": 2.0, "exact": 12.5}, True, seconds=1.5),
        trained(15),
        ThreadsChanged(15, 1, "other programs keep 1.0 of 2 cores busy"),
        Validated(15, {"loss": 1.0}, False, "average of the last 2 checkpoints", 0.5),
        Finished(15, "all 15 steps done", 1.5),
    ):
        log.write(event)
    log.close()
    return tmp_path


def test_a_row_for_each_event_that_has_numbers(written: Path) -> None:
    rows = journal.read(written)
    assert [row["step"] for row in rows] == [5, 10, 10, 15, 15, 15]
    assert rows[0] == {
        "step": 5,
        "epoch": 0,
        "loss": 2.5,
        "smoothed_loss": 2.25,
        "gradient_norm": 1.5,
        "rate": 1e-3,
        "tokens_per_second": 1000.0,
        "seconds": 0.5,
        "skipped": 0,
    }
    scores = {"loss": 2.0, "exact": 12.5}
    assert rows[2] == {"step": 10, "validation": scores, "best": True, "what": "model", "seconds": 1.5}
    assert journal.validation_seconds(written) == 2.0
    assert rows[4] == {"step": 15, "threads": 1, "reason": "other programs keep 1.0 of 2 cores busy"}
    assert rows[5]["what"] == "average of the last 2 checkpoints"


def test_every_line_is_there_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks while training runs, or after a crash, finds all that has happened."""
    log = Journal(tmp_path, 0)
    synced: list[Path] = []
    monkeypatch.setattr(journal.os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink()))
    log.write(trained(1))
    assert [row["step"] for row in journal.read(tmp_path)] == [1]
    assert synced == [tmp_path / "metrics.jsonl"]  # a pause may follow at once, and then a power cut
    log.close()


@pytest.mark.parametrize(("step", "kept"), [(0, []), (4, []), (5, [5]), (12, [5, 10, 10]), (15, [5, 10, 10, 15])])
def test_lines_past_the_checkpoint_are_cut_on_resume(written: Path, step: int, kept: list[int]) -> None:
    log = Journal(written, step)
    assert [row["step"] for row in journal.read(written)] == kept
    log.write(trained(20))
    log.close()
    assert [row["step"] for row in journal.read(written)] == [*kept, 20]


def test_a_last_line_cut_short_is_left_out(written: Path) -> None:
    path = written / "metrics.jsonl"
    content = path.read_text()
    path.write_text(content[:-10])
    assert [row["step"] for row in journal.read(written)] == [5, 10, 10, 15, 15]
    Journal(written, 15).close()
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_no_journal_yet(tmp_path: Path) -> None:
    assert journal.read(tmp_path) == []


def test_tensorboard_gets_the_same_numbers(written: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(written / "tensorboard"))
    board.Reload()
    assert [(each.step, each.value) for each in board.Scalars("training/loss")] == [(5, 2.5), (10, 2.5), (15, 2.5)]
    assert [(each.step, each.value) for each in board.Scalars("validation/exact")] == [(10, 12.5)]
    assert {"training/rate", "training/smoothed_loss", "training/gradient_norm", "training/tokens_per_second"} <= set(
        board.Tags()["scalars"]
    )
