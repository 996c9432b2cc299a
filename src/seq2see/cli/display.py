"""Progress of a training on stderr: a live progress bar on a terminal, plain lines elsewhere."""

import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from seq2see.cli.data import Downloads
from seq2see.display.wording import padded, translated, wrapped
from seq2see.errors import visible
from seq2see.text.downloads import Fetching
from seq2see.training.events import INTERRUPTED, Finished, Returned, Shrunk, Stepped, ThreadsChanged, Trained, Validated

if TYPE_CHECKING:
    from seq2see.api import Event
    from seq2see.config import Training
    from seq2see.session.suggest import Choice

QUIET_SECONDS = 10
"""Minimum seconds between two progress lines that `train` prints without a terminal; validations are always printed."""


class Display:
    """Shows the events of a training: `with Display() as display: train(..., watch=display.show)`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._downloads = Downloads()
        self._bar: Progress | None = None
        self._training: Training | None = None
        self._last_line = 0.0
        self._numbers = ""
        """Loss, learning rate and throughput of the last step that was logged, for the progress bar."""
        self._start = 0, 0.0
        """Step and seconds of training from which the speed is measured: those at which this process began or, after
        updates that were not finite, last returned to an earlier step.
        """
        self._seconds = 0.0
        self.step = 0
        """The last step that was reported, for the message after an interruption."""

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        self._downloads.__exit__()
        if self._bar:
            self._bar.stop()
            self._bar = None

    def say(self, line: str) -> None:
        self._console.print(visible(translated(line)), markup=False)

    def show(self, event: "Event") -> None:
        from seq2see.api import Began, Said

        if not isinstance(event, Said | Fetching | Trained | Shrunk):
            self.step = event.step
        match event:
            case Said():
                self.say(event.line)
            case Fetching():
                self._downloads(event)
            case Began():
                self._begin(event)
            case Stepped():
                self._seconds = event.seconds
                if self._bar:
                    self._tell(event, self._numbers)
                elif time.monotonic() - self._last_line > 3 * QUIET_SECONDS:
                    self._tell(event, "")  # the numbers of an earlier step are printed already
            case Trained():
                skipped = f"{event.skipped} updates skipped (NaN or infinity)  " if event.skipped else ""
                speed = f"learning rate {event.rate:.1e}  {event.tokens_per_second:,.0f} tokens/s  "
                loss = f"{translated('loss')} {event.loss:.3f}"
                self._numbers = f"{loss}  {translated(skipped)}{translated(speed)}"
                self._tell(event, self._numbers)
            case Shrunk():
                smaller = f"micro-batches of {event.micro_tokens:,} tokens from now on"
                self.say(f"step {event.step:>7,}  out of memory: {smaller}; the updates stay the same")
            case Returned():
                self._start = event.step, self._seconds
                failed = f"loss or gradient was not finite in {event.updates} updates in a row"
                slower = f"at 1/{2**event.slowed} of the learning rate"
                self.say(f"step {event.failed_at:>7,}  {failed}: returning to step {event.step:,}, {slower}")
            case ThreadsChanged():
                many = "1 thread" if event.threads == 1 else f"{event.threads} threads"
                self.say(
                    f"step {event.step:>7,}  computing with {many} from now on, because {event.reason}; "
                    "the results stay the same"
                )
            case Validated():
                numbers = {name: f"{value:.{3 if abs(value) < 10 else 2}f}" for name, value in event.scores.items()}
                scores = "  ".join(f"{translated(name)} {value}" for name, value in numbers.items())
                what = "" if event.what == "model" else f"  ({translated(event.what)})"
                best = f"  {translated('best' if event.what == 'model' else 'chosen')}" if event.best else ""
                self.say(f"step {event.step:>7,}  validation {scores}{best}{what}")
            case Finished():
                from seq2see.session.finish import in_words

                self.__exit__()
                if event.reason != INTERRUPTED:
                    self.say(f"done: {event.reason}, {in_words(event.seconds)}")

    def _begin(self, event: Any) -> None:
        self._training = event.settings.training
        self._last_line = time.monotonic() - QUIET_SECONDS
        self._start = event.step, event.seconds
        for line in _opening(event):
            self.say(line)
        if self._console.is_terminal:
            step = translated("step")
            words = [TextColumn(f"{step} {{task.completed:,}}/{{task.total:,}}"), TextColumn("{task.fields[numbers]}")]
            columns = (words[0], BarColumn(bar_width=24), words[1])
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.add_task("", total=event.settings.training.max_steps, completed=event.step, numbers="")
            self._bar.start()

    def _tell(self, event: Stepped | Trained, numbers: str) -> None:
        """Update the progress bar, or without a terminal print a line, at most one every `QUIET_SECONDS`.

        Args:
            numbers: Loss, learning rate and throughput of the step, which the time left follows.
        """
        numbers += translated(f"{self._time_left(event)} left")
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=event.step, numbers=numbers)
        elif time.monotonic() - self._last_line > QUIET_SECONDS:
            self._last_line = time.monotonic()
            self.say(f"{translated('step')} {event.step:>7,}  {numbers}")

    def _time_left(self, event: Stepped | Trained) -> str:
        """Return the time left until the nearer limit (steps or minutes) as text, at the mean speed since `_start`."""
        assert self._training is not None
        first, began = self._start
        seconds = (event.seconds - began) / max(1, event.step - first) * (self._training.max_steps - event.step)
        if self._training.max_minutes:
            seconds = min(seconds, 60 * self._training.max_minutes - event.seconds)
        minutes, rest = divmod(max(0, round(seconds)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _opening(event: Any) -> list[str]:
    pairs = translated(f"{event.pairs:,} training pairs, {event.validation_pairs:,} for validation")
    for why, count in event.dropped.items():
        pairs += translated(f", {count:,} dropped ({why.replace('_', ' ')})") if count else ""
    lines = [f"{padded(translated('data'), NAME_WIDTH)} {pairs}"]
    tags = event.settings.data.tags
    if any(event.languages) or tags:
        targets = ", ".join(tags.split()) or event.languages.target or "?"
        by = translated(", by tag") if tags else ""
        lines.append(f"{padded(translated('languages'), NAME_WIDTH)} {event.languages.source or '?'} -> {targets}{by}")
    lines += table(event.choices)
    if event.step:
        lines.append(f"resuming after step {event.step:,}")
    return lines


NAME_WIDTH, VALUE_WIDTH, WHY_WIDTH = 13, 54, 47
"""Widths in characters of the columns of the table of settings that `train` prints at its start: name, value,
reason.
"""


def table(choices: "list[Choice]") -> list[str]:
    """Return the lines of a table of settings: names, values, and the reasons for the values; long cells are
    wrapped.
    """
    lines = []
    for choice in choices:
        own = ", ".join(key.partition(".")[2] for key in choice.yours)
        why = f"set by you: {own}" if own else choice.why
        if len(choice.yours) == len(choice.settings):
            why = "set by you"
        name, value, why = (translated(text) for text in (choice.name, choice.value, why))
        cells = [name], wrapped(value, VALUE_WIDTH), wrapped(why, WHY_WIDTH)
        for name, value, reason in zip_longest(*cells, fillvalue=""):
            lines.append(f"{padded(name, NAME_WIDTH)} {padded(value, VALUE_WIDTH)} {reason}".rstrip())
    return lines
