"""Checkpoints: all that a run needs to go on exactly where it was, as safetensors and JSON.

A checkpoint is a folder with `weights.safetensors`, `optimizer.safetensors` and `state.json`: `step-00001000` after a
validation, `pause-00001234` where training was interrupted between two. It is written under another name, synced and
then renamed, so that a folder with the right name is whole. Only `step-` checkpoints are averaged: a run that was
interrupted ends like one that was not.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seq2see.bundle import load_weights, named_weights
from seq2see.data.batches import Position
from seq2see.errors import RunError


@dataclass(frozen=True)
class Progress:
    """Where training stands, apart from weights and optimizer."""

    step: int = 0
    position: Position = field(default_factory=lambda: Position(0, 0, 0))
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    """Validations since the best one."""
    sums: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Of smoothed loss, loss and tokens since the last line of the log: the next line tells of all its steps."""


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    *,
    keep: int,
    pause: bool = False,
) -> None:
    """Write one checkpoint, then prune: `keep` of them stay, the newest two with their optimizer."""
    final = folder / f"{'pause' if pause else 'step'}-{progress.step:08d}"
    beside = folder / f".{final.name}.part"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    save_file(named_weights(model), beside / "weights.safetensors")
    save_file(_optimizer_tensors(optimizer), beside / "optimizer.safetensors")
    (beside / "state.json").write_text(json.dumps(asdict(progress), indent=1), encoding="utf-8")
    for file in beside.iterdir():
        file.chmod(0o644)
        _sync(file)
    shutil.rmtree(final, ignore_errors=True)
    beside.rename(final)
    _sync(folder)

    validated = steps(folder)
    for old in validated[:-keep] + [path for path in folder.glob("pause-*") if path != final]:
        shutil.rmtree(old)
    for path in validated[-keep:-2]:
        (path / "optimizer.safetensors").unlink(missing_ok=True)


def steps(folder: Path) -> list[Path]:
    """Whole checkpoints made at validations, oldest first."""
    return sorted(folder.glob("step-*"))


def is_pause(path: Path) -> bool:
    """Whether a checkpoint was made by an interruption, between two validations."""
    return path.name.startswith("pause-")


def newest(folder: Path) -> Path | None:
    """The checkpoint to go on from."""
    whole = [*steps(folder), *folder.glob("pause-*")]
    return max(whole, key=lambda path: path.name.partition("-")[2], default=None)


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a checkpoint's weights, optimizer state and random state back."""
    try:
        load_weights(model, load_file(path / "weights.safetensors"))
        tensors = load_file(path / "optimizer.safetensors")
    except (OSError, SafetensorError) as problem:
        raise _unreadable(path, problem) from None
    progress = read_progress(path)
    _restore_optimizer(optimizer, tensors)
    return progress


def read_progress(path: Path) -> Progress:
    """Where training stood at a checkpoint."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return Progress(**{**state, "position": Position(**state["position"]), "sums": tuple(state["sums"])})
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise _unreadable(path, problem) from None


def _unreadable(path: Path, problem: Exception) -> RunError:
    return RunError(f"{path}: this checkpoint cannot be read ({problem}). Remove it to resume from the one before")


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, weight in load_file(path / "weights.safetensors").items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(paths)).float() for name, weight in total.items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's two means of each weight, its step count, and the generators' states, as flat named tensors."""
    tensors = {
        f"{index}.{key}": value.detach().cpu().contiguous()
        for index, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    return tensors


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors.pop("random.cpu"))
    cuda = tensors.pop("random.cuda", None)
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda)
    entries: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        index, key = name.split(".")
        entries.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
