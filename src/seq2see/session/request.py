"""Request, base run and events of a training; `training.events` defines further events."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from seq2see.bundle import Bundle
from seq2see.config import Overlay, Settings
from seq2see.session.suggest import Choice
from seq2see.text.downloads import Fetching
from seq2see.text.pair import Pair, Sides
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import events


class ReadingKeywords(TypedDict, total=False):
    """Options for reading files of pairs, for what their names and first lines do not state."""

    format: str | None
    source_column: str | int | None
    target_column: str | int | None
    source_language: str | None
    target_language: str | None
    tag: bool


@dataclass(frozen=True)
class Said:
    """A progress message of one line."""

    line: str


@dataclass(frozen=True)
class Began:
    """The model and the data of a training that is about to begin."""

    folder: Path
    settings: Settings
    pairs: int
    validation_pairs: int
    dropped: dict[str, int]
    """Number of pairs that were left out, by reason."""
    parameters: int
    vocabularies: tuple[int, int]
    """Vocabulary sizes of source and target."""
    device: str
    step: int
    """The step after which training resumes; 0 for a new run."""
    seconds: float
    """The training time in seconds up to that step."""
    languages: Sides
    """The languages of source and target, if they are known."""
    choices: list[Choice]
    """Settings chosen by corpus, user or machine, with their reasons."""


class Interrupted(KeyboardInterrupt):
    """Raised after a signal has stopped the training and everything is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


Event = Said | Fetching | Began | events.Event
Watch = Callable[[Event], None]


@dataclass(frozen=True)
class Request:
    """Arguments of one call of `train`."""

    pairs: str | Path | Sequence[str | Path]
    folder: Path
    valid: str | Path | float | None
    overlays: list[Overlay]
    """The user's settings; later ones override earlier ones."""
    reading: ReadingKeywords
    tag: bool
    resume: bool
    force: bool
    from_run: Path | None
    watch: Watch
    tune: float | None = None
    """Minutes for trials of other settings; 0 for none; None: decided by the corpus."""


@dataclass(frozen=True)
class Prepared:
    """The contents of a prepared run folder, from which training starts."""

    settings: Settings
    tokenizers: Tokenizers
    train: Store
    valid: Store
    valid_pairs: list[Pair]
    facts: dict[str, Any]
    """The contents of the manifest."""
    reasons: dict[str, str]
    """Reasons for the settings, keyed by the rows of `suggest.ROWS`."""
    yours: set[str]
    """Names of the settings that the user has set."""
    old_valid: Store | None = None
    """The validation set of the run that is fine-tuned, if it is available."""
    old_valid_pairs: list[Pair] = field(default_factory=list)


@dataclass
class Base:
    """The run that a fine-tuning starts from."""

    folder: Path
    bundle: Bundle
    languages: Sides
    valid_pairs: list[Pair]
    """Validation pairs of the base run, including tags; empty if they are no longer available."""
    original: dict[str, float]
    """Peak learning rate and batch size of the training that first made its model, even if it was fine-tuned since."""
    held_out_by: str
    """Name of the hash function that chose its validation pairs, one of `survey.HASHES`."""
    met: set[str] = field(default_factory=set)
    """Sources of its validation pairs that also occur in the new training pairs."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def tags(self) -> list[str]:
        return self.bundle.settings.data.tags.split()

    def noting_sources(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the new training pairs, and record in `met` which old validation sources are among them."""
        known = {pair.source for pair in self.valid_pairs}
        for pair in pairs:
            if pair.source in known:
                self.met.add(pair.source)
            yield pair
