"""seq2see: the very functions that `seq2see train` and `--engine torch` use."""

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import work

from seq2see import bundle
from seq2see.config import Decoding, Training
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import limit
from seq2see.machine import keep_freed_memory
from seq2see.tokens.batches import Batch
from seq2see.training import loop
from seq2see.training.optimizer import Adam


class Candidate:
    def __init__(self, size: work.Size, weights: Path, tuned: bool, device: torch.device | None = None) -> None:
        self.model = bundle.load(weights).model.to(device or torch.device("cpu"))
        self.settings = Training(label_smoothing=work.SMOOTHING, clip_norm=0.0)
        self.optimizer = Adam(self.model.parameters(), self.settings)
        self.passes = loop.fastest_passes(self.model, self.settings)
        self.precision = "int8" if tuned else "float32"

    @cached_property
    def engine(self) -> TorchEngine:
        """Made when it is first asked for: training has no use for it."""
        return TorchEngine(self.model.eval(), precision=self.precision)

    def train(self, batch: work.Batch) -> None:
        keep_freed_memory()  # as `loop.train` does at its start, and no decoding does
        output = self.model.output
        bias, output.bias = output.bias, None  # models that we train have none; it is for decoding, to rule out the end
        loop.update(self.model, self.optimizer, [packed(batch)], self.settings, 1e-5, self.passes)
        output.bias = bias

    def loss(self, batch: work.Batch) -> float:
        self.model.eval()
        with torch.no_grad():
            found = loop.loss_of(self.model, packed(batch), work.SMOOTHING)
        return float(found.total / found.tokens)

    def decode(self, sources: list[list[int]], beam: int, length: int) -> list[list[int]]:
        tasks = [Task(source, length, []) for source in sources]
        found = self.engine.search(tasks, Decoding(beam=beam, length_penalty=1.0))
        return [hypotheses[0].tokens for hypotheses in found]

    def translate(self, sources: list[list[int]], beam: int) -> list[list[int]]:
        tasks = [Task(source, limit(len(source), max_ratio=2.0, max_extra=10), []) for source in sources]
        return [hypotheses[0].tokens for hypotheses in self.engine.search(tasks, Decoding(beam=beam))]


def packed(batch: work.Batch) -> Batch:
    sides = []
    for side in zip(*batch, strict=True):
        sides += [torch.from_numpy(np.concatenate(side)), torch.tensor([0, *map(len, side)]).cumsum(0)]
    return Batch(*sides)
