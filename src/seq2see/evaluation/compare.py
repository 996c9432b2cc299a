"""Whether one system is better than another, or only luckier with these sentences: the paired bootstrap.

The test set is drawn anew a thousand times, items with replacement (Koehn, 2004), and both systems are scored on each
draw, from the sums of their counts. Where a side is one system trained with several seeds, its runs are drawn anew as
well, so that a lucky seed is not taken for a better system, and the means are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seq2see.evaluation.metrics import Scores, higher_is_better

Verdict = Literal["better", "worse", "no clear difference", "too few pairs"]
RESAMPLES = 1000
SEED = 12345
"""sacreBLEU's: its paired bootstrap draws the same items."""
FEWEST = 20
"""Pairs below which there is no verdict: a handful that happens to agree looks like certainty to a bootstrap."""


@dataclass(frozen=True)
class Difference:
    """One score of two sides, each the mean of its runs, and how sure their difference is."""

    name: str
    ours: float
    theirs: float
    difference: float
    """Ours less theirs."""
    low: float
    """The 95 % interval of the difference, from here..."""
    high: float
    """...to here."""
    p: float
    """How often chance alone would lead so far to either side; below 0.05 exactly where the interval leaves out 0."""
    verdict: Verdict
    """What the interval says about ours, whichever way is up."""


def paired_bootstrap(ours: Sequence[Scores], theirs: Sequence[Scores]) -> list[Difference]:
    """Compare two sides, each one or several runs of one system, all scored on the same items with the same scores."""
    ours_RKM, theirs_RKM = _resample(ours, theirs)
    differences_RM = np.sort(_means(ours_RKM, SEED + 1) - _means(theirs_RKM, SEED + 2), axis=0)
    outside = (RESAMPLES + 1) // 40  # one of forty on either side of the interval
    found = []
    for number, score in enumerate(ours[0]):
        one, other = (float(np.mean([scores[score.name].value for scores in side])) for side in (ours, theirs))
        differences_R = differences_RM[:, number]
        low, high = float(differences_R[outside - 1]), float(differences_R[-outside])
        fewer = min(np.sum(differences_R <= 0), np.sum(differences_R >= 0))
        p = min(1.0, 2 * (int(fewer) + 1) / (RESAMPLES + 1))
        verdict = _verdict(low, high, higher_is_better(score.name), len(score.counts))
        found.append(Difference(score.name, one, other, one - other, low, high, p, verdict))
    return found


def _resample(ours: Sequence[Scores], theirs: Sequence[Scores]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Every score (M) of every run (K) of either side on every draw of the items (R)."""
    everything = [[*scores] for scores in (*ours, *theirs)]
    counts_NC = np.hstack([np.array(score.counts, np.float64) for scores in everything for score in scores])
    items = len(counts_NC)
    dice = np.random.default_rng(SEED)
    sums_RC = np.empty((RESAMPLES, counts_NC.shape[1]))
    for sums_C in sums_RC:
        times_N = np.bincount(dice.integers(items, size=items), minlength=items)
        sums_C[:] = times_N @ counts_NC
    values_RKM = np.empty((RESAMPLES, len(everything), len(everything[0])))
    first = 0
    for run, scores in enumerate(everything):
        for number, score in enumerate(scores):
            last = first + len(score.counts[0])
            values_RKM[:, run, number] = [score.of_sums(sums) for sums in sums_RC[:, first:last].tolist()]
            first = last
    return values_RKM[:, : len(ours)], values_RKM[:, len(ours) :]


def _means(values_RKM: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """RM: the mean over as many runs as there are, drawn anew each time."""
    R, K, _ = values_RKM.shape
    drawn_RK = np.random.default_rng(seed).integers(K, size=(R, K))
    means_RM: NDArray[np.float64] = np.take_along_axis(values_RKM, drawn_RK[:, :, None], 1).mean(1)
    return means_RM


def _verdict(low: float, high: float, higher_is_better: bool, pairs: int) -> Verdict:
    if pairs < FEWEST:
        return "too few pairs"
    if low <= 0 <= high:
        return "no clear difference"
    return "better" if (low > 0) == higher_is_better else "worse"
