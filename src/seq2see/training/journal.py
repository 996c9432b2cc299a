"""The log of a training: rows of `metrics.jsonl` for programs, and TensorBoard events for people."""

import contextlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2see import storage
from seq2see.training.events import Event, Returned, ThreadsChanged, Trained, Validated


class Journal:
    """Writes events of a training to the log of its run folder; on resume, rows after the checkpoint are deleted.

    Args:
        step: Step of the checkpoint from which training resumes; 0 for a new run.
        pause: Whether that checkpoint was made between two validations.
    """

    def __init__(self, run: Path, step: int, pause: bool = False) -> None:
        self._run = run
        self._open(step, pause)

    def _open(self, step: int, pause: bool = False) -> None:
        """Open the log, and delete the rows after the checkpoint of `step`.

        These are all rows of later steps. Of this step itself, only the losses and, unless `pause`, the validation of
        the model are kept: the validation of an average, for example, belongs to an end of the training.
        """
        from torch.utils.tensorboard import SummaryWriter

        path = self._run / "metrics.jsonl"
        before = [row for row in read(self._run) if row["step"] <= step]
        kept = [row for row in before if row["step"] < step or "loss" in row or (not pause and _is_of_model(row))]
        storage.write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = storage.extend(path)
        self._board = SummaryWriter(self._run / "tensorboard", purge_step=step + 1 if step else None)

    def write(self, event: Event) -> None:
        """Write the event as a row and flush it to the disk, because a checkpoint may follow.

        `Stepped`, `Shrunk` and `Finished` are not written. At `Returned`, rows after its `step` are deleted first.
        """
        match event:
            case Returned():
                self.close()
                self._open(event.step)
                row, scalars = {"step": event.step, "returned": asdict(event)}, {}
            case Trained():
                row = asdict(event)
                scalars = {f"training/{key}": row[key] for key in ("loss", "smoothed_loss", "gradient_norm", "rate")}
                scalars["training/tokens_per_second"] = event.tokens_per_second
            case Validated():
                row = {"step": event.step, "validation": event.scores, "best": event.best, "what": event.what}
                row["seconds"] = event.seconds
                scalars = {f"validation/{key}": value for key, value in event.scores.items()}
            case ThreadsChanged():
                row, scalars = asdict(event), {}
            case _:
                return
        with storage.in_one_line(self._run / "metrics.jsonl"):
            self._file.write(f"{json.dumps(row)}\n".encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            for name, value in scalars.items():
                self._board.add_scalar(name, value, event.step)

    def close(self) -> None:
        for file in (self._file, self._board):
            with contextlib.suppress(OSError):  # a full disk: `write` has reported it
                file.close()


def read(run: Path) -> list[dict[str, Any]]:
    """Return the rows of `metrics.jsonl` up to the first line that is damaged or was cut short by a crash."""
    rows = []
    path = run / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict) or type(row.get("step")) is not int:
            break
        rows.append(row)
    return rows


def validation_seconds(run: Path) -> float:
    """Return the number of seconds that all validations in the log of a run took."""
    return float(sum(row.get("seconds", 0.0) for row in read(run) if "validation" in row))


def _is_of_model(row: dict[str, Any]) -> bool:
    """Return whether a row is about a validation of the model itself, not of the average of checkpoints."""
    return "validation" in row and row.get("what") == "model"
