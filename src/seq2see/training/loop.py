"""The training loop: a generator that trains a model on batches and yields events, such as `Stepped` after an update.

`for event in train(...)` trains; the code that consumes the events draws, logs and stops. One update uses one effective
batch, which is split into micro-batches that fit into memory; if many processes (ranks) train the model together, each
computes some of them. The loss is divided once, by the number of target tokens of the whole effective batch.
"""

import contextlib
import math
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2see.bundle import load_weights, save_weights
from seq2see.config import LOWER_IS_BETTER, Training
from seq2see.errors import RunError
from seq2see.machine import ALONE, Group, Stopped, is_out_of_memory, keep_freed_memory
from seq2see.model.interface import Seq2Seq
from seq2see.tokens.batches import Batch, Batches, Position, make_batch, split
from seq2see.tokens.store import Int64s, Store
from seq2see.training import bad_numbers, checkpoint, schedule
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress
from seq2see.training.events import INTERRUPTED, Event, Finished, Returned, Shrunk, Stepped, Trained, Validated
from seq2see.training.loss import Loss, teacher_forced
from seq2see.training.optimizer import Adam, random_state, set_random_state

BAD_UPDATES = 5
"""Minimum number of consecutive updates with non-finite loss or gradient, all skipped, for a return to a checkpoint."""
MOST_RETURNS = 3
Validate = Callable[[], dict[str, float]]


def train(
    model: Seq2Seq,
    store: Store,
    settings: Training,
    *,
    window_pairs: int,
    d_model: int,
    run: Path,
    validate: Validate,
    lower_is_better: bool,
    micro_tokens: int,
    translated: Callable[[], int] = int,
    should_stop: Callable[[], bool] = lambda: False,
    group: Group = ALONE,
) -> Iterator[Event]:
    """Train until a limit in `settings`, from the newest checkpoint in `run` if it has one; save the best model there.

    Args:
        window_pairs: Number of pairs that are sorted by length and divided into batches together.
        d_model: Width of the model, which sets the learning rate if `settings.learning_rate` is 0.
        validate: Function that validates the model and returns its scores by the name of the metric.
        micro_tokens: Maximum number of tokens in one forward pass of several pairs; halved when memory runs out.
        translated: Function that returns how many pairs `validate` translates, which sets the noise of its scores.
        should_stop: Function that returns whether training should end early; a checkpoint is then saved.
    """
    plan = partial(Batches, store, settings.batch_tokens, window_pairs, settings.seed)
    loop = _Loop(model, store, settings, plan, run, group, should_stop)
    loop.begin(micro_tokens)
    while loop.reason is None or loop.validation_is_due:
        if loop.validation_is_due:
            yield from loop.validated(validate, lower_is_better, translated)
        else:
            yield from loop.updated(d_model)
    if loop.reason != INTERRUPTED:
        try:
            yield from loop.averaged(validate, lower_is_better, translated)
        except Stopped:
            loop.reason = INTERRUPTED  # everything is saved already
    elif loop.progress.step != loop.saved_step:
        loop.save(pause=True)
    yield Finished(loop.progress.step, loop.reason, loop.meter.elapsed())


