"""The learning rate over time (Vaswani et al., 2017, section 5.3)."""

import math


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
        time_share: The share of `training.max_minutes` that has passed. If it is larger than the share of the steps,
            it is the place on the cosine, so that the rate is 0 when the time is over, however many steps fit into it.
    """
    peak = peak or noam(warmup_steps, d_model, warmup_steps)
    if schedule == "noam" and step > warmup_steps:
        return peak * math.sqrt(warmup_steps / step)
    risen = peak * step / warmup_steps if step <= warmup_steps else peak
    done = max(time_share, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    return risen if schedule == "noam" else risen * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, done))))
