"""Small models learn small tasks, by the house's own model, loss, optimizer, schedule and search, without any files."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch

from seq2see import config, special
from seq2see.config import Training
from seq2see.decoding import search
from seq2see.lab.tasks import Sample, pack
from seq2see.model.build import build
from seq2see.model.interface import Seq2Seq
from seq2see.tokens.batches import Batch
from seq2see.training import loop, schedule
from seq2see.training.optimizer import Adam

SMALL = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 64,
    "heads": 4,
    "d_ff": 128,
    "dropout": 0.0,
    "norm": "pre",
    "positions": "sinusoid",
    "tie": "none",
}
"""A model that learns to reverse eight letters in half a minute of one core."""


def small_model(seed: int, vocabularies: tuple[int, int], **changes: Any) -> Seq2Seq:
    """`SMALL` with some changes, freshly initialised."""
    torch.manual_seed(seed)
    return build(config.check_keys({"model": {**SMALL, **changes}}).model, *vocabularies)


@dataclass
class Course:
    """How a training went."""

    losses: list[float] = field(default_factory=list)
    """Of each step, of a token, without smoothing; infinite where it was not finite."""

    def final_loss(self, vocabulary: int) -> float:
        """The mean of the last tenth, and never more than one who guesses has: whoever diverged knows no less."""
        last = self.losses[-max(1, len(self.losses) // 10) :]
        return min(sum(last) / len(last), math.log(vocabulary))


def train(
    model: Seq2Seq,
    batches: Iterator[Batch],
    steps: int,
    after: Callable[[int], None] = lambda step: None,
    rate: Callable[[int], float] | None = None,
    **settings: Any,
) -> Course:
    """So many updates as `seq2see train` makes them; by default with a warm-up of a tenth, and cosine to 0.

    Args:
        after: called after each update.
        rate: of each update, counted from 1, in place of the schedule's.
        settings: of `config.Training`.
    """
    defaults: dict[str, Any] = {"warmup_steps": max(1, steps // 10), "schedule": "cosine", "learning_rate": 3e-3}
    how = Training(max_steps=steps, **(defaults | {"label_smoothing": 0.0} | settings))
    optimizer = Adam(model.parameters(), how)
    course = Course()
    rate = rate or partial(
        schedule.rate,
        schedule=how.schedule,
        peak=how.learning_rate,
        d_model=0,  # the peak is given
        warmup_steps=how.warmup_steps,
        max_steps=steps,
    )
    for step, batch in enumerate(islice(batches, steps), start=1):
        sums, _ = loop.update(model, optimizer, [batch], how, rate(step))
        _, plain, tokens, skipped = sums.tolist()
        course.losses.append(math.inf if skipped else plain / tokens)
        after(step)
    return course


@torch.inference_mode()
def loss(model: Seq2Seq, samples: Sequence[Sample]) -> float:
    """Of a token, without smoothing, on samples that it was not trained on."""
    model.eval()
    found = loop.loss_of(model, pack(samples))
    return float(found.plain / found.tokens)


@torch.inference_mode()
def accuracy(model: Seq2Seq, samples: Sequence[Sample], beam: int = 1) -> tuple[float, float]:
    """The share of outputs that are right as a whole, and of tokens that are right in their place, in free search."""
    model.eval()
    batch = pack(samples)
    memory = model.encode(batch.source_N, batch.source_offsets)
    limits = [len(target) + 5 for _, target in samples]
    penalty = search.power_penalty(1.0)
    found = search.beam(model, memory, limits, beam, penalty)
    whole = tokens = right = 0
    for hypotheses, (_, target) in zip(found, samples, strict=True):
        said = hypotheses[0].tokens
        whole += said == target
        wanted = [*target, special.END]
        right += sum(one == other for one, other in zip([*said, special.END], wanted, strict=False))
        tokens += len(wanted)
    return whole / len(samples), right / tokens