class _Loop:
    """State of a training between two updates.

    The results of an update are only in `progress`, the model, the optimizer and the random state. If it is aborted by
    `Stopped`, it changes none of them; if memory runs out, only `progress.micro_tokens`, and it is repeated.
    """

    def __init__(
        self,
        model: Seq2Seq,
        store: Store,
        settings: Training,
        plan: Callable[[Position], Batches],
        run: Path,
        group: Group,
        should_stop: Callable[[], bool],
    ) -> None:
        self.model, self.store, self.settings, self.plan = model, store, settings, plan
        self.run, self.group, self.should_stop = run, group, should_stop
        self.device = next(model.parameters()).device
        self.optimizer = Adam(model.parameters(), settings)
        self.forward_backward = fastest_passes(model, settings)
        self.progress = Progress()
        self.saved_step = 0
        self.reason: str | None = None  # why training ends; None while it continues
        self.validation_is_due = False
        self.time_share = 0.0  # share of `training.max_minutes` that has passed, the same on all ranks

    def begin(self, micro_tokens: int) -> None:
        """Restore the newest checkpoint, if there is one, and make all processes start from the same weights."""
        if self.device.type == "cpu":
            keep_freed_memory()
        checkpoints, kept = self.run / "checkpoints", None
        if checkpoints.is_dir():
            kept = _chosen_by_first(self.group, lambda: checkpoint.newest(checkpoints))
        if kept is not None:
            self.progress = checkpoint.restore(kept, self.model, self.optimizer)
        self.group.broadcast(self.model.parameters())
        self.progress = replace(self.progress, micro_tokens=micro_tokens, device=self.device.type)
        self.saved_step = self.progress.step
        self._read_from(self.progress)
        self.reason = self._limit()
        self.validation_is_due = kept is not None and checkpoint.is_pause(kept) and self._is_due()

    def _read_from(self, progress: Progress) -> None:
        """Set `progress`, and continue the sequence of batches, the time and the sums for the log from it."""
        self.progress = progress
        self.batches = iter(self.plan(progress.position))
        self.meter = _Meter(progress, self.device)

    def validated(self, validate: Validate, lower_is_better: bool, translated: Callable[[], int]) -> Iterator[Event]:
        """Validate and yield the scores; save a checkpoint, and the model if it is best, but not while updates fail."""
        self.validation_is_due = False
        began = time.perf_counter()
        try:
            scores = validate()
        except Stopped:
            self.reason = INTERRUPTED
            return
        taken, self.progress = time.perf_counter() - began, self.meter.note(self.progress)
        # While updates fail, no checkpoint is made: it must not replace a good one. What is not saved is not judged
        # either, because nothing would remember it after a resume.
        counts = not self.progress.skipped or self.reason is not None
        if counts:
            self.progress = self.progress.judged(scores, self.settings.metric, lower_is_better, translated())
        best = counts and self.progress.best_step == self.progress.step
        if best:
            self.group.run_on_first(lambda: save_weights(self.model, self.run / "model.safetensors"))
        # Before the checkpoint: on resume, lines past it are cut, but one that was never written would be missed.
        yield Validated(self.progress.step, scores, best, seconds=taken)
        if counts:
            self.save()
        self.reason = self.reason or self._limit()

    def averaged(self, validate: Validate, lower_is_better: bool, translated: Callable[[], int]) -> Iterator[Validated]:
        """Average the last checkpoints, if there are several; save the average as the model if it is good enough
        (`Progress.with_average`). Its scores are then saved, too: a longer training is compared with them.
        """
        group, count = self.group, self.settings.average
        last = checkpoint.with_weights(self.run / "checkpoints", count) if group.is_first else []
        count = group.run_on_first(lambda: len(last))
        if count < 2:
            return
        if group.is_first:
            load_weights(self.model, checkpoint.average(last))
        group.broadcast(self.model.parameters())
        began, scores = time.perf_counter(), validate()
        taken = time.perf_counter() - began
        accepted = self.progress.with_average(scores, self.settings.metric, lower_is_better, translated())
        if accepted:
            group.run_on_first(lambda: save_weights(self.model, self.run / "model.safetensors"))
        yield Validated(self.progress.step, scores, bool(accepted), f"average of the last {count} checkpoints", taken)
        if accepted and group.is_first and checkpoint.step_of(last[-1]) == accepted.step:
            checkpoint.replace_progress(last[-1], accepted)

    def save(self, pause: bool = False) -> None:
        """Save a checkpoint; `pause` marks one that is made because of an interruption, not after a validation."""
        self.progress = self.meter.note(self.progress)
        self.saved_step = self.progress.step
        folder, keep, average = self.run / "checkpoints", self.settings.keep, self.settings.average
        self.group.run_on_first(
            lambda: checkpoint.save(
                folder, self.model, self.optimizer, self.progress, average=average, keep=keep, pause=pause
            )
        )

    def updated(self, d_model: int) -> Iterator[Event]:
        """Make one update and yield events; if memory runs out or `BAD_UPDATES` were not finite, prepare to retry."""
        settings, step = self.settings, self.progress.step + 1
        indices, position = next(self.batches)
        lengths = self.store.source_lengths(indices) + self.store.target_lengths(indices)
        at_once = max(1, self.progress.micro_tokens // times(settings))
        micro_batches = split(indices, lengths, at_once, self.group.rank, self.group.world)
        tokens = int(self.store.target_lengths(indices).sum())  # every rank knows the whole batch
        try:
            with self.meter, _whole_or_not_at_all(self.optimizer):
                self.group.throw_dice(settings.seed, step)
                batch = [make_batch(self.store, each, bool(settings.alignment_weight)) for each in micro_batches]
                sums = accumulate_gradients(
                    self.model, batch, tokens, self.forward_backward, self.should_stop, self.group
                )
                rate = self._learning_rate(step, d_model)
                losses, norm = apply_gradients(self.model, self.optimizer, sums, settings, rate, self.group)
        except Stopped:
            self.reason = INTERRUPTED
            return
        except (MemoryError, RuntimeError) as problem:
            yield self._shrunk(problem, micro_batches, int(lengths.sum()))
            return
        is_logged = step % settings.log_every == 0
        with self.meter:
            self.meter.add(losses, int(lengths.sum()))
            if is_logged:
                norm = norm.cpu()  # waits for the GPU: its time is part of the training's
        self.progress = replace(self.progress, step=step, position=position, seconds=self.meter.elapsed())
        yield Stepped(step, self.progress.seconds)
        if is_logged:
            yield self.meter.read(step, position.epoch, float(norm), rate)
        if is_logged or step % settings.validate_every == 0:  # at other steps nothing waits for the GPU
            self.progress = self.meter.note(self.progress)
            if self.progress.skipped >= BAD_UPDATES:
                yield self._returned(split(indices, lengths, at_once))
                return
        # Among several ranks, the one that is asked to stop says so in the next update, where all of them check.
        stops = self.group.alone and self.should_stop()
        self.reason = self._limit() or (INTERRUPTED if stops else None)
        self.validation_is_due = self._is_due()

    def _learning_rate(self, step: int, d_model: int) -> float:
        """Return the learning rate of update `step`: by the schedule, halved for each return to a checkpoint so far."""
        settings = self.settings
        scheduled = schedule.rate(
            step,
            schedule=settings.schedule,
            peak=settings.learning_rate,
            d_model=d_model,
            warmup_steps=settings.warmup_steps,
            max_steps=settings.max_steps,
            time_share=self.time_share,
        )
        return 0.5**self.progress.slowed * scheduled

    def _shrunk(self, problem: Exception, micro_batches: list[Int64s], tokens: int) -> Shrunk:
        """Halve the maximum number of tokens in a forward pass, so that the update is repeated. Raise an error if
        `problem` is not that memory ran out, or if no micro-batch has two pairs.
        """
        if not is_out_of_memory(problem):
            raise problem
        if self.group.largest(max(map(len, micro_batches), default=0)) <= 1:
            raise RunError(
                "out of memory with a single pair. Lower data.max_length in a new run, choose a smaller preset, or "
                "close other programs that use memory and resume with --resume"
            ) from problem
        traceback.clear_frames(problem.__traceback__)  # they hold on to all that memory
        share = tokens // self.group.world * times(self.settings)
        smaller = max(1, min(self.progress.micro_tokens, share) // 2)
        self.progress = replace(self.progress, micro_tokens=smaller)
        del self.forward_backward  # CUDA graphs have memory of their own
        torch.cuda.empty_cache()
        self.forward_backward = fastest_passes(self.model, self.settings)
        self.batches = iter(self.plan(self.progress.position))
        return Shrunk(self.progress.step + 1, smaller)

    def _returned(self, batch: list[Int64s]) -> Returned:
        """Restore the newest checkpoint whose latest update was finite, delete later ones, and halve the learning rate.

        Raises:
            NotFinite: There is no such checkpoint, or training has returned `MOST_RETURNS` times already.
        """
        failed, checkpoints = self.progress, self.run / "checkpoints"

        def choose() -> Path | None:
            for path in checkpoint.whole(checkpoints):
                if not checkpoint.read_progress(path).skipped:
                    checkpoint.drop_after(checkpoints, path)
                    return path
            return None

        good = None if failed.slowed >= MOST_RETURNS else _chosen_by_first(self.group, choose)
        if good is None:
            raise self._not_finite(batch)
        restored = checkpoint.restore(good, self.model, self.optimizer)
        restored = replace(restored, seconds=failed.seconds, micro_tokens=failed.micro_tokens)
        self._read_from(replace(restored, slowed=failed.slowed + 1))
        self.saved_step = restored.step
        return Returned(restored.step, failed.step, failed.skipped, failed.slowed + 1)

    def _not_finite(self, batch: list[Int64s]) -> NotFinite:
        """Return the error that names the layer and the pairs that make the loss or gradient of `batch` not finite."""

        def loss(pairs: Int64s) -> Tensor:
            part = make_batch(self.store, pairs).to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=in_bfloat16(self.settings, self.device)):
                return loss_of(self.model, part, self.settings.label_smoothing).total

        progress = self.progress
        place, pairs = self.group.run_on_first(lambda: bad_numbers.find(self.model, batch, loss))
        return NotFinite(progress.step, progress.skipped, progress.slowed, place, pairs, sum(map(len, batch)))

    def _is_due(self) -> bool:
        """Return whether to validate now: every `validate_every` steps and at the end, but not if interrupted."""
        regularly = self.progress.step % self.settings.validate_every == 0
        return self.reason != INTERRUPTED and (regularly or self.reason is not None)

    def _limit(self) -> str | None:
        """Return which limit is reached, as a text, or None; all ranks use the time of the slowest, to end together."""
        progress = self.progress
        if minutes := self.settings.max_minutes:
            progress = replace(progress, seconds=self.group.largest(progress.seconds))
            self.time_share = progress.seconds / (60 * minutes)
        return limit_reached(progress, self.settings)


@contextlib.contextmanager
def _whole_or_not_at_all(optimizer: Adam) -> Iterator[None]:
    """If the update inside is stopped or runs out of memory, clear its gradients and restore the random state."""
    dice = random_state()
    try:
        yield
    except (Stopped, MemoryError, RuntimeError) as problem:
        if isinstance(problem, Stopped) or is_out_of_memory(problem):
            optimizer.zero_grad(set_to_none=not torch.cuda.is_available())
            set_random_state(dice)
        raise


Passes = Callable[[Batch, int], Tensor]
"""Function (micro-batch, tokens) that runs a forward and backward pass of loss / tokens; returns the sums of `Loss`."""


def times(settings: Training) -> int:
    """Return how many times each pair is passed through the model in an update: twice with R-Drop, else once."""
    return 2 if settings.agreement else 1


def fastest_passes(model: Seq2Seq, settings: Training) -> Passes:
    """Return passes by CUDA graphs (`graphs.GraphedPasses`) if GPU and model support them, else `plain_passes`.

    Deterministic training uses plain ones: whether a pass uses a graph depends on the batches before it.
    """
    plain, device = plain_passes(model, settings), next(model.parameters()).device
    if settings.deterministic or device.type != "cuda":
        return plain
    from seq2see.training.graphs import GraphedPasses, compile_kernels

    bfloat16 = in_bfloat16(settings, device)
    compile_kernels(model, settings, bfloat16)
    return GraphedPasses(model, settings, bfloat16, plain) if GraphedPasses.can(model, bfloat16) else plain


def plain_passes(model: Seq2Seq, settings: Training) -> Passes:
    """Return a function that runs one forward and backward pass without CUDA graphs, on any device."""
    device = next(model.parameters()).device

    def forward_backward(batch: Batch, tokens: int) -> Tensor:
        batch = (batch.twice() if settings.agreement else batch).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(settings, device)):
            loss = loss_of(model, batch, settings.label_smoothing, settings.agreement, settings.alignment_weight)
        (loss.total / tokens).backward()  # type: ignore[no-untyped-call]
        return torch.stack([part.detach().double() for part in loss])

    return forward_backward


