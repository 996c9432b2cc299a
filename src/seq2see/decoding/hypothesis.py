"""The interface of all engines: they receive tokens and return hypotheses. Nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from seq2see.config import Decoding


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without the end token, and the score by which it was ranked."""

    tokens: list[int]
    score: float
    log_probability: float | None
    """Sum of the log-probabilities of all tokens in nats, without length penalty; None if the engine does not compute
    it.
    """


class Constraint(NamedTuple):
    """Token sequences, one of which an output must contain."""

    first: tuple[tuple[int, ...], ...]
    """Token sequences that meet the constraint at the beginning of the output."""
    later: tuple[tuple[int, ...], ...]
    """Token sequences that meet the constraint anywhere else in the output."""
    not_after: frozenset[int] = frozenset()
    """Tokens that must not directly follow such a sequence, since they would continue its last word."""
    never: frozenset[int] = frozenset()
    """Tokens that the output must not contain, because they begin another translation of the same words."""


@dataclass(frozen=True)
class Task:
    """One sentence to translate."""

    source: list[int]
    """Token ids of the source sentence, including the end token."""
    limit: int
    """Maximum number of tokens of the output, counting the end token; the search stops there."""
    prefix: list[int]
    """Token ids with which the output must begin; empty if it is free."""
    constraints: tuple[Constraint, ...] = ()
    """Token sequences that the output must contain; only for an engine that `constrains`, and not with a prefix."""


class Engine(Protocol):
    """Searches for translations. The result of a task does not depend on the other tasks, nor on their order."""

    name: str
    """Name of the engine and its precision, as it appears in the signatures of scores: `torch float32`, `ctranslate2
    int8`.
    """

    @property
    def constrains(self) -> bool:
        """Return whether the search satisfies the constraints of a task."""
        ...

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return up to `settings.beam` hypotheses for each task, best first."""
        ...

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, and of the end token after it.

        Args:
            sources: tokens of each sentence, with the end token.
            targets: tokens of one output per sentence, without the end token.
        """
        ...
