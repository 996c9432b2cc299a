"""An engine for several torchrun processes: each of them translates a share of the sentences."""

from collections.abc import Sequence
from dataclasses import asdict

from seq2see.config import Decoding
from seq2see.decoding.hypothesis import Engine, Hypothesis, Task
from seq2see.distributed import ranks
from seq2see.machine import Group


class Shared:
    """An engine for torchrun ranks that are given the same tasks: each searches for a share, and all get all results.

    They exchange results after about `AT_ONCE` tasks of each rank.
    """

    AT_ONCE = 1000

    def __init__(self, engine: Engine, group: Group) -> None:
        self.name = engine.name
        self._engine, self._group = engine, group

    @property
    def constrains(self) -> bool:
        return self._engine.constrains

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        rank, world = self._group.rank, self._group.world
        answers: list[list[Hypothesis]] = []
        for begin in range(0, len(tasks), self.AT_ONCE * world):
            block = tasks[begin : begin + self.AT_ONCE * world]
            places = ranks.dealt([len(task.source) for task in block], world)
            mine = self._engine.search([block[place] for place in places[rank]], settings)
            parts = self._group.all_gather([[asdict(each) for each in found] for found in mine])
            answers += [[Hypothesis(**each) for each in found] for found in ranks.put_back(parts, places)]
        return answers

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of given targets (see `Engine.score`); every rank computes all."""
        return self._engine.score(sources, targets)
