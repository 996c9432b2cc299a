"""What a training shows while it runs: a live bar on a terminal, plain lines elsewhere; always on stderr."""

import textwrap
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from seq2see.cli.data import Downloads
from seq2see.errors import visible
from seq2see.text.downloads import Fetching
from seq2see.training.events import INTERRUPTED, Finished, Returned, Shrunk, Stepped, Trained, Validated

if TYPE_CHECKING:
    from seq2see.api import Event
    from seq2see.config import Settings
    from seq2see.session.suggest import Choice

QUIET_SECONDS = 10
"""Between two plain lines about training; validations are always shown."""


class Display:
    """`with Display() as display: train(..., watch=display.show)`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._downloads = Downloads()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last_line = 0.0
        self._numbers = ""
        self._settings: Settings | None = None
        self._start = 0, 0.0
        """The step and the seconds from which the speed is measured: where this process began, or last went back."""
        self._seconds = 0.0
        self.step = 0
        """The last step that was heard of."""

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        self._downloads.__exit__()
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        self._console.print(visible(line), markup=False)

    def show(self, event: "Event") -> None:
        from seq2see.api import Began, Said

        match event:
            case Said():
                self.say(event.line)
            case Fetching():
                self._downloads(event)
            case Began():
                self._settings = event.settings
                self._last_line = time.monotonic() - QUIET_SECONDS
                self.step = event.step
                self._start = event.step, event.seconds
                for line in _opening(event):
                    self.say(line)
                if self._console.is_terminal:
                    self._start_bar(event)
            case Stepped():
                self._stepped(event)
            case Trained():
                self._trained(event)
            case Shrunk():
                smaller = f"passes of {event.micro_tokens:,} tokens from here on"
                self.say(f"step {event.step:>7,}  memory is used up: {smaller}; updates stay the same")
            case Returned():
                self.step = event.step
                self._start = event.step, self._seconds
                failed = f"{event.updates} updates in a row were not finite"
                slower = f"at 1/{2**event.slowed} of the rate"
                self.say(f"step {event.failed_at:>7,}  {failed}: back to step {event.step:,}, {slower}")
            case Validated():
                self.step = event.step
                scores = "  ".join(f"{name} {_number(value)}" for name, value in event.scores.items())
                what = "" if event.what == "model" else f"  ({event.what})"
                self.say(f"step {event.step:>7,}  validation {scores}{'  best' if event.best else ''}{what}")
            case Finished():
                from seq2see.session.finish import in_words

                self.step = event.step
                if self._bar:
                    self._bar.stop()
                    self._bar = None
                if event.reason != INTERRUPTED:
                    self.say(f"done: {event.reason}, {in_words(event.seconds)}")

    def _trained(self, event: Trained) -> None:
        skipped = f"{event.skipped} skipped, not finite  " if event.skipped else ""
        self._numbers = (
            f"loss {event.loss:.3f}  {skipped}rate {event.rate:.1e}  {event.tokens_per_second:,.0f} tokens/s  "
        )
        self._tell(event)

    def _stepped(self, event: Stepped) -> None:
        self.step, self._seconds = event.step, event.seconds
        if self._bar is not None or time.monotonic() - self._last_line > 3 * QUIET_SECONDS:
            self._tell(event)

    def _tell(self, event: Stepped | Trained) -> None:
        """On the bar at every step; as a line every few seconds."""
        assert self._settings is not None
        numbers = f"{self._numbers}{_time_left(event, self._settings, *self._start)} left"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=event.step, numbers=numbers)
        elif time.monotonic() - self._last_line > QUIET_SECONDS:
            self._last_line = time.monotonic()
            self.say(f"step {event.step:>7,}  {numbers}")

    def _start_bar(self, event: Any) -> None:
        self._bar = Progress(
            TextColumn("step {task.completed:,}/{task.total:,}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[numbers]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=event.settings.training.max_steps, completed=event.step, numbers="")
        self._bar.start()


def _opening(event: Any) -> list[str]:
    dropped = "".join(f", {count:,} dropped ({why.replace('_', ' ')})" for why, count in event.dropped.items() if count)
    lines = [f"data      {event.pairs:,} pairs, {event.validation_pairs:,} for validation{dropped}"]
    tags = event.settings.data.tags
    if any(event.languages) or tags:
        targets = ", ".join(tags.split()) or event.languages.target or "?"
        lines.append(f"languages {event.languages.source or '?'} -> {targets}{', by tag' if tags else ''}")
    lines += table(event.choices)
    if event.step:
        lines.append(f"resuming  after step {event.step:,}")
    return lines


VALUE_WIDTH, WHY_WIDTH = 50, 39
"""With the names before them, 100 columns."""


def table(choices: "list[Choice]") -> list[str]:
    """Name, value, and why or by whom, in columns; what does not fit in a cell goes on below."""
    lines = []
    for choice in choices:
        own = ", ".join(key.partition(".")[2] for key in choice.yours)
        why = "yours" if len(choice.yours) == len(choice.settings) else f"yours: {own}" if own else choice.why
        cells = [choice.name], textwrap.wrap(choice.value, VALUE_WIDTH), textwrap.wrap(why, WHY_WIDTH)
        for name, value, reason in zip_longest(*cells, fillvalue=""):
            lines.append(f"{name:<9} {value:<{VALUE_WIDTH}} {reason}".rstrip())
    return lines


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _time_left(event: Stepped | Trained, settings: "Settings", first: int, began: float) -> str:
    """Return the time until the last step at the speed since step `first`; early stopping may end training before.

    Args:
        first: The step that this process began with: an earlier one may have run on another machine.
        began: The training time in seconds up to that step.
    """
    training = settings.training
    seconds = (event.seconds - began) / max(1, event.step - first) * (training.max_steps - event.step)
    if training.max_minutes:
        seconds = min(seconds, 60 * training.max_minutes - event.seconds)
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
