"""Events that the training loop yields."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stepped:
    """One update was made, or skipped because loss or gradient was not finite."""

    step: int
    seconds: float
    """Seconds that training and validation have taken so far, including those before a resume."""


@dataclass(frozen=True)
class Trained:
    """A row of the log: mean losses and throughput since the last `Trained`, and facts about the latest update.

    `gradient_norm` (before clipping) and the learning rate `rate` are those of update `step`; `epoch` counts from 0.
    """

    step: int
    epoch: int
    loss: float
    """Mean cross entropy per target token in nats, without label smoothing."""
    smoothed_loss: float
    """Mean loss per target token in nats that training minimises: cross entropy with label smoothing and, if they are
    used, the losses of R-Drop and guided alignment.
    """
    gradient_norm: float
    rate: float
    tokens_per_second: float
    seconds: float
    skipped: int = 0
    """Number of updates since the last `Trained` that were skipped because loss or gradient was not finite."""


@dataclass(frozen=True)
class Shrunk:
    """Memory ran out in update `step`: it is repeated, and all later ones are made, in micro-batches of at most
    `micro_tokens` tokens.
    """

    step: int
    micro_tokens: int


@dataclass(frozen=True)
class Returned:
    """Loss or gradient of consecutive updates up to `failed_at` was not finite: training resumes from the checkpoint of
    an earlier `step`, at half the learning rate.
    """

    step: int
    failed_at: int
    updates: int
    """Number of consecutive updates that were skipped before the return to the checkpoint."""
    slowed: int
    """Number of times that the learning rate has been halved so far, including this time."""


@dataclass(frozen=True)
class ThreadsChanged:
    """The number of CPU threads was changed after update `step`, because of the load of other programs; this does not
    change results.
    """

    step: int
    threads: int
    reason: str


@dataclass(frozen=True)
class Validated:
    """The model, or an average of checkpoints, was validated."""

    step: int
    scores: dict[str, float]
    best: bool
    """Whether the validated weights were saved as the model of the run: their scores are the best so far or, for an
    average of checkpoints, about as good.
    """
    what: str = "model"
    """The weights that were validated: `model`, or a text such as `average of the last 5 checkpoints`."""
    seconds: float = field(default=0.0, compare=False)
    """Seconds that the validation took."""


@dataclass(frozen=True)
class Finished:
    """Training has ended after update `step`, because a limit was reached or a stop was requested (`reason`)."""

    step: int
    reason: str
    seconds: float


INTERRUPTED = "interrupted"
"""Value of `Finished.reason` if a stop was requested, such as by a signal."""
Event = Stepped | Trained | Shrunk | Returned | ThreadsChanged | Validated | Finished
