"""The learning rate over time (Vaswani et al., 2017, section 5.3)."""

import math

KNOWN_SPEED = 0.1
"""Share of `training.max_minutes` from which it is known whether the minutes end a training before its steps do. A
limit that is far away must not change the learning rate because the first updates are slow.
"""


def noam(step: int, d_model: int, warmup_steps: int) -> float:
    """Return the learning rate d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) of update `step`.

    This is equation 3 of Vaswani et al. (2017).

    >>> f"{noam(4000, 512, 4000):.5e}"
    '6.98771e-04'
    """
    step = max(step, 1)
    return 1 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / (warmup_steps * math.sqrt(warmup_steps)))


def rate(
    step: int, *, schedule: str, peak: float, d_model: int, warmup_steps: int, max_steps: int, time_share: float = 0.0
) -> float:
    """Return the learning rate of update `step`, counted from 1.

    It rises linearly to `peak` at the end of warm-up. Then it falls with the inverse square root of the step if
    `schedule` is "noam", and along a cosine to 0 at `max_steps` otherwise. If `peak` is 0, the peak is that of the
    function `noam`, which the schedule "noam" then equals.

    Args:
        time_share: The share of `training.max_minutes` that has passed. From `KNOWN_SPEED` on, if the time will be over
            before the steps are done, this share is the place on the cosine, so that the rate is 0 at the end.
    """
    peak = peak or noam(warmup_steps, d_model, warmup_steps)
    risen = peak * min(1.0, step / warmup_steps)
    if schedule == "noam":
        return risen if step <= warmup_steps else peak * math.sqrt(warmup_steps / step)
    done = max(0.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    if time_share >= KNOWN_SPEED and time_share * max_steps > step:
        done = time_share
    return risen * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
