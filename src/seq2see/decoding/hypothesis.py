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
    """Sum of the log-probabilities, in nats, of all tokens and of the end token if the output has one; None if the
    engine does not compute it.
    """


class Constraint(NamedTuple):
    """Token sequences, at least one of which an output must contain."""

    first: tuple[tuple[int, ...], ...]
    """Token sequences that meet the constraint at the beginning of the output."""
    later: tuple[tuple[int, ...], ...]
    """Token sequences that meet the constraint anywhere else in the output."""
    not_after: frozenset[int] = frozenset()
    """Tokens that must not directly follow a sequence of `first` or `later`: they would continue its last word."""
    never: frozenset[int] = frozenset()
    """Tokens that the output must not contain: they begin another translation of the constrained source words."""


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
    """Token sequences that the output must contain; only for an `Engine` that `constrains`, and not with a prefix."""


class Engine(Protocol):
    """Interface of engines, which search for translations.

    The result of a task does not depend on the other tasks, nor on their order, except for rounding on a GPU, and
    except when outputs are sampled.
    """

    name: str
    """Name of the engine and its precision, such as `torch float32` or `ctranslate2 int8`; scores show it in their
    signature.
    """

    @property
    def constrains(self) -> bool:
        """Return whether `search` supports `Task.constraints`."""
        ...

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return up to `settings.beam` hypotheses for each task, best first; possibly more for one with constraints."""
        ...

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability, in nats, of each token of each target, and of the end token after it.

        Args:
            sources: tokens of each sentence, with the end token.
            targets: tokens of one output per sentence, without the end token.
        """
        ...
