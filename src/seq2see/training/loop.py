"""The training loop: a generator that pulls batches through the model and yields what a watcher wants to know.

`for event in train(...)` trains; the consumer draws, logs, and stops it. One update sees one effective batch, cut into
micro-batches that fit the machine; the loss is divided once, by the token count of all of them.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2see.bundle import load_weights, save_weights
from seq2see.config import Training
from seq2see.data.batches import Batch, Batches, make_batch, split
from seq2see.data.store import Store
from seq2see.memory import keep_freed_memory
from seq2see.model.interface import Seq2Seq
from seq2see.training import checkpoint, schedule
from seq2see.training.checkpoint import Progress
from seq2see.training.graphs import RecordedPasses
from seq2see.training.loss import Loss, teacher_forced
from seq2see.training.optimizer import adam


@dataclass(frozen=True)
class Stepped:
    """One update happened."""

    step: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """Some updates happened: means over them, of a token."""

    step: int
    epoch: int
    loss: float
    """Cross entropy as validation measures it."""
    smoothed_loss: float
    """The same with label smoothing: what the gradient is of."""
    gradient_norm: float
    rate: float
    tokens_per_second: float
    seconds: float


@dataclass(frozen=True)
class Validated:
    """The model was measured and saved."""

    step: int
    scores: dict[str, float]
    best: bool
    what: str = "model"


@dataclass(frozen=True)
class Finished:
    """No more updates, and why."""

    step: int
    reason: str
    seconds: float


INTERRUPTED = "interrupted"
Event = Stepped | Trained | Validated | Finished
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
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train until a limit, from the newest checkpoint in `run` if there is one; leaves the best model in `run`."""
    device = next(model.parameters()).device
    optimizer = adam(model.parameters(), settings)
    progress = Progress()
    if kept := checkpoint.newest(run / "checkpoints"):
        progress = checkpoint.restore(kept, model, optimizer)
    batches = iter(Batches(store, settings.batch_tokens, window_pairs, settings.seed, progress.position))
    if device.type == "cpu":
        keep_freed_memory()
    meter = _Meter(progress, device)
    passes = 2 if settings.agreement else 1
    learn = plain_passes(model, settings)
    if RecordedPasses.can(model, bfloat16 := in_bfloat16(settings, device)):
        learn = RecordedPasses(model, settings, bfloat16, learn)
    reason = limit_reached(progress, settings)

    def look_up(progress: Progress) -> tuple[Progress, Validated]:
        """Validate, remember how well it went, and save."""
        scores = validate()
        progress = _judge(progress, scores[settings.metric], lower_is_better)
        progress = replace(progress, seconds=meter.elapsed(), sums=meter.sums())
        best = progress.best_step == progress.step
        if best:
            save_weights(model, run / "model.safetensors")
        checkpoint.save(run / "checkpoints", model, optimizer, progress, keep=settings.average)
        return progress, Validated(progress.step, scores, best)

    if reason is not None and kept is not None and checkpoint.is_pause(kept):
        progress, event = look_up(progress)  # it was paused where it now must end: it has not been measured there
        yield event
    while reason is None:
        indices, position = next(batches)
        step = progress.step + 1
        rate = schedule.rate(
            step,
            schedule=settings.schedule,
            peak=settings.learning_rate,
            d_model=d_model,
            warmup_steps=settings.warmup_steps,
            max_steps=settings.max_steps,
        )
        with meter:
            lengths = store.source_lengths(indices) + store.target_lengths(indices)
            pieces = [make_batch(store, piece) for piece in split(indices, lengths, max(1, micro_tokens // passes))]
            losses, norm = update(model, optimizer, pieces, settings, rate, learn)
            meter.add(losses, int(lengths.sum()))
            if step % settings.log_every == 0:
                norm = norm.cpu()  # waits for the card: its time is part of the training's

        progress = replace(progress, step=step, position=position, seconds=meter.elapsed())
        yield Stepped(step, progress.seconds)
        if step % settings.log_every == 0:
            yield meter.read(step, position.epoch, float(norm), rate)
        reason = limit_reached(progress, settings) or (INTERRUPTED if should_stop() else None)
        if step % settings.validate_every == 0 or reason not in (None, INTERRUPTED):
            progress, event = look_up(progress)
            yield event
            reason = reason or limit_reached(progress, settings)
        elif reason == INTERRUPTED:
            progress = replace(progress, sums=meter.sums())
            checkpoint.save(run / "checkpoints", model, optimizer, progress, keep=settings.average, pause=True)

    if reason != INTERRUPTED:
        yield from _average(model, run, progress, settings.metric, validate, lower_is_better)
    yield Finished(progress.step, reason, meter.elapsed())


Passes = Callable[[Batch, int], Tensor]
"""Forward and backward over a piece of a batch of so many target tokens: the piece's sums, as in `Loss`."""


def plain_passes(model: Seq2Seq, settings: Training) -> Passes:
    """On any device; see `graphs` for cards that can do better."""
    device = next(model.parameters()).device

    def learn(piece: Batch, tokens: int) -> Tensor:
        piece = (piece.twice() if settings.agreement else piece).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(settings, device)):
            loss = loss_of(model, piece, settings.label_smoothing, settings.agreement)
        (loss.total / tokens).backward()  # type: ignore[no-untyped-call]
        return torch.stack([part.detach().double() for part in loss])

    return learn


def update(
    model: Seq2Seq,
    optimizer: torch.optim.Optimizer,
    pieces: list[Batch],
    settings: Training,
    rate: float,
    learn: Passes | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of the optimizer on an effective batch in pieces: sums of their losses (as in `Loss`), gradient norm."""
    learn = learn or plain_passes(model, settings)
    count = sum(piece.target_tokens for piece in pieces)
    sums = torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)
    model.train()
    for piece in pieces:
        sums += learn(piece, count)
    norm = nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
    if settings.clip_norm and (norm.is_cuda or norm > settings.clip_norm):  # to ask a card would be to wait for it
        nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip_norm, norm)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    # Recorded passes know where gradients lie. On a CPU new ones cost less than adding to zeros.
    optimizer.zero_grad(set_to_none=sums.device.type == "cpu")
    return sums, norm


def loss_of(model: Seq2Seq, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0) -> Loss:
    """The loss of a batch on the model's device; see `smoothed_cross_entropy`."""
    sides = batch.source_N, batch.source_offsets, batch.inputs_N, batch.target_offsets, batch.target_N
    return teacher_forced(model, *sides, smoothing, agreement)


def in_bfloat16(settings: Training, device: torch.device) -> bool:
    """CPU stays float32: bfloat16 there is slower, and on some virtual machines fatal."""
    if device.type != "cuda" or settings.precision == "float32":
        return False
    return settings.precision == "bfloat16" or torch.cuda.is_bf16_supported()


def limit_reached(progress: Progress, settings: Training) -> str | None:
    """Why training should end here, in words; None to go on."""
    if progress.step >= settings.max_steps:
        return f"all {settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= 60 * settings.max_minutes:
        return f"{settings.max_minutes:g} min are over"
    if settings.patience and progress.stale >= settings.patience:
        return f"no better {settings.metric} in {progress.stale} validations"
    return None


def _is_better(score: float, best: float | None, lower_is_better: bool) -> bool:
    """Not-a-number is never better, and anything is better than nothing."""
    return not math.isnan(score) and (best is None or (score < best if lower_is_better else score > best))


def _judge(progress: Progress, score: float, lower_is_better: bool) -> Progress:
    """Remember a validation's score."""
    if _is_better(score, progress.best, lower_is_better):
        return replace(progress, best=score, best_step=progress.step, stale=0)
    return replace(progress, stale=progress.stale + 1)


def _average(
    model: Seq2Seq, run: Path, progress: Progress, metric: str, validate: Validate, lower_is_better: bool
) -> Iterator[Validated]:
    """Average the last checkpoints; the average becomes the model if it validates at least as well as the best one."""
    last = checkpoint.steps(run / "checkpoints")
    if len(last) < 2:
        return
    load_weights(model, checkpoint.average(last))
    scores = validate()
    better = scores[metric] == progress.best or _is_better(scores[metric], progress.best, lower_is_better)
    if better:
        save_weights(model, run / "model.safetensors")
    yield Validated(progress.step, scores, better, f"average of the last {len(last)} checkpoints")


class _Meter:
    """Sums over the updates since it was last read; `with meter:` counts the time inside as training."""

    def __init__(self, progress: Progress, device: torch.device) -> None:
        self._began = time.perf_counter() - progress.seconds
        self._sums = torch.tensor(progress.sums, dtype=torch.float64, device=device)  # there: reading it would wait
        self._tokens = 0
        self._busy = 0.0

    def __enter__(self) -> None:
        self._entered = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._busy += time.perf_counter() - self._entered

    def elapsed(self) -> float:
        """Seconds of the whole run, those before a resume included."""
        return time.perf_counter() - self._began

    def add(self, losses: Tensor, tokens: int) -> None:
        self._sums += losses
        self._tokens += tokens

    def sums(self) -> tuple[float, ...]:
        """Of smoothed loss, loss and target tokens since the last reading."""
        return tuple(self._sums.tolist())

    def read(self, step: int, epoch: int, gradient_norm: float, rate: float) -> Trained:
        total, plain, count = self.sums()
        speed = self._tokens / self._busy
        self._sums.zero_()
        self._tokens, self._busy = 0, 0.0
        return Trained(step, epoch, plain / count, total / count, gradient_norm, rate, speed, self.elapsed())
