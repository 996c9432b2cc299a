"""Train and score small models in memory, with the model, loss, optimizer, schedule and search of `seq2see train`."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch

from seq2see import special
from seq2see.config import Training
from seq2see.decoding import search
from seq2see.kernels import threads
from seq2see.lab.tasks import Sample, pack
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer
from seq2see.tokens.batches import Batch
from seq2see.training import loop, schedule
from seq2see.training.optimizer import Adam


def train(
    model: Seq2Seq,
    batches: Iterator[Batch],
    steps: int,
    after: Callable[[int], None] = lambda step: None,
    rate: Callable[[int], float] | None = None,
    **settings: Any,
) -> list[float]:
    """Make `steps` updates as `seq2see train` does, by default with a warm-up of 10 % of the steps and cosine decay
    to 0.

    Args:
        after: called with the number of each update, counted from 1, after the update.
        rate: returns the learning rate of an update, given its number from 1 on; None for the schedule.
        settings: fields of `config.Training`.

    Returns:
        The loss per token of each update, without label smoothing; infinity if the update was skipped because its loss
        or gradients were not finite.
    """
    defaults: dict[str, Any] = {"warmup_steps": max(1, steps // 10), "schedule": "cosine", "learning_rate": 3e-3}
    how = Training(max_steps=steps, **(defaults | {"label_smoothing": 0.0} | settings))
    optimizer = Adam(model.parameters(), how)
    rate = rate or partial(
        schedule.rate,
        schedule=how.schedule,
        peak=how.learning_rate,
        d_model=0,  # the peak is given
        warmup_steps=how.warmup_steps,
        max_steps=steps,
    )
    losses = []
    with threads.sharing("lab") if isinstance(model, Transformer) else threads.fixed() as ours:
        for step, batch in enumerate(islice(batches, steps), start=1):
            sums, _ = loop.update(model, optimizer, [batch], how, rate(step))
            _, plain, tokens, skipped = sums.tolist()
            losses.append(math.inf if skipped else plain / tokens)
            ours.after(1)
            after(step)
    return losses


def final_loss(losses: Sequence[float], vocabularies: tuple[int, int]) -> float:
    """Return the mean loss of the last tenth of the updates, or that of a uniform guess over the target vocabulary if
    that is lower.
    """
    last = losses[-max(1, len(losses) // 10) :]
    return min(sum(last) / len(last), math.log(vocabularies[1]))


@torch.inference_mode()
def loss(model: Seq2Seq, samples: Sequence[Sample]) -> float:
    """Return the cross-entropy per target token on `samples`, without label smoothing or dropout."""
    model.eval()
    found = loop.loss_of(model, pack(samples))
    return float(found.plain / found.tokens)


@torch.inference_mode()
def accuracy(model: Seq2Seq, samples: Sequence[Sample], beam: int = 1) -> tuple[float, float]:
    """Return the share of outputs that are entirely correct, and the share of target tokens (with the end token) that
    the output has at the same position.

    The outputs are the best hypotheses of a beam search.
    """
    model.eval()
    batch = pack(samples)
    memory = model.encode(batch.source_N, batch.source_offsets)
    limits = [len(target) + 5 for _, target in samples]
    penalty = search.power_penalty(1.0)
    found = search.beam(model, memory, limits, beam, penalty)
    whole = tokens = right = 0
    for hypotheses, (_, target) in zip(found, samples, strict=True):
        output = hypotheses[0].tokens
        whole += output == target
        wanted = [*target, special.END]
        right += sum(one == other for one, other in zip([*output, special.END], wanted, strict=False))
        tokens += len(wanted)
    return whole / len(samples), right / tokens
