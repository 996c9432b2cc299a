"""What the training loop reports."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stepped:
    """One update happened."""

    step: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """Some updates happened: means over them, of a token."""

    step: int
    epoch: int
    loss: float
    """Cross entropy as validation measures it."""
    smoothed_loss: float
    """The same with label smoothing: what the gradient is of."""
    gradient_norm: float
    rate: float
    tokens_per_second: float
    seconds: float
    skipped: int = 0
    """Updates that were not made, since loss or gradient was not finite."""


@dataclass(frozen=True)
class Shrunk:
    """Memory ran out in update `step`: it is made anew, and all others, in smaller passes."""

    step: int
    micro_tokens: int


@dataclass(frozen=True)
class Returned:
    """Updates failed one after the other: training goes on after an earlier `step`, at half the rate."""

    step: int
    failed_at: int
    updates: int
    """Skipped in a row."""
    slowed: int
    """How often it was halved by now."""


@dataclass(frozen=True)
class Validated:
    """The model was measured and saved."""

    step: int
    scores: dict[str, float]
    best: bool
    what: str = "model"


@dataclass(frozen=True)
class Finished:
    """No more updates, and why."""

    step: int
    reason: str
    seconds: float


INTERRUPTED = "interrupted"
"""The reason of a training that a signal has ended."""
Event = Stepped | Trained | Shrunk | Returned | Validated | Finished
