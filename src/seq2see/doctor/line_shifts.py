"""Find where two sides are shifted against each other: the source of each line fits the target of another line better.

The lengths of translations correlate, and their digits and punctuation are the same. In each window of rows, the
similarity of source i and target i + lag is compared with that of source i and target i. Sides without any such
similarity (questions and answers) are dissimilar at every lag, so no shift is reported.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 250
FEWEST: Final = 100
"""Minimum number of rows of a corpus, and of a window, in which shifted lines are looked for; with fewer, an apparent
shift could be due to chance.
"""
LAGS: Final = (1, -1, 2, -2, 3, -3, 4, -4, 5, -5)
UNSURE: Final = 99
_GROUP: Final = 200
"""Number of windows that are compared at a time, which bounds memory."""
_SURE: Final = 6.0
"""Number of standard errors by which another lag must fit a window better than lag 0: so many that no window of a large
corpus exceeds it by chance.
"""
_CLEAR: Final = 0.25
"""Minimum by which the mean similarity of sources and targets must be higher at another lag than at lag 0 for a window
to count as shifted; 1 is the similarity of sides whose lengths correlate perfectly.
"""
_POPULATION: Final = np.array([byte.bit_count() for byte in range(256)], np.int16)


class SideNumbers(NamedTuple):
    """Measures of each text of a side; see `characters.TextMeasures`."""

    length: NDArray[Any]
    digits: NDArray[np.uint16]
    signs: NDArray[np.uint8]

    def at(self, rows: NDArray[np.int64]) -> "SideNumbers":
        return SideNumbers(self.length[rows], self.digits[rows], self.signs[rows])


class Shift(NamedTuple):
    """Rows from `start` to `end` (exclusive) whose targets are `lag` rows further down (up, if negative)."""

    start: int
    end: int
    lag: int


def shifts(source: SideNumbers, target: SideNumbers) -> list[Shift]:
    """Return the shifted ranges in order; empty if there are none, or if they cannot be determined."""
    rows = len(source.length)
    if rows < FEWEST:
        return []
    # A short window finds a short range; in a small corpus only a longer one may be sure enough.
    widths = dict.fromkeys((min(WINDOW, max(FEWEST, rows // 3)), min(WINDOW, rows)))
    return next(filter(None, (_shifts(source, target, width) for width in widths)), [])


def _shifts(source: SideNumbers, target: SideNumbers, width: int) -> list[Shift]:
    """Return the shifted ranges that windows of this number of rows show."""
    rows = len(source.length)
    starts = np.unique(np.append(np.arange(0, rows - width + 1, width), rows - width))
    lags = np.concatenate(
        [_lags(source, target, starts[first : first + _GROUP], width) for first in range(0, len(starts), _GROUP)]
    )
    found: list[Shift] = []
    before = surely = 0
    for start, after in zip(starts.tolist(), lags.tolist(), strict=True):
        if after == UNSURE:
            continue
        if after != before:
            edge = _edge(source, target, surely, start + width, before, after)
            if before:
                found[-1] = found[-1]._replace(end=edge)
            if after:
                found.append(Shift(edge, rows, after))
        before, surely = after, start
    return found


def _lags(source: SideNumbers, target: SideNumbers, starts: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Return the lag of each window: 0 if that fits best, another lag if it fits significantly better, else UNSURE."""
    rows = starts[:, None] + np.arange(width)
    here = source.at(rows)
    level = _likeness(here, target, rows, 0)
    gains = np.zeros((len(LAGS), len(starts)))
    sure = np.zeros((len(LAGS), len(starts)), np.bool_)
    for number, lag in enumerate(LAGS):
        difference = _likeness(here, target, rows, lag) - level
        gains[number] = difference.mean(axis=1)
        sure[number] = gains[number] > _SURE * difference.std(axis=1) / np.sqrt(width)
        sure[number] &= ~_repeats(here, target, rows, lag)
    best = gains.argmax(axis=0)
    every = np.arange(len(starts))
    gain = gains[best, every]
    second = np.sort(gains, axis=0)[-2]  # nearly as good where, say, long and short texts alternate
    shifted = sure[best, every] & (gain > _CLEAR) & (second < 0.7 * gain)
    return np.where(shifted, np.array(LAGS)[best], np.where(gain < 0, 0, UNSURE))


def _likeness(here: SideNumbers, target: SideNumbers, rows: NDArray[np.int64], lag: int) -> NDArray[np.float64]:
    """Return how similar each source is, by length, digits and punctuation, to the target `lag` rows below."""
    there = target.at(np.clip(rows + lag, 0, len(target.length) - 1))
    same_digits = (here.digits == there.digits) & (here.digits > 0)
    common = _POPULATION[here.signs & there.signs] - 0.5 * _POPULATION[here.signs ^ there.signs]
    return np.asarray(_standard(here.length) * _standard(there.length) + same_digits + 0.5 * common)


def _standard(lengths: NDArray[Any]) -> NDArray[np.float64]:
    """Return the logarithms of lengths, standardised in each window (mean 0, deviation 1) and clipped at 3."""
    logs = np.log1p(lengths.astype(np.float64))
    logs -= logs.mean(axis=1, keepdims=True)
    return np.asarray(np.clip(logs / np.maximum(logs.std(axis=1, keepdims=True), 1e-6), -3, 3))


def _repeats(here: SideNumbers, target: SideNumbers, rows: NDArray[np.int64], lag: int) -> NDArray[np.bool_]:
    """Return for each window whether more than half of the sources have the same length, digits and punctuation as the
    target `lag` rows further down.

    Such a target is probably a copy (in a dialogue, a reply is the next source), not a shifted translation.
    """
    there = target.at(np.clip(rows + lag, 0, len(target.length) - 1))
    same = (here.length == there.length) & (here.digits == there.digits) & (here.signs == there.signs)
    return np.asarray(same.mean(axis=1) > 0.5)


def _edge(source: SideNumbers, target: SideNumbers, first: int, last: int, before: int, after: int) -> int:
    """Return the row between `first` and `last` at which the lag changes from `before` to `after`."""
    rows = np.arange(first, last)[None]
    here = source.at(rows)
    difference = (_likeness(here, target, rows, before) - _likeness(here, target, rows, after))[0]
    # Up to the edge the old lag fits better: the sum of the differences is highest there.
    return first + int(np.argmax(np.append(0, np.cumsum(difference))))
