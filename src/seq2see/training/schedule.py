"""The learning rate over time (Vaswani et al., 2017, section 5.3)."""

import math

from seq2see.config import Training

KNOWN_SPEED = 0.1
"""Share of `training.max_minutes` from which it is known whether the minutes end a training before its steps do. A
limit that is far away must not change the learning rate because the first updates are slow.
"""
WARM_UP_SHARE = 1 / 6
"""Minimum of `warm_up_share`; the suggested warm-up takes at most this share of the steps."""


def noam(step: int, d_model: int, warmup_steps: int) -> float:
    """Return the learning rate d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) of update `step`.

    This is equation 3 of Vaswani et al. (2017).

    >>> f"{noam(4000, 512, 4000):.5e}"
    '6.98771e-04'
    """
    step = max(step, 1)
    return 1 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / (warmup_steps * math.sqrt(warmup_steps)))


def warm_up_share(max_steps: int, warmup_steps: int) -> float:
    """Return the share of `training.max_minutes` after which the warm-up is over, if the minutes end the training."""
    return max(WARM_UP_SHARE, warmup_steps / max_steps)  # never before the steps alone would end it


def is_warmed_up(step: int, seconds: float, training: Training) -> bool:
    """Return whether the warm-up is over at update `step`, after so many seconds of training."""
    share = seconds / (60 * training.max_minutes) if training.max_minutes else 0.0
    risen = warmed_up(
        step,
        schedule=training.schedule,
        warmup_steps=training.warmup_steps,
        max_steps=training.max_steps,
        time_share=share,
    )
    return risen >= 1


def warmed_up(step: int, *, schedule: str, warmup_steps: int, max_steps: int, time_share: float = 0.0) -> float:
    """Return which share of its peak the learning rate has reached by warm-up at update `step`: 1 at the end of it.

    If the time will be over before the steps are done, the warm-up also ends by time: it would take a large part of the
    training otherwise, or all of it. The schedule "noam" follows the steps alone.
    """
    risen = step / warmup_steps
    if schedule == "cosine" and _is_short_of_time(step, max_steps, time_share):
        rising = warm_up_share(max_steps, warmup_steps) - KNOWN_SPEED
        risen = max(risen, (time_share - KNOWN_SPEED) / rising)
    return min(1.0, risen)


def _is_short_of_time(step: int, max_steps: int, time_share: float) -> bool:
    """Return whether the time of a training will be over before its steps are done, as far as that is known."""
    return time_share >= KNOWN_SPEED and time_share * max_steps > step


def rate(
    step: int, *, schedule: str, peak: float, d_model: int, warmup_steps: int, max_steps: int, time_share: float = 0.0
) -> float:
    """Return the learning rate of update `step`, counted from 1.

    It rises to `peak` at the end of warm-up (`warmed_up`). Then it falls with the inverse square root of the step if
    `schedule` is "noam", and along a cosine to 0 at `max_steps` otherwise. If `peak` is 0, the peak is that of the
    function `noam`, which the schedule "noam" then equals.

    Args:
        time_share: The share of `training.max_minutes` that has passed. From `KNOWN_SPEED` on, if the time will be over
            before the steps are done, this share is the place on the cosine, so that the rate is 0 at the end, and the
            warm-up ends by time, too.
    """
    peak = peak or noam(warmup_steps, d_model, warmup_steps)
    if schedule == "noam":
        return peak * min(step / warmup_steps, math.sqrt(warmup_steps / step))
    done = max(0.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    if _is_short_of_time(step, max_steps, time_share):
        done = time_share
    risen = warmed_up(step, schedule=schedule, warmup_steps=warmup_steps, max_steps=max_steps, time_share=time_share)
    return peak * risen * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