def accumulate_gradients(
    model: Seq2Seq,
    micro_batches: list[Batch],
    tokens: int,
    forward_backward: Passes,
    should_stop: Callable[[], bool] = lambda: False,
    group: Group = ALONE,
) -> Tensor:
    """Run forward and backward passes over this rank's micro-batches; return the three sums of `Loss` over all of them.

    Args:
        tokens: Number of target tokens of the effective batch, including those of the other ranks.
    """
    sums = torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)
    model.train()
    with group.all_or_none():
        if not group.alone and should_stop():
            raise Stopped
        for number, micro_batch in enumerate(micro_batches):
            if number and should_stop():
                raise Stopped
            sums += forward_backward(micro_batch, tokens)
    return sums


def apply_gradients(
    model: Seq2Seq, optimizer: Adam, sums: Tensor, settings: Training, rate: float, group: Group = ALONE
) -> tuple[Tensor, Tensor]:
    """Sum the gradients over all ranks, clip them if that is set, and do one step of the optimizer.

    Return a tensor of four sums over all ranks, and the norm of the gradient before clipping. The sums are the three of
    `Loss`, and 1 if the update was skipped because loss or gradient was not finite (the others are then 0), else 0.
    """
    with group.all_must_finish():
        group.sum_gradients(model.parameters())
        group.all_reduce(sums)
        norm = nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
        if settings.clip_norm and (norm.is_cuda or norm > settings.clip_norm):  # comparing would wait for a GPU
            nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip_norm, norm)
        skipped = ~(norm.isfinite() & sums.isfinite().all())
        optimizer.step(rate, skipped.float())  # obeyed on the GPU, so that nothing waits for it
    # CUDA graphs know where gradients lie. On a CPU new ones cost less than adding to zeros.
    optimizer.zero_grad(set_to_none=sums.device.type == "cpu")
    return torch.cat([sums.masked_fill(skipped, 0.0), skipped.double()[None]]), norm


