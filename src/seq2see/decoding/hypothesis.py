"""The interface of all engines: tokens in, hypotheses out. Nothing here needs torch."""

from dataclasses import dataclass
from typing import Protocol

from seq2see.config import Decoding


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its tokens without the end token, and the score it was ranked by."""

    tokens: list[int]
    score: float
    log_probability: float | None
    """Sum of the log-probabilities of all tokens, without a length penalty; None where the engine has none."""


@dataclass(frozen=True)
class Task:
    """One sentence to translate."""

    source: list[int]
    """Tokens of the sentence, with the end token."""
    limit: int
    """Maximum number of tokens of the output, including the end token if it has one."""
    prefix: list[int]
    """Tokens that the output must begin with."""


class Engine(Protocol):
    """Searches for translations. The result of a task does not depend on the other tasks, nor on their order."""

    name: str
    """Engine and precision, as signatures show it: "torch float32", "ctranslate2 int8"."""

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return up to `settings.beam` hypotheses for each task, best first."""
        ...
