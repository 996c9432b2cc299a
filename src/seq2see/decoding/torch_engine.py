"""Our own engine: the model as it was trained, searched with `search.py`."""

import warnings

import torch

from seq2see.config import Decoding
from seq2see.decoding import search
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.search import Choose, Step, Watch
from seq2see.decoding.slots import SlotSearch
from seq2see.decoding.translator import batches
from seq2see.decoding.weights import for_decoding, is_heard
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer


class TorchEngine:
    """Beam search, or token by token where `choose` is given (`search.sampling(...)`); `watch` is shown each step."""

    def __init__(
        self,
        model: Seq2Seq,
        choose: Choose | None = None,
        precision: str = "float32",
        watch: Watch | None = None,
    ) -> None:
        self.model = for_decoding(model, precision)
        self.choose = choose
        self.watch = watch
        self.name = f"torch {precision}"
        self._slots = SlotSearch(self.model) if isinstance(self.model, Transformer) else None

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        # A recorded step tells nobody what passes in it, and draws no words.
        told = self.choose or self.watch or is_heard(self.model)
        if self._slots and not told and self._slots.can(settings.beam):
            try:
                return self._slots.search(tasks, settings)
            except torch.OutOfMemoryError:
                self._slots.forget()
                warnings.warn(
                    "no room on the card for recorded steps: searching without, which is slower", stacklevel=2
                )
            torch.cuda.empty_cache()
        found: list[list[Hypothesis]] = [[] for _ in tasks]
        budget = settings.batch_tokens // settings.beam
        for batch in batches([len(task.source) for task in tasks], budget):
            hypotheses = self._search([tasks[index] for index in batch], settings, self._watch_of(batch))
            for index, each in zip(batch, hypotheses, strict=True):
                found[index] = each
        return found

    def _watch_of(self, batch: list[int]) -> Watch | None:
        """`watch` with sentences counted as in all tasks, not as in a batch of them."""
        if (watch := self.watch) is None:
            return None

        def counted(step: Step) -> set[int] | None:
            gone = watch(step._replace(sentences=[batch[place] for place in step.sentences]))
            return {place for place, index in enumerate(batch) if index in gone} if gone else None

        return counted

    @torch.inference_mode()
    def _search(self, tasks: list[Task], settings: Decoding, watch: Watch | None) -> list[list[Hypothesis]]:
        device = next(self.model.parameters()).device
        source_N = torch.tensor([token for task in tasks for token in task.source], device=device)
        offsets = torch.tensor([0, *(len(task.source) for task in tasks)]).cumsum(0)
        memory = self.model.encode(source_N, offsets)
        limits, prefixes = [task.limit for task in tasks], [task.prefix for task in tasks]
        penalty = search.penalty_of(settings)
        if self.choose is not None or settings.beam == 1:
            choose = self.choose or search.greedy
            return search.one_by_one(self.model, memory, limits, penalty, choose, prefixes, watch)
        return search.beam(self.model, memory, limits, settings.beam, penalty, prefixes, watch, settings.stop_against)