def update(
    model: Seq2Seq, optimizer: Adam, batch: list[Batch], settings: Training, rate: float, passes: Passes | None = None
) -> tuple[Tensor, Tensor]:
    """Make one update in one process with an effective batch in micro-batches; return as `apply_gradients` does."""
    tokens = sum(each.target_tokens for each in batch)
    sums = accumulate_gradients(model, batch, tokens, passes or plain_passes(model, settings))
    return apply_gradients(model, optimizer, sums, settings, rate)


def loss_of(
    model: Seq2Seq, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0, alignment_weight: float = 0.0
) -> Loss:
    """Return the loss of a batch on the device of the model; see `teacher_forced` for the arguments."""
    sides = batch.source_N, batch.source_offsets, batch.inputs_N, batch.target_offsets, batch.target_N
    return teacher_forced(model, *sides, smoothing, agreement, batch.links_N, alignment_weight)


def in_bfloat16(settings: Training, device: torch.device) -> bool:
    """Return whether matrix multiplications use bfloat16: on a GPU, if set, or by "auto" if the hardware supports it.

    Emulated bfloat16 is slower than float32, and so is bfloat16 on a CPU, where it even crashes some virtual machines.
    """
    if device.type != "cuda" or settings.precision == "float32":
        return False
    return settings.precision == "bfloat16" or torch.cuda.is_bf16_supported(including_emulation=False)


