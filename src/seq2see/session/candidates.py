"""Train the candidates of trials, one after another on a CPU, several at a time on a GPU, each in a process.

A candidate is a set of settings with a run folder of its own (`trials` says which there are). It is trained up to a
step of its own learning rate schedule, where its training pauses and can be resumed like any other.
"""

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seq2see import bundle, machine
from seq2see.errors import PassingError, RunError
from seq2see.evaluation import validation
from seq2see.lens import history
from seq2see.machine import ALONE, Stop
from seq2see.model.interface import Seq2Seq
from seq2see.session import finish, prepare, resume
from seq2see.session.request import Interrupted, Prepared, Said, Watch
from seq2see.training import checkpoint, loop
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.events import INTERRUPTED, Finished, Stepped
from seq2see.training.journal import Journal

DEFAULT = "suggested"
"""Name of the candidate that has the suggested settings."""
MOST_AT_ONCE = 5
"""Maximum number of candidates that are trained at the same time on a GPU, each in a process; on a CPU it is one."""


@dataclass(frozen=True)
class CandidateResult:
    """Results of a candidate after `step` steps: its loss on each validation pair, its best score, and its training
    cost (tokens times parameters).
    """

    name: str
    step: int
    losses: dict[str, float]
    """Loss of each validation pair in nats, summed over its tokens (`validation.by_pair`); empty if training failed."""
    score: float | None
    """Best value of `training.metric` so far; None if that is the loss, which depends on the tokenizer."""
    cost: float
    """Number of tokens trained on (counted twice with R-Drop) times number of parameters."""
    seconds: float
    warning: str | None = None
    """What failed, for the user; None if nothing did."""

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses.values()) if self.losses else math.inf


def train_all(
    places: Mapping[str, Path],
    until: int,
    watch: Watch,
    minutes: float,
    forecast: Callable[[float], None] | None = None,
) -> dict[str, CandidateResult]:
    """Train each candidate up to step `until`: one after another on a CPU, several at a time on a GPU.

    When this has taken `minutes`, no further challenger is started; 0 for no limit. The time of earlier calls counts,
    which the checkpoints of the candidates record. On a CPU, `forecast` is called with the mean duration of the first
    steps.
    """
    at_once = 1 if machine.pick_device().type == "cpu" else MOST_AT_ONCE
    waiting, found, seconds = list(places.items()), dict[str, CandidateResult](), 0.0
    while waiting:
        group, waiting = dict(waiting[:at_once]), waiting[at_once:]
        if found and minutes and seconds > 60 * minutes:
            for name in group:
                watch(Said(f"trials: the {minutes:g} minutes are over: {name} is not tried"))
            continue
        if len(group) > 1:
            found |= _side_by_side(group, until)
        else:
            found |= {name: advance(name, place, until, forecast) for name, place in group.items()}
            forecast = None
        seconds += max(found[name].seconds for name in group)
        for each in (found[name] for name in group):
            if each.losses:
                loss = f"mean validation loss per sentence {each.loss:.3f}"
                watch(Said(f"trials: {each.name}, step {each.step:,}: {loss}"))
            if each.warning:
                watch(Said(each.warning))
    return found


class Advance:
    """Callable form of `advance` for a worker process; it returns the number of the signal if one stopped it."""

    def __call__(self, task: tuple[str, Path, int]) -> CandidateResult | int:
        try:
            return advance(*task)
        except Interrupted as stopped:
            return stopped.signal


def _side_by_side(places: Mapping[str, Path], until: int) -> dict[str, CandidateResult]:
    """Train all candidates up to step `until` at once, each in a process; after a signal, each saves a checkpoint."""
    crew = {name: machine.WorkerProcess(Advance, ()) for name in places}
    answers: dict[str, Any] = {}

    def wait(name: str) -> None:
        try:
            answers[name] = crew[name].receive()
        except Exception as problem:
            answers[name] = problem

    stop = Stop()
    try:
        with stop.listening():
            for name, place in places.items():
                crew[name].send((name, place, until))
            threads = [threading.Thread(target=wait, args=[name], daemon=True) for name in places]
            for thread in threads:
                thread.start()
            told = False
            while any(thread.is_alive() for thread in threads):
                threads[0].join(0.1) if threads[0].is_alive() else time.sleep(0.1)
                if stop.asked() and not told:
                    told = True
                    for worker in crew.values():
                        worker.ask_to_stop()
    finally:
        for worker in crew.values():
            worker.end()
    signals = [answer for answer in answers.values() if isinstance(answer, int)]
    if stop.asked() or signals:
        for answer in answers.values():
            if isinstance(answer, PassingError):  # such as a full disk, where no checkpoint could be saved
                raise answer
        raise Interrupted(stop.signal or max(signals))  # a worker that was still starting is killed by the signal
    for name, answer in answers.items():
        if isinstance(answer, Exception):  # of the suggested settings, or its process was killed
            answers[name] = CandidateResult(
                name, 0, {}, None, 0.0, 0.0, f"trials: {name} failed: {_failure(name, answer)}"
            )
    return answers


