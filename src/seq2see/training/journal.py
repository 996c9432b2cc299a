"""What happened, step by step: `metrics.jsonl` for programs, TensorBoard events for eyes."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2see.bundle import write_atomically
from seq2see.training.loop import Event, Trained, Validated


class Journal:
    """Writes each event of a training as it comes; on resume, lines past the checkpoint are cut."""

    def __init__(self, run: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._path = run / "metrics.jsonl"
        kept = [row for row in read(run) if row["step"] <= step]
        write_atomically(self._path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = self._path.open("a", encoding="utf-8")
        self._board = SummaryWriter(run / "tensorboard", purge_step=step + 1 if step else None)

    def write(self, event: Event) -> None:
        match event:
            case Trained():
                row = asdict(event)
                scalars = {f"training/{key}": row[key] for key in ("loss", "smoothed_loss", "gradient_norm", "rate")}
                scalars["training/tokens_per_second"] = event.tokens_per_second
            case Validated():
                row = {"step": event.step, "validation": event.scores, "best": event.best, "what": event.what}
                scalars = {f"validation/{key}": value for key, value in event.scores.items()}
            case _:  # a single step, or the end: nothing to keep
                return
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in scalars.items():
            self._board.add_scalar(name, value, event.step)

    def close(self) -> None:
        self._file.close()
        self._board.close()


def read(run: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl`; a last line cut short by a crash is left out."""
    rows = []
    path = run / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows
