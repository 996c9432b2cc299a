"""Checkpoints: everything that a run needs to resume exactly where it was, as safetensors and JSON.

A checkpoint is a folder with `weights.safetensors`, `optimizer.safetensors` and `state.json`. It is called, say,
`step-00001000` if it was made after a validation, and `pause-00001234` if training was interrupted between two
validations. It is written under another name, synced and then renamed. `state.json` is written last, with the sizes of
the other files and its own checksum, so that an incomplete checkpoint is recognised. Only `step-` checkpoints are
averaged, so that an interrupted run ends with the same model as one that was not interrupted.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from torch import Tensor, nn

from seq2see import bundle, storage
from seq2see.errors import RunError
from seq2see.tokens.batches import Position
from seq2see.training.optimizer import Adam, random_state, set_random_state

MOST = 2**40
"""Exclusive upper bound of the numbers (steps, seconds, tokens) in `state.json`; a checkpoint with a number that is
negative or not below it counts as damaged.
"""
TENSORS = ("weights.safetensors", "optimizer.safetensors")
SOLVED = 300
"""Number of validation outputs, all of them right, from which a task counts as solved: with a confidence of 95 %, at
most 1 % of other outputs are then wrong (rule of three).
"""


@dataclass(frozen=True)
class Progress:
    """The state of a training except the weights, the optimizer and the random state."""

    step: int = 0
    position: Position = Position()
    seconds: float = 0.0
    best: float | None = None
    best_loss: float | None = None
    """Validation loss of the best model so far, by which ties of the metric are broken; None if it is not known."""
    best_step: int = 0
    stale: float = 0
    """Number of validations since the best one; training stops when it reaches `training.patience`, if that is not 0.
    A repeated perfect score with a lower loss counts in part (see `judged`).
    """
    sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    """Sums since the last row of the log: the three of `Loss` (the loss that is minimised, the cross entropy, and the
    number of target tokens), and the number of skipped updates.
    """
    skipped: int = 0
    """Number of updates in a row, up to the latest, that were skipped because loss or gradient was not finite."""
    slowed: int = 0
    """Number of times that the learning rate was halved, each time after a return to an earlier checkpoint."""
    micro_tokens: int = 0
    """Maximum number of source and target tokens in one micro-batch (one forward and backward pass); 0 if it is not
    known.
    """
    device: str = ""
    """Type of the device on which `micro_tokens` was used: "cpu" or "cuda"; empty if it is not known."""

    def is_beaten_by(self, scores: dict[str, float], metric: str, lower_is_better: bool) -> bool:
        """Return whether these scores are better than the best so far: by `metric`, and if that is equal, by the
        validation loss.
        """
        score = scores[metric]
        if score == self.best:
            return _is_better(scores.get("loss", math.nan), self.best_loss, lower_is_better=True)
        return _is_better(score, self.best, lower_is_better)

    def with_average(
        self, scores: dict[str, float], metric: str, lower_is_better: bool, translated: int
    ) -> "Progress | None":
        """Return the progress with the scores of the averaged checkpoints as the best ones; None if the average does
        not become the model.

        It does if it is better than the best model or, by exact match, as good within the noise. It does, too, if it
        has the very scores of the best model, because an interrupted end of a training is repeated.

        Args:
            translated: Number of pairs that were translated for the metric, which sets the noise.
        """
        loss = scores.get("loss", math.nan)
        is_best = self.is_beaten_by(scores, metric, lower_is_better)
        is_again = (scores[metric], loss) == (self.best, self.best_loss)
        if is_best or is_again or (metric == "exact" and self.is_within_noise(scores["exact"], translated)):
            return replace(self, best=scores[metric], best_loss=None if math.isnan(loss) else loss)
        return None

    def is_within_noise(self, exact: float, pairs: int) -> bool:
        """Return whether an exact match, in % of `pairs` pairs, is at most one standard error below the best one.

        The best of many validations is partly luck: on 100 pairs the standard error is up to 5 points. Choosing a late
        model unless another one is better by more than that is the one-standard-error rule (Breiman et al. 1984). As
        long as the best one is 0, nothing was learned that could be compared.
        """
        if not self.best or not pairs:
            return False
        return exact >= self.best - math.sqrt(self.best * (100 - self.best) / pairs)

    def judged(self, scores: dict[str, float], metric: str, lower_is_better: bool, translated: int = 0) -> "Progress":
        """Return the progress after a validation: with the new best score if it is better, else with `stale` + 1.

        A perfect score that is repeated with a lower loss is the new best one, but counts as stale: otherwise a task
        that is solved early would be trained to the last step, because its loss falls until then. With fewer than
        `SOLVED` outputs, a perfect score may be luck, so that it counts for as much less as there are fewer.

        Args:
            translated: Number of pairs that were translated for the metric.
        """
        if not self.is_beaten_by(scores, metric, lower_is_better):
            return replace(self, stale=self.stale + 1)
        loss = scores.get("loss", math.nan)
        found = None if math.isnan(loss) else loss
        score = scores[metric]
        is_repeated = score == self.best and is_perfect(score, lower_is_better)
        stale = self.stale + min(1, translated / SOLVED) if is_repeated else 0
        return replace(self, best=scores[metric], best_loss=found, best_step=self.step, stale=stale)


def is_perfect(score: float | None, lower_is_better: bool) -> bool:
    """Return whether a score cannot be better; sacreBLEU's best is slightly more than 100."""
    return score is not None and (score <= 0 if lower_is_better else score >= 100)


def _is_better(score: float, best: float | None, lower_is_better: bool) -> bool:
    """Return whether a score is better than the best one so far; NaN never is, and any other is better than None."""
    return not math.isnan(score) and (best is None or (score < best if lower_is_better else score > best))


def save(
    folder: Path,
    model: nn.Module,
    optimizer: Adam,
    progress: Progress,
    *,
    average: int,
    keep: int = 2,
    pause: bool = False,
) -> None:
    """Write a checkpoint of `progress.step` into `folder`, then delete old ones.

    Of those made at validations, the newest `keep` stay complete, and the newest `average` keep at least their weights.
    Of those made by interruptions, only the one just written (if `pause`) stays.
    """
    final = folder / f"{'pause' if pause else 'step'}-{progress.step:08d}"
    beside = folder / f".{final.name}.part"
    try:
        with storage.in_one_line(final):
            if not folder.exists():
                storage.own_folder(folder)
                storage.sync(folder.parent)
            for left_over in folder.glob(".*.part"):  # by a process that was killed
                storage.remove(left_over)
            beside.mkdir()
            bundle.write_tensors(beside / "weights.safetensors", bundle.named_weights(model))
            bundle.write_tensors(beside / "optimizer.safetensors", optimizer.tensors() | random_state())
            _write_state(beside, progress, {name: (beside / name).stat().st_size for name in TENSORS})
            storage.remove(final)
            beside.rename(final)
            storage.sync(folder)
    except RunError:
        with contextlib.suppress(OSError):
            storage.remove(beside)  # half a checkpoint only fills the disk further
        raise

    validated = steps(folder)
    for old in validated[: -max(keep, average)] + [path for path in _all(folder) if is_pause(path) and path != final]:
        storage.remove(old)
    for path in validated[:-keep]:
        (path / "optimizer.safetensors").unlink(missing_ok=True)


def steps(folder: Path) -> list[Path]:
    """Return the checkpoints made at validations, oldest first."""
    return [path for path in _all(folder) if not is_pause(path)]


def is_pause(path: Path) -> bool:
    """Return whether a checkpoint was made by an interruption, between two validations."""
    return path.name.startswith("pause-")


def step_of(path: Path) -> int:
    return int(path.name.partition("-")[2])


def _all(folder: Path) -> list[Path]:
    """Return all checkpoints, complete or not, oldest first; of the same step, `pause-` comes before `step-`."""
    found = folder.iterdir() if folder.is_dir() else []
    named = [path for path in found if re.fullmatch("(step|pause)-[0-9]{8,12}", path.name)]
    named = [path for path in named if path.is_dir() and not path.is_symlink()]
    return sorted(named, key=lambda path: (step_of(path), path.name))


