"""The interface of all engines: tokens in, hypotheses out. Nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from seq2see.config import Decoding


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its tokens without the end token, and the score it was ranked by."""

    tokens: list[int]
    score: float
    log_probability: float | None
    """Sum of the log-probabilities of all tokens, without a length penalty; None where the engine has none."""


class Constraint(NamedTuple):
    """Sequences of tokens of which an output must contain one."""

    first: tuple[tuple[int, ...], ...]
    """Sequences that the output may begin with."""
    later: tuple[tuple[int, ...], ...]
    """Sequences that may stand anywhere else."""
    not_after: frozenset[int] = frozenset()
    """Tokens that must not follow at once, since they would continue the word."""
    never: frozenset[int] = frozenset()
    """Tokens that the output must not contain at all: they begin another translation of the same words."""


@dataclass(frozen=True)
class Task:
    """One sentence to translate."""

    source: list[int]
    """Tokens of the sentence, with the end token."""
    limit: int
    """Maximum number of tokens of the output, including the end token if it has one."""
    prefix: list[int]
    """Tokens that the output must begin with."""
    constraints: tuple[Constraint, ...] = ()
    """Sequences that the output must contain; only for an engine that `constrains`, and not with a prefix."""


class Engine(Protocol):
    """Searches for translations. The result of a task does not depend on the other tasks, nor on their order."""

    name: str
    """Engine and precision, as signatures show it: "torch float32", "ctranslate2 int8"."""

    @property
    def constrains(self) -> bool:
        """Return whether its search obeys the constraints of a task."""
        ...

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return up to `settings.beam` hypotheses for each task, best first."""
        ...

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, and of the end token after it.

        Args:
            sources: tokens of each sentence, with the end token.
            targets: tokens of an output for each of them, without the end token.
        """
        ...


class Bounded:
    """An engine whose outputs end at a limit, if they have not before."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.name = engine.name
        self._engine = engine
        self._most = most

    @property
    def constrains(self) -> bool:
        return self._engine.constrains

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        return self._engine.search([replace(task, limit=min(task.limit, self._most)) for task in tasks], settings)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        return self._engine.score(sources, targets)
