"""What a training is asked for, what it starts from, and what it reports; `training.loop` has more events."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from seq2see.bundle import Tokenizers
from seq2see.config import Overlay, Settings
from seq2see.session.suggest import Choice
from seq2see.text.downloads import Fetching
from seq2see.text.pair import Pair, Sides
from seq2see.tokens.store import Store
from seq2see.training import loop


class Reading(TypedDict, total=False):
    """How files of pairs are read, where their names and first lines do not say it."""

    format: str | None
    source_column: str | int | None
    target_column: str | int | None
    source_language: str | None
    target_language: str | None


@dataclass(frozen=True)
class Said:
    """A line about what is being done."""

    line: str


@dataclass(frozen=True)
class Began:
    """The model and the data of a training that is about to begin."""

    folder: Path
    settings: Settings
    pairs: int
    validation_pairs: int
    dropped: dict[str, int]
    """Pairs that are left out, by reason."""
    parameters: int
    vocabularies: tuple[int, int]
    """Numbers of tokens of source and target."""
    device: str
    step: int
    """The step that it resumes after; 0 for a new run."""
    seconds: float
    """The training time up to that step."""
    languages: Sides
    """The languages of source and target, where they are known."""
    choices: list[Choice]
    """What was chosen, by corpus, user or machine, and why."""


class Interrupted(KeyboardInterrupt):
    """A signal asked for a stop, and everything is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


Event = Said | Fetching | Began | loop.Event
Watch = Callable[[Event], None]


@dataclass(frozen=True)
class Request:
    """What `train` was asked for."""

    pairs: str | Path | Sequence[str | Path]
    folder: Path
    valid: str | Path | float | None
    overlays: list[Overlay]
    """The user's settings, later ones over earlier ones."""
    reading: Reading
    tag: bool
    resume: bool
    force: bool
    from_run: Path | None
    watch: Watch


@dataclass(frozen=True)
class Prepared:
    """The contents of a run folder that training starts from."""

    settings: Settings
    tokenizers: Tokenizers
    train: Store
    valid: Store
    valid_pairs: list[Pair]
    facts: dict[str, Any]
    """The manifest."""
    reasons: dict[str, str]
    """Why the settings are as they are, by the rows of `suggest.ROWS`."""
    yours: set[str]
    """The settings that the user has chosen."""
    old_valid: Store | None = None
    """The validation set of the run that is fine-tuned, where it is at hand."""
    old_valid_pairs: list[Pair] = field(default_factory=list)