def newest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint (see `damage`), from which training resumes; None if there is none."""
    return next(whole(folder), None)


def whole(folder: Path) -> Iterator[Path]:
    """Yield the complete checkpoints (see `damage`), newest first."""
    return (path for path in reversed(_all(folder)) if damage(path) is None)


def damage(path: Path, thoroughly: bool = False) -> str | None:
    """Return what is wrong with a checkpoint, as a text; None if `state.json` is valid and all files have their sizes.

    Args:
        thoroughly: Also read all tensors, and verify their checksums.
    """
    try:
        _, sizes = _read_state(path)
        for name in TENSORS:
            size = (path / name).stat().st_size
            if size != sizes.get(name, size):
                return f"{name} has {size:,} bytes of {sizes[name]:,}"
            if thoroughly:
                bundle.read_tensors(path / name)
    except RunError as problem:
        return str(problem)
    except OSError as problem:
        return f"{name}: {problem.strerror}"
    return None


def drop_after(folder: Path, path: Path) -> None:
    """Delete the checkpoints in `folder` that are newer than the one at `path`."""
    found = _all(folder)
    for later in found[found.index(path) + 1 :]:
        storage.remove(later)


def newest_intact(folder: Path, tell: Callable[[str], None] = lambda line: None) -> Path | None:
    """Return the newest undamaged checkpoint, and delete the damaged ones after it, which must not be averaged.

    Return None if there are no checkpoints; raise an error if all are damaged.

    Args:
        tell: Called with a message about each damaged checkpoint.
    """
    problem: str | None = None
    for path in reversed(_all(folder)):
        problem = damage(path, thoroughly=True)
        if problem is None:
            drop_after(folder, path)
            return path
        tell(f"{path} is damaged or incomplete ({problem}): trying an earlier one")
    if problem is not None:
        raise RunError(f"{folder}: no checkpoint is intact ({problem}). Train anew with --force")
    return None


def with_weights(folder: Path, most: int) -> list[Path]:
    """Return the last checkpoints made at validations whose weights can be read, at most `most`, oldest first."""
    found: list[Path] = []
    for path in reversed(steps(folder)):
        with contextlib.suppress(RunError):
            bundle.read_tensors(path / "weights.safetensors")
            found.insert(0, path)
        if len(found) == most:
            break
    return found


def restore(path: Path, model: nn.Module, optimizer: Adam) -> Progress:
    """Restore weights, optimizer state and random state from a checkpoint, and return the progress it recorded."""
    progress = read_progress(path)
    try:
        bundle.read_weights(model, path / "weights.safetensors")
        _restore_optimizer(optimizer, path / "optimizer.safetensors")
    except RunError as problem:
        raise RunError(
            f"{path}: this checkpoint cannot be read ({problem}). Delete it to resume from the one before it"
        ) from None
    return progress


def read_progress(path: Path) -> Progress:
    """Return the progress that a checkpoint recorded."""
    return _read_state(path)[0]


def replace_progress(path: Path, progress: Progress) -> None:
    """Replace the progress that a checkpoint recorded by another one of the same step."""
    _, sizes = _read_state(path)
    _write_state(path, progress, sizes)


def _write_state(path: Path, progress: Progress, sizes: dict[str, int]) -> None:
    """Write `state.json`: the progress, and the sizes in bytes of the other files by name."""
    state = asdict(progress) | {"files": sizes}
    storage.write_text(path / "state.json", json.dumps(state | {"crc32": _mark(state)}, indent=1))


def _read_state(path: Path) -> tuple[Progress, dict[str, int]]:
    """Read `state.json`: the progress, and the sizes in bytes of the other files by name.

    Checkpoints of early versions have no sizes: the dictionary is then empty.
    """
    try:
        state = storage.read_json(path / "state.json")
        mark = state.pop("crc32", None)
        if mark is not None and mark != _mark(state):
            raise ValueError("its checksum is wrong")
        sizes = state.pop("files", {})
        sums = tuple(map(float, state["sums"]))
        state |= {"position": Position(**state["position"]), "sums": (*sums, *(0.0,) * (4 - len(sums)))}
        progress = Progress(**state)
        for part in (progress, progress.position):
            for each in fields(part):
                value = getattr(part, each.name)
                if each.type in (int, float) and (type(value) not in (int, each.type) or not 0 <= value < MOST):
                    raise ValueError(f"invalid {each.name}: {str(value)[:40]!r}")
        if len(progress.sums) != 4 or not all(map(math.isfinite, progress.sums)):
            raise ValueError(f"invalid sums: {str(progress.sums)[:40]}")
        for best in (progress.best, progress.best_loss):
            if best is not None and (type(best) not in (int, float) or math.isnan(best)):
                raise ValueError(f"invalid best score: {str(best)[:40]!r}")
        if type(progress.device) is not str:
            raise ValueError(f"invalid device: {str(progress.device)[:40]!r}")
        if progress.step != step_of(path):
            raise ValueError(f"it is of step {progress.step}, its folder of step {step_of(path)}")
        return progress, {str(name): int(size) for name, size in sizes.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise RunError(f"{path / 'state.json'}: cannot be read ({why})") from None


def _mark(state: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(state, sort_keys=True).encode()):08x}"


def average(paths: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints, summed in float64."""
    total: dict[str, Tensor] = {}
    own = bundle.read_shapes(paths[0] / "weights.safetensors")
    for path in (each / "weights.safetensors" for each in paths):
        weights = bundle.read_tensors(path, accept=lambda shapes: bundle.check_fit(own, shapes), only_float32=True)
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(paths)).float() for name, weight in total.items()}


def _restore_optimizer(optimizer: Adam, path: Path) -> None:
    places = optimizer.tensors()

    def accept(shapes: bundle.Shapes) -> None:
        for name, shape in shapes.items():
            ours = name in places and shape == tuple(places[name].shape)
            if not ours and not (name.startswith("random.") and sum(shape) < 10_000):
                raise RunError(
                    f"{path}: the tensor {name} of shape {list(shape)} does not belong to this model's optimizer"
                )
        if missing := sorted(places.keys() - shapes.keys()):
            raise RunError(f"{path}: the tensor {missing[0]} is missing")

    tensors = bundle.read_tensors(path, accept=accept)
    for name, place in places.items():
        if tensors[name].dtype != place.dtype:
            raise RunError(f"{path}: {name} is {tensors[name].dtype}, expected {place.dtype}")
        place.copy_(tensors[name])
    try:
        set_random_state(tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as problem:
        raise RunError(f"{path}: cannot be read ({problem})") from None
