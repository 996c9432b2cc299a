"""The training loop: a generator that pulls batches through the model and yields what a watcher wants to know.

`for event in train(...)` trains; the consumer draws, logs, and stops it. One update sees one effective batch, cut into
micro-batches that fit the machine and shared among the ranks (`ranks`: many processes run this loop side by side); the
loss is divided once, by the token count of all of them.
"""

import contextlib
import math
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2see.bundle import load_weights, save_weights
from seq2see.config import Training
from seq2see.distributed import ranks
from seq2see.errors import RunError
from seq2see.machine import Stopped, is_out_of_memory, keep_freed_memory
from seq2see.model.interface import Seq2Seq
from seq2see.tokens.batches import Batch, Batches, make_batch, split
from seq2see.tokens.store import Int64s, Store
from seq2see.training import bad_numbers, checkpoint, schedule
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress
from seq2see.training.graphs import RecordedPasses
from seq2see.training.loss import Loss, teacher_forced
from seq2see.training.optimizer import Adam


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
    skipped: int = 0
    """Updates that were not made, since loss or gradient was not finite."""


@dataclass(frozen=True)
class Shrunk:
    """Memory ran out in update `step`: it is made anew, and all others, in smaller passes."""

    step: int
    micro_tokens: int


@dataclass(frozen=True)
class Returned:
    """Updates failed one after the other: training goes on after an earlier `step`, at half the rate."""

    step: int
    failed_at: int
    updates: int
    """Skipped in a row."""
    slowed: int
    """How often it was halved by now."""


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
BAD_UPDATES = 5
"""In a row, up to a line of the log or a validation, that send training back; fewer are skipped and counted."""
MOST_RETURNS = 3
Event = Stepped | Trained | Shrunk | Returned | Validated | Finished
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
    """Train until a limit, from the newest checkpoint in `run` if there is one; leaves the best model in `run`.

    What a step leaves behind is in `progress`, the model, the optimizer and the random state, and nowhere else: a step
    or a validation that is broken off, by `Stopped` or for want of memory, is as if it had never begun.
    """
    device = next(model.parameters()).device
    if device.type == "cpu":
        keep_freed_memory()
    optimizer = Adam(model.parameters(), settings)
    checkpoints = run / "checkpoints"
    save = partial(checkpoint.save, checkpoints, model, optimizer, average=settings.average, keep=settings.keep)
    progress = Progress()
    if kept := _chosen_by_first(lambda: checkpoint.newest(checkpoints)):
        progress = checkpoint.restore(kept, model, optimizer)
    ranks.take_from_first(model.parameters())
    progress = replace(progress, micro_tokens=micro_tokens, device=device.type)
    saved = progress.step
    plan = partial(Batches, store, settings.batch_tokens, window_pairs, settings.seed)
    batches = iter(plan(progress.position))
    meter = _Meter(progress, device)
    learn = fastest_passes(model, settings)
    reason = _limit_of_all(progress, settings)
    due = kept is not None and checkpoint.is_pause(kept) and _is_due(progress.step, reason, settings)

    while True:
        if due:
            try:
                scores = validate()
            except Stopped:
                reason = INTERRUPTED
                break
            progress = meter.note(progress)
            # While updates fail, no checkpoint is made: it must not push out a good one. What is not saved is not
            # judged either: after a return or a pause nobody would know of it.
            counts = not progress.skipped or reason is not None
            if counts:
                progress = _judge(progress, scores, settings.metric, lower_is_better)
            best = counts and progress.best_step == progress.step
            if best:
                ranks.first_does(lambda: save_weights(model, run / "model.safetensors"))
            # Before the checkpoint: on resume, lines past it are cut, but one that was never written would be missed.
            yield Validated(progress.step, scores, best)
            if counts:
                ranks.first_does(partial(save, progress))
                saved = progress.step
            due = False
            reason = reason or _limit_of_all(progress, settings)
        if reason is not None:
            break

        indices, position = next(batches)
        step = progress.step + 1
        rate = 0.5**progress.slowed * schedule.rate(
            step,
            schedule=settings.schedule,
            peak=settings.learning_rate,
            d_model=d_model,
            warmup_steps=settings.warmup_steps,
            max_steps=settings.max_steps,
        )
        lengths = store.source_lengths(indices) + store.target_lengths(indices)
        at_once = max(1, progress.micro_tokens // times(settings))
        pieces = split(indices, lengths, at_once, ranks.rank(), ranks.world())
        tokens = int(store.target_lengths(indices).sum())  # every rank knows the whole batch: nobody need be asked
        try:
            with meter, _whole_or_not_at_all(optimizer):
                ranks.throw_dice(settings.seed, step)
                batch = [make_batch(store, piece) for piece in pieces]
                losses, norm = update(model, optimizer, batch, settings, rate, learn, should_stop, tokens)
        except Stopped:
            reason = INTERRUPTED
            break
        except (MemoryError, RuntimeError) as problem:
            smaller = _smaller_passes(problem, pieces, int(lengths.sum()), progress.micro_tokens, settings)
            progress = replace(progress, micro_tokens=smaller)
            del learn  # recorded passes have memory of their own
            torch.cuda.empty_cache()
            learn = fastest_passes(model, settings)
            batches = iter(plan(progress.position))
            yield Shrunk(step, smaller)
            continue

        with meter:
            meter.add(losses, int(lengths.sum()))
            if step % settings.log_every == 0:
                norm = norm.cpu()  # waits for the card: its time is part of the training's
        progress = replace(progress, step=step, position=position, seconds=meter.elapsed())
        yield Stepped(step, progress.seconds)
        if step % settings.log_every == 0:
            yield meter.read(step, position.epoch, float(norm), rate)
        if step % settings.log_every == 0 or step % settings.validate_every == 0:  # else nobody waits for the card
            progress = meter.note(progress)
            if progress.skipped >= BAD_UPDATES:
                before = _return_to_good(checkpoints, model, optimizer, progress)
                if before is None:
                    whole = split(indices, lengths, at_once)
                    raise _diagnosed(model, store, whole, settings, progress)
                yield Returned(before.step, step, progress.skipped, before.slowed)
                progress, saved = before, before.step
                batches, meter = iter(plan(progress.position)), _Meter(progress, device)
                continue
        # Among several ranks, who is asked to stop says so in the next update, where all listen.
        reason = _limit_of_all(progress, settings) or (INTERRUPTED if ranks.alone() and should_stop() else None)
        due = _is_due(step, reason, settings)

    if reason != INTERRUPTED:
        try:
            yield from _average(model, run, progress, settings, validate, lower_is_better)
        except Stopped:
            reason = INTERRUPTED  # all is saved
    elif progress.step != saved:
        progress = meter.note(progress)
        ranks.first_does(partial(save, progress, pause=True))
    yield Finished(progress.step, reason, meter.elapsed())


def _is_due(step: int, reason: str | None, settings: Training) -> bool:
    """Whether to validate after a step: regularly, and at the end; who was interrupted validates when going on."""
    return reason != INTERRUPTED and (step % settings.validate_every == 0 or reason is not None)


@contextlib.contextmanager
def _whole_or_not_at_all(optimizer: Adam) -> Iterator[None]:
    """An update that is broken off leaves neither gradients behind, nor a gap in the random numbers."""
    dice = checkpoint.random_state()
    try:
        yield
    except (Stopped, MemoryError, RuntimeError) as problem:
        if isinstance(problem, Stopped) or is_out_of_memory(problem):
            optimizer.zero_grad(set_to_none=not torch.cuda.is_available())
            checkpoint.set_random_state(dice)
        raise


def _smaller_passes(
    problem: Exception, pieces: list[Int64s], tokens: int, micro_tokens: int, settings: Training
) -> int:
    """Half as many tokens in a pass where memory ran out; other problems are raised again."""
    if not is_out_of_memory(problem):
        raise problem
    if ranks.largest(max(map(len, pieces), default=0)) <= 1:
        raise RunError(
            "memory is used up by a single pair. Lower data.max_length in a new run, choose a smaller preset, or end "
            "what else takes memory and go on with --resume"
        ) from problem
    traceback.clear_frames(problem.__traceback__)  # they hold on to all that memory
    return max(1, min(micro_tokens, tokens // ranks.world() * times(settings)) // 2)


def _return_to_good(checkpoints: Path, model: Seq2Seq, optimizer: Adam, progress: Progress) -> Progress | None:
    """Go back to the newest checkpoint after an update that was made, at half the rate; None: no, or too often."""
    if progress.slowed >= MOST_RETURNS:
        return None

    def choose() -> Path | None:
        for path in checkpoint.whole(checkpoints):
            if not checkpoint.read_progress(path).skipped:
                checkpoint.drop_after(checkpoints, path)
                return path
        return None

    good = _chosen_by_first(choose)
    if good is None:
        return None
    restored = checkpoint.restore(good, model, optimizer)
    return replace(restored, slowed=progress.slowed + 1, seconds=progress.seconds, micro_tokens=progress.micro_tokens)


def _diagnosed(model: Seq2Seq, store: Store, pieces: list[Int64s], settings: Training, progress: Progress) -> NotFinite:
    """What is to be said of a batch, in pieces that fit, whose update failed, where nothing is left to try."""
    device = next(model.parameters()).device

    def loss(pairs: Int64s) -> Tensor:
        batch = make_batch(store, pairs).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(settings, device)):
            return loss_of(model, batch, settings.label_smoothing).total

    place, pairs = ranks.first_does(lambda: bad_numbers.find(model, pieces, loss))
    return NotFinite(progress.step, progress.skipped, progress.slowed, place, pairs, sum(map(len, pieces)))


Passes = Callable[[Batch, int], Tensor]
"""Forward and backward over a piece of a batch of so many target tokens: the piece's sums, as in `Loss`."""


def times(settings: Training) -> int:
    """How often each batch passes through the model."""
    return 2 if settings.agreement else 1


def fastest_passes(model: Seq2Seq, settings: Training) -> Passes:
    """Recorded ones, where the card can. Not where bits matter: whether one is recorded hangs on what came before."""
    plain, bfloat16 = plain_passes(model, settings), in_bfloat16(settings, next(model.parameters()).device)
    if settings.deterministic or not RecordedPasses.can(model, bfloat16):
        return plain
    return RecordedPasses(model, settings, bfloat16, plain)


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
    optimizer: Adam,
    pieces: list[Batch],
    settings: Training,
    rate: float,
    learn: Passes | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of the optimizer on an effective batch in pieces: sums of their losses (as in `Loss`), gradient norm.

    With the sums comes 1 for an update that was skipped, since its loss or its gradient was not finite, else 0.

    Args:
        pieces: those of this rank.
        tokens: target tokens of the whole batch, those of the other ranks included; not given, there are none.
    """
    tokens = tokens or sum(piece.target_tokens for piece in pieces)
    learn = learn or plain_passes(model, settings)
    sums = torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)
    model.train()
    with ranks.all_or_none():
        if not ranks.alone() and should_stop():
            raise Stopped
        for number, piece in enumerate(pieces):
            if number and should_stop():
                raise Stopped
            sums += learn(piece, tokens)
    with ranks.no_way_back():
        ranks.sum_gradients(model.parameters())
        ranks.sum_up(sums)
        norm = nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
        if settings.clip_norm and (norm.is_cuda or norm > settings.clip_norm):  # to ask a card would be to wait for it
            nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip_norm, norm)
        skipped = ~(norm.isfinite() & sums.isfinite().all())
        optimizer.step(rate, skipped.float())  # which obeys it on the card: nobody waits
    # Recorded passes know where gradients lie. On a CPU new ones cost less than adding to zeros.
    optimizer.zero_grad(set_to_none=sums.device.type == "cpu")
    return torch.cat([sums.masked_fill(skipped, 0.0), skipped.double()[None]]), norm


def loss_of(model: Seq2Seq, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0) -> Loss:
    """The loss of a batch on the model's device; see `smoothed_cross_entropy`."""
    sides = batch.source_N, batch.source_offsets, batch.inputs_N, batch.target_offsets, batch.target_N
    return teacher_forced(model, *sides, smoothing, agreement)


def in_bfloat16(settings: Training, device: torch.device) -> bool:
    """Whether matrix multiplications are in bfloat16: on GPUs that have it in hardware, or on any GPU if asked for.

    Emulated, it is slower than float32. So it is on a CPU, where it is even fatal on some virtual machines.
    """
    if device.type != "cuda" or settings.precision == "float32":
        return False
    return settings.precision == "bfloat16" or torch.cuda.is_bf16_supported(including_emulation=False)


def limit_reached(progress: Progress, settings: Training) -> str | None:
    """Why training should end here, in words; None to go on."""
    if progress.step >= settings.max_steps:
        return f"all {settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= 60 * settings.max_minutes:
        return f"{settings.max_minutes:g} min are over"
    if settings.patience and progress.stale >= settings.patience:
        return f"no better {settings.metric} in {progress.stale} validations"
    return None


def _limit_of_all(progress: Progress, settings: Training) -> str | None:
    """The same by all ranks, whose clocks differ."""
    if settings.max_minutes:
        progress = replace(progress, seconds=ranks.largest(progress.seconds))
    return limit_reached(progress, settings)


def _chosen_by_first(choose: Callable[[], Path | None]) -> Path | None:
    """The path that the first rank chooses: on a shared disk, others may see it later."""
    path = ranks.first_does(lambda: None if (found := choose()) is None else str(found))
    return None if path is None else Path(path)


def _is_better(score: float, best: float | None, lower_is_better: bool) -> bool:
    """Not-a-number is never better, and anything is better than nothing."""
    return not math.isnan(score) and (best is None or (score < best if lower_is_better else score > best))


def _beats_best(progress: Progress, scores: dict[str, float], metric: str, lower_is_better: bool) -> bool:
    """Whether a validation is better than the best one so far: by the metric, and where that ties, by the loss."""
    score = scores[metric]
    if score == progress.best:
        return _is_better(scores.get("loss", math.nan), progress.best_loss, lower_is_better=True)
    return _is_better(score, progress.best, lower_is_better)


def _judge(progress: Progress, scores: dict[str, float], metric: str, lower_is_better: bool) -> Progress:
    """Return the progress with this validation recorded: as the new best one, or as one more without a gain."""
    if not _beats_best(progress, scores, metric, lower_is_better):
        return replace(progress, stale=progress.stale + 1)
    loss = scores.get("loss", math.nan)
    found = None if math.isnan(loss) else loss
    return replace(progress, best=scores[metric], best_loss=found, best_step=progress.step, stale=0)


def _average(
    model: Seq2Seq, run: Path, progress: Progress, settings: Training, validate: Validate, lower_is_better: bool
) -> Iterator[Validated]:
    """Average the last checkpoints, and save the average as the model if it validates better than the best one."""
    last = checkpoint.with_weights(run / "checkpoints", settings.average) if ranks.is_first() else []
    count = ranks.first_does(lambda: len(last))
    if count < 2:
        return
    if ranks.is_first():
        load_weights(model, checkpoint.average(last))
    ranks.take_from_first(model.parameters())
    scores = validate()
    better = _beats_best(progress, scores, settings.metric, lower_is_better)
    if better:
        ranks.first_does(lambda: save_weights(model, run / "model.safetensors"))
    yield Validated(progress.step, scores, better, f"average of the last {count} checkpoints")


class _Meter:
    """Sums over the updates since it was last read; `with meter:` counts the time inside as training."""

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
        """Seconds of the whole run, those before a resume included."""
        return time.perf_counter() - self._began

    def add(self, losses: Tensor, tokens: int) -> None:
        self._sums += losses
        self._in_a_row = (self._in_a_row + 1) * losses[-1]
        self._tokens += tokens

    def note(self, progress: Progress) -> Progress:
        """What must not be lost between two lines of the log."""
        return replace(
            progress,
            seconds=self.elapsed(),
            sums=tuple(self._sums.tolist()),
            skipped=int(self._in_a_row),
        )

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
