"""What every engine is asked and answers: tokens in, hypotheses out. Nothing here needs torch."""

from dataclasses import dataclass
from typing import Protocol

from seq2see.config import Decoding


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its tokens without the end, and the score it was ranked by."""

    tokens: list[int]
    score: float
    log_probability: float | None
    """Of all its tokens and the end together, without a length penalty; None where the engine does not tell."""


@dataclass(frozen=True)
class Task:
    """One sentence to translate."""

    source: list[int]
    """Its tokens, the end included."""
    limit: int
    """The most tokens of an output, the end not counted where there is no room for it."""
    prefix: list[int]
    """Tokens that the output must begin with."""


class Engine(Protocol):
    """Searches for translations. Tasks may come in any number and order; each answer is the same as for it alone."""

    name: str
    """Engine and precision, as signatures show it: "torch float32", "ctranslate2 int8"."""

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Up to `settings.beam` hypotheses for each task, best first."""
        ...