class _Pause(Stop):
    """A stop request by a signal, or by `_train`, which sets `reached` at the step where it pauses the training."""

    reached = False

    def asked(self) -> bool:
        return self.reached or super().asked()


def advance(name: str, folder: Path, until: int, forecast: Callable[[float], None] | None = None) -> CandidateResult:
    """Train the model of a run folder up to step `until`, or to an earlier limit, and return its losses and score.

    Args:
        forecast: Called on a CPU with the mean duration of the first steps.
    """
    prepared, weights = resume.reopen(folder, []), 0
    training, latest, losses, warning, failed = prepared.settings.training, list[Stepped](), list[float](), None, None
    try:
        model = prepare.new_model(folder, prepared, machine.pick_device())
        weights = sum(weight.numel() for weight in model.parameters())
        warning = _train(folder, prepared, model, until, latest, forecast)
        losses = validation.losses(model.eval(), prepared.valid)
        if not all(map(math.isfinite, losses)):
            failed, losses = "its validation loss is not finite", []
    except (NotFinite, RunError, MemoryError, RuntimeError) as problem:
        failed = _failure(name, problem)
    newest = checkpoint.newest(folder / "checkpoints") if (folder / "checkpoints").is_dir() else None
    progress = checkpoint.Progress() if newest is None else checkpoint.read_progress(newest)
    if failed:
        if latest:  # steps after the newest checkpoint count, too
            progress = replace(progress, step=latest[-1].step, seconds=latest[-1].seconds)
        warning = f"trials: {name} failed before step {progress.step + 1:,}: {failed}"
    by_pair = validation.by_pair(prepared.valid_pairs, losses)
    cost = progress.step * training.batch_tokens * loop.times(training) * weights
    score = None if training.metric == "loss" else progress.best
    return CandidateResult(name, progress.step, by_pair, score, float(cost), round(progress.seconds, 1), warning)


def _failure(name: str, problem: Exception) -> str:
    """Return why a challenger cannot win; raise an error that concerns the suggested settings or the machine."""
    ours = isinstance(problem, NotFinite | RunError) or machine.is_out_of_memory(problem)
    if name == DEFAULT or isinstance(problem, PassingError) or not ours:
        raise problem
    if isinstance(problem, NotFinite):
        return "its loss was not finite"
    return str(problem) if isinstance(problem, RunError) else "out of memory"


def _train(
    folder: Path,
    prepared: Prepared,
    model: Seq2Seq,
    until: int,
    latest: list[Stepped],
    forecast: Callable[[float], None] | None,
) -> str | None:
    """Train up to step `until`, or to an earlier limit, and load the weights to be compared; return a warning, if any.

    Args:
        latest: The event of the latest step is put here, for the case that training fails.
    """
    training, checkpoints, device = prepared.settings.training, folder / "checkpoints", machine.pick_device()
    newest = checkpoint.newest_intact(checkpoints) if checkpoints.is_dir() else None
    before = checkpoint.Progress() if newest is None else checkpoint.read_progress(newest)
    warning = end = None
    # At a limit, the loop repeats the average of the last checkpoints, which an interruption may have prevented.
    if before.step < until or loop.limit_reached(before, training) is not None:
        stop = _Pause()
        micro_tokens = prepare.choose_micro_tokens(prepared, before, device, lambda event: None)
        journal = Journal(folder, before.step, newest is not None and checkpoint.is_pause(newest))
        used = bundle.Bundle(prepared.settings, prepared.tokenizers, model)
        recorder = history.Recorder(folder, used, prepared.valid, before.step)
        try:
            for event in prepare.run_loop(folder, prepared, model, micro_tokens, stop, ALONE):
                journal.write(event)
                warning = recorder.after(event) or warning
                if isinstance(event, Stepped):
                    latest[:] = [event]
                    stop.reached = event.step >= until < training.max_steps
                if forecast and (seconds := finish.seconds_a_step(event, before, device)) is not None:
                    forecast(seconds)
                end = event
        finally:
            journal.close()
        if stop.signal:
            raise Interrupted(stop.signal)
    elif newest is not None:
        bundle.read_weights(model, newest / "weights.safetensors")
    ended = isinstance(end, Finished) and end.reason != INTERRUPTED
    if ended and (folder / "model.safetensors").exists():  # there is none if no score was ever finite
        bundle.read_weights(model, folder / "model.safetensors")
    return warning
