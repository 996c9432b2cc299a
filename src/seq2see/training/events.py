"""Events that the training loop yields."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stepped:
    """One update was made."""

    step: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """Means per token over the updates since the last such event."""

    step: int
    epoch: int
    loss: float
    """Mean cross entropy per token in nats, without label smoothing, as validation measures it."""
    smoothed_loss: float
    """Mean cross entropy per token in nats, with label smoothing, which training minimises."""
    gradient_norm: float
    rate: float
    tokens_per_second: float
    seconds: float
    skipped: int = 0
    """Number of updates since the last such event that were skipped because loss or gradient was not finite."""


@dataclass(frozen=True)
class Shrunk:
    """Memory ran out in update `step`: it is repeated in smaller micro-batches, which later updates use as well."""

    step: int
    micro_tokens: int


@dataclass(frozen=True)
class Returned:
    """Consecutive updates were not finite: training resumes after an earlier `step`, at half the learning rate."""

    step: int
    failed_at: int
    updates: int
    """Number of consecutive updates that were skipped before the return to the checkpoint."""
    slowed: int
    """Number of times that the learning rate has been halved so far, including this time."""


@dataclass(frozen=True)
class ThreadsChanged:
    """The number of threads was changed after update `step`, because of the load of other programs; results
    stay equal.
    """

    step: int
    threads: int
    reason: str


@dataclass(frozen=True)
class Validated:
    """The model was validated and saved."""

    step: int
    scores: dict[str, float]
    best: bool
    what: str = "model"
    seconds: float = field(default=0.0, compare=False)
    """Seconds that the validation took."""


@dataclass(frozen=True)
class Finished:
    """Training has ended."""

    step: int
    reason: str
    seconds: float


INTERRUPTED = "interrupted"
"""Value of `Finished.reason` if a signal has ended the training."""
Event = Stepped | Trained | Shrunk | Returned | ThreadsChanged | Validated | Finished