def limit_reached(progress: Progress, settings: Training) -> str | None:
    """Return which limit is reached (steps, minutes, or patience), as a text; None if training should continue."""
    if progress.step > settings.max_steps:
        return f"the limit of {settings.max_steps:,} steps is below the {progress.step:,} steps done before"
    if progress.step == settings.max_steps:
        return f"all {settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= 60 * settings.max_minutes:
        return f"{settings.max_minutes:g} min are over"
    if settings.patience and progress.stale >= settings.patience:
        if checkpoint.is_perfect(progress.best, settings.metric in LOWER_IS_BETTER):
            return f"no better {settings.metric} is possible"
        return f"no better {settings.metric} in {progress.stale:g} validations"
    return None


def _chosen_by_first(group: Group, choose: Callable[[], Path | None]) -> Path | None:
    """Return the path that the first rank chooses, because other ranks may see files on a shared disk later."""
    path = group.run_on_first(lambda: None if (found := choose()) is None else str(found))
    return None if path is None else Path(path)


class _Meter:
    """Sums over the updates since the last `read`; only time inside `with meter:` counts for the throughput."""

    def __init__(self, progress: Progress, device: torch.device) -> None:
        self._began = time.perf_counter() - progress.seconds
        self._sums = torch.tensor(progress.sums, dtype=torch.float64, device=device)  # there: reading it would wait
        self._in_a_row = torch.tensor(float(progress.skipped), dtype=torch.float64, device=device)
        self._tokens = 0
        self._busy = 0.0

    def __enter__(self) -> None:
        self._entered = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._busy += time.perf_counter() - self._entered

    def elapsed(self) -> float:
        """Return the seconds that training and validation have taken, including those before a resume."""
        return time.perf_counter() - self._began

    def add(self, losses: Tensor, tokens: int) -> None:
        self._sums += losses
        self._in_a_row = (self._in_a_row + 1) * losses[-1]
        self._tokens += tokens

    def note(self, progress: Progress) -> Progress:
        """Return the progress with the present time and sums, with which a resumed run continues the log."""
        sums, skipped = tuple(self._sums.tolist()), int(self._in_a_row)
        return replace(progress, seconds=self.elapsed(), sums=sums, skipped=skipped)

    def read(self, step: int, epoch: int, gradient_norm: float, rate: float) -> Trained:
        total, plain, count, skipped = self._sums.tolist()
        speed = self._tokens / self._busy
        self._sums.zero_()
        self._tokens, self._busy = 0, 0.0
        if not count:  # all were skipped
            total = plain = math.nan
        count = count or 1.0
        means = plain / count, total / count
        return Trained(step, epoch, *means, gradient_norm, rate, speed, self.elapsed(), int(skipped))
