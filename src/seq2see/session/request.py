"""Arguments, prepared data and events of a training; `training.events` defines the events of the training loop.

`notebook_progress` shows the events in a notebook.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from seq2see.bundle import Bundle
from seq2see.config import Overlay, Settings
from seq2see.display import notebook
from seq2see.display.wording import translated
from seq2see.kernels.apart import Call
from seq2see.session.suggest import Choice
from seq2see.text.downloads import Fetching
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import ReadingOptions
from seq2see.tokens.store import Store, Tokenizers
from seq2see.training import events
from seq2see.training.events import Finished, Stepped, Trained, Validated


class ReadingKeywords(TypedDict, total=False):
    """Options for reading files of pairs, and `tag`, which puts the target language before sources; see `train`."""

    format: str | None
    source_column: str | int | None
    target_column: str | int | None
    source_language: str | None
    target_language: str | None
    tag: bool


@dataclass(frozen=True)
class Said:
    """A message to the user in one line, about progress or a problem."""

    line: str


@dataclass(frozen=True)
class Began:
    """The model, the data and the settings of a training that is about to begin or to resume."""

    folder: Path
    settings: Settings
    pairs: int
    validation_pairs: int
    dropped: dict[str, int]
    """Number of pairs that are left out of training, by reason: `empty` (a side has no text) and `too_long`."""
    parameters: int
    vocabularies: tuple[int, int]
    """Sizes of the vocabularies of source and target."""
    device: str
    step: int
    """Step of the checkpoint from which training resumes; 0 for a new run."""
    seconds: float
    """Seconds that training and validation took up to `step`, in all earlier calls of `train` together."""
    languages: Sides
    """The languages of source and target, if they are known."""
    choices: list[Choice]
    """Rows of the table that `train` prints: settings chosen for the corpus, by the user or for the machine, with
    reasons.
    """


class Interrupted(KeyboardInterrupt):
    """Raised after a signal stopped a training and its checkpoint was saved; `signal` is the number of the signal."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


Event = Said | Fetching | Began | events.Event
Watch = Callable[[Event], None]


def notebook_progress() -> Watch:
    """Return a function that shows events of a training as a progress bar in a notebook, and does nothing elsewhere."""
    if not notebook.is_notebook():
        return lambda event: None
    bar = notebook.Bar()
    state: dict[str, Any] = {"total": 1, "step": 0, "loss": "", "validated": "", "said": ""}

    def show(event: Event) -> None:
        match event:
            case Said():
                state["said"] = translated(event.line)
            case Began():
                state.update(total=event.settings.training.max_steps, step=event.step, said="")
            case Stepped():
                state["step"] = event.step
            case Trained():
                state["loss"] = f"{translated('loss')} {event.loss:.3f}"
            case Validated():
                scores = "  ".join(f"{translated(name)} {value:.3f}" for name, value in event.scores.items())
                state["validated"] = f"{translated('validation')} {scores}"
            case Finished():
                reason = translated(event.reason)
                state.update(step=event.step, said=reason)
        text = "  ".join(filter(None, (state["loss"], state["validated"], state["said"])))
        bar.show(state["step"], state["total"], text, last=isinstance(event, Finished | Said))

    return show


@dataclass(frozen=True)
class Request:
    """Arguments of one call of `train`, which explains them."""

    pairs: str | Path | Sequence[str | Path]
    folder: Path
    valid: str | Path | float | None
    overlays: list[Overlay]
    """Settings that the user gave by preset, file or option; later ones override earlier ones."""
    reading: ReadingOptions
    tag: bool
    resume: bool
    force: bool
    from_run: Path | None
    watch: Watch
    tune: float | None = None
    """Minutes to spend on short trainings that compare other settings (`trials`); 0 for none. None for up to three
    trials of other tokenizers, if the corpus suggests several, with no time limit.
    """
    call: Call = operator.call
    """Function that calls the training of tokenizers and the aligner, in another process where that saves time."""


@dataclass(frozen=True)
class Prepared:
    """The contents of a prepared run folder, from which training starts."""

    settings: Settings
    tokenizers: Tokenizers
    train: Store
    valid: Store
    valid_pairs: list[Pair]
    facts: dict[str, Any]
    """Contents of the run's `manifest.json`."""
    reasons: dict[str, str]
    """Reasons for the settings, keyed by the rows of `suggest.ROWS`."""
    yours: set[str]
    """Names of the settings that the user gave, such as `model.d_model`."""
    old_valid: Store | None = None
    """In a fine-tuning, the validation set of the run that it started from, to measure what was forgotten; None if it
    is not available, and in other trainings.
    """
    old_valid_pairs: list[Pair] = field(default_factory=list)


@dataclass
class Base:
    """The run that a fine-tuning starts from."""

    folder: Path
    bundle: Bundle
    languages: Sides
    valid_pairs: list[Pair]
    """Validation pairs of the base run, with language tags before the sources if it has tags; empty if they are not
    available.
    """
    original: dict[str, float]
    """Peak learning rate (`peak`) and batch size (`batch_tokens`) of the training that made the model from random
    weights, even if the model has been fine-tuned since.
    """
    held_out_by: str
    """Name in `survey.HASHES` of the hash function that chose the validation pairs of the base run."""
    met: set[str] = field(default_factory=set)
    """Sources of `valid_pairs` that `noting_sources` has found among the new training pairs."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def tags(self) -> list[str]:
        return self.bundle.settings.data.tags.split()

    def noting_sources(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the new training pairs, and record in `met` which old validation sources are among them."""
        return noting_sources(pairs, self.valid_pairs, self.met)


def noting_sources(pairs: Iterable[Pair], held: Iterable[Pair], met: set[str]) -> Iterator[Pair]:
    """Yield the pairs, and add to `met` their sources that are also sources of `held`."""
    known = {pair.source for pair in held}
    for pair in pairs:
        if pair.source in known:
            met.add(pair.source)
        yield pair
