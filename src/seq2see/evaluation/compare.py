"""Decide whether one system is better than another, and state what a comparison of a few runs can show.

A score varies because the test sentences are a sample, and so is the seed of each run:

- **One run on a side**: `paired_bootstrap` resamples the sentences (Koehn, 2004). It shows whether *these models*
  differ on text of this kind, and gives no verdict on the systems that the models were trained by.
- **Several runs on each side**: `compare_systems` treats runs and sentences as random, and its verdict is about the
  *systems*: architecture, data and settings, apart from the seed. The verdict needs two tests at 5 %: a permutation
  test of the scores of the runs, exact for up to `MOST_ASSIGNMENTS` assignments of runs to sides and otherwise with a
  sample of them, and Welch's t-test with the variance over sentences added.

docs/comparing.md has the reasons, and the error rates that `python -m bench.comparisons` simulates.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seq2see.config import LOWER_IS_BETTER
from seq2see.display import notebook
from seq2see.display.wording import translated
from seq2see.evaluation.metrics import Scores

Verdict = Literal["better", "worse", "no clear difference", "too few pairs", "too few runs"]
Floats = NDArray[np.float64]
RESAMPLES = 1000
SEED = 12345
"""Seed of the bootstrap resampling, the same as in sacreBLEU, so that its paired bootstrap draws the same sentences;
also of the sample of assignments in a permutation test.
"""
FEWEST = 20
"""Minimum number of scored pairs for a verdict; with fewer, the verdict is `too few pairs`, since chance agreement of a
few pairs would look certain.
"""
LEVEL = 0.05
"""Significance level: share of comparisons of equal systems that may end with "better" or "worse", for each score."""
POWER = 0.8
ENOUGH_RUNS = 4
"""Number of runs of each system that `explain` recommends: the smallest number, if it is the same on both sides, for
which the p-value of a permutation test can be at most `LEVEL`.
"""
MOST_ASSIGNMENTS = 20_000
"""Maximum number of assignments of runs to sides in a permutation test; if there are more, this many are sampled."""


@dataclass(frozen=True)
class Difference:
    """One score of two sides, each the mean of its runs, and the uncertainty of their difference."""

    name: str
    ours: float
    theirs: float
    difference: float
    """Mean score of our runs minus the mean score of the runs that they are compared with."""
    low: float
    """Lower end of the 95 % confidence interval of the difference."""
    high: float
    """Upper end of the 95 % confidence interval of the difference."""
    p: float
    """Two-sided p-value. With enough runs for a verdict, and for the paired bootstrap, it is at most 0.05 exactly if
    the interval excludes 0.
    """
    verdict: Verdict
    """Whether our system is better; "too few runs" or "too few pairs" (see `FEWEST`) if these allow no answer."""
    models: Verdict | None
    """Whether these particular trained models, not systems with other seeds, are better on text of this kind; None
    unless a side has only one run.
    """
    detectable: float | None
    """The true difference, of the systems or of the models, that such a comparison finds with a probability of 80 %;
    None if there are too few runs or pairs to find any.
    """


def compare(ours: Sequence[Scores], theirs: Sequence[Scores]) -> list[Difference]:
    """Compare two sides, each with one or several runs of one system, scored on the same pairs by the same metrics.

    They are compared by `paired_bootstrap` if a side has only one run, otherwise by `compare_systems`.
    """
    if min(len(ours), len(theirs)) == 1:
        return paired_bootstrap(ours, theirs)
    return compare_systems(ours, theirs)


def explain(ours: int, theirs: int) -> str:
    """Return a text that explains what a comparison of these numbers of runs means, and how often it errs."""
    advice = f"Train at least {ENOUGH_RUNS} runs of each system, with different values of training.seed."
    if min(ours, theirs) == 1:
        return (
            "One run on a side: this tells whether these models differ on text of this kind, not whether one system "
            f"(architecture, data and settings) is better than the other; other seeds may say the opposite. {advice} "
            f"Paired bootstrap: {RESAMPLES:,} resamples of the sentences, seed {SEED}; of equal models it calls about "
            "5% different, up to 10% with fewer than 50 pairs."
        )
    if not enough_runs(ours, theirs):
        return (
            f"Too few runs for a verdict: with {ours} and {theirs} runs, p cannot be less than "
            f"{smallest_p(ours, theirs):.2g} in a permutation test. {advice} The interval is that of a t-test."
        )
    return (
        f"The verdict is about the systems, over seeds and sentences: {ours} and {theirs} runs. For each score, at "
        f"most {LEVEL:.0%} of comparisons of equal systems say better or worse. p is the larger of two: that "
        f"of a permutation test of the runs (exact for up to {MOST_ASSIGNMENTS:,} assignments of runs to sides, else "
        "with a sample of them) and that of Welch's t-test over runs and sentences. Detectable: the true difference "
        f"that would be found in {POWER:.0%} of such comparisons."
    )


def enough_runs(ours: int, theirs: int) -> bool:
    """Return whether these numbers of runs allow a verdict: each side has at least two, and p can be as low as 5 %."""
    return min(ours, theirs) > 1 and smallest_p(ours, theirs) <= LEVEL


def smallest_p(ours: int, theirs: int) -> float:
    """Return the smallest possible two-sided p-value of a permutation test with these numbers of runs.

    With equal numbers of runs, the assignment with the sides exchanged is always as extreme as the actual one.
    """
    return (2 if ours == theirs else 1) / math.comb(ours + theirs, ours)


class Differences(list[Difference]):
    """The differences of all scores, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [
            [each.name, each.ours, each.theirs, f"{each.difference:+.2f}", f"{each.low:.2f} to {each.high:.2f}"]
            for each in self
        ]
        for row, each in zip(rows, self, strict=True):
            row += [f"{each.p:.3f}", translated(each.verdict)]
        return notebook.table("A - B", ("score", "A", "B", "A - B", "95 % interval", "p", ""), rows)


def paired_bootstrap(ours: Sequence[Scores], theirs: Sequence[Scores]) -> "Differences":
    """Compare these models, or the means of the models of each side, by resampling the sentences only."""
    ours_RKM, theirs_RKM = _resample(ours, theirs)
    differences_RM = np.sort(ours_RKM.mean(1) - theirs_RKM.mean(1), axis=0)
    outside = (RESAMPLES + 1) // 40  # one of forty on either side of the interval
    found = Differences()
    for number, score in enumerate(ours[0]):
        one, other = (float(np.mean([scores[score.name].value for scores in side])) for side in (ours, theirs))
        differences_R = differences_RM[:, number]
        low, high = float(differences_R[outside - 1]), float(differences_R[-outside])
        fewer = min(np.sum(differences_R <= 0), np.sum(differences_R >= 0))
        p = min(1.0, 2 * (int(fewer) + 1) / (RESAMPLES + 1))
        models = _verdict(low, high, score.name, len(score.counts))
        verdict: Verdict = "too few runs"
        detectable: float | None = float(differences_R.std()) * sum(map(NormalDist().inv_cdf, (1 - LEVEL / 2, POWER)))
        if models == "too few pairs":
            verdict, detectable = models, None
        found.append(Difference(score.name, one, other, one - other, low, high, p, verdict, models, detectable))
    return found


def compare_systems(ours: Sequence[Scores], theirs: Sequence[Scores]) -> "Differences":
    """Compare two systems by at least two runs of each, with runs and sentences both treated as random.

    If there are too few runs for a verdict, the interval is that of the t-test alone.
    """
    ours_RKM, theirs_RKM = _resample(ours, theirs)
    enough = enough_runs(len(ours), len(theirs))
    found = Differences()
    for number, score in enumerate(ours[0]):
        ours_K, theirs_K = (np.array([scores[score.name].value for scores in side]) for side in (ours, theirs))
        resampled = ours_RKM[:, :, number], theirs_RKM[:, :, number]
        error, freedom = _standard_error(ours_K, theirs_K, *resampled, len(score.counts))
        student = _Student(freedom)
        difference = float(ours_K.mean() - theirs_K.mean())
        p, below, above = permutation_test(ours_K, theirs_K)
        p = max(p, student.p(difference / error) if error else float(difference == 0))
        if not enough:
            below = above = 0.0
        margin = student.quantile(1 - LEVEL / 2) * error
        low, high = difference - max(below, margin), difference + max(above, margin)
        verdict = _verdict(low, high, score.name, len(score.counts))
        detectable: float | None = (high - low) / 2 + student.quantile(POWER) * error
        if verdict != "too few pairs" and not enough:
            verdict = "too few runs"
        if verdict in ("too few pairs", "too few runs"):
            detectable = None
        means = float(ours_K.mean()), float(theirs_K.mean())
        found.append(Difference(score.name, *means, difference, low, high, p, verdict, None, detectable))
    return found


def _resample(ours: Sequence[Scores], theirs: Sequence[Scores]) -> tuple[Floats, Floats]:
    """Return, for each side, the M scores of each of its K runs on each of R resamples of the sentences (RKM)."""
    everything = [[*scores] for scores in (*ours, *theirs)]
    counts_NC = np.hstack([np.array(score.counts, np.float64) for scores in everything for score in scores])
    items = len(counts_NC)
    generator = np.random.default_rng(SEED)
    sums_RC = np.empty((RESAMPLES, counts_NC.shape[1]))
    for sums_C in sums_RC:
        times_N = np.bincount(generator.integers(items, size=items), minlength=items)
        sums_C[:] = times_N @ counts_NC
    values_RKM = np.empty((RESAMPLES, len(everything), len(everything[0])))
    first = 0
    for run, scores in enumerate(everything):
        for number, score in enumerate(scores):
            last = first + len(score.counts[0])
            values_RKM[:, run, number] = [score.of_sums(sums) for sums in sums_RC[:, first:last].tolist()]
            first = last
    return values_RKM[:, : len(ours)], values_RKM[:, len(ours) :]


def _standard_error(
    ours_K: Floats, theirs_K: Floats, ours_RK: Floats, theirs_RK: Floats, sentences: int
) -> tuple[float, float]:
    """Return the standard error of the difference of means, over new runs and sentences, and its degrees of freedom.

    The variance between the runs of a side already contains how differently they do on single sentences. The variance
    over sentences that all runs of a system share must be added: the part of the variance of the resampled difference
    that would remain with infinitely many runs. The sum is never less than the variance of the resampled difference, so
    runs that happen to have equal scores are not taken for runs without variance.
    """
    over_runs = [float(side_K.var(ddof=1)) / len(side_K) for side_K in (ours_K, theirs_K)]
    over_sentences = float((ours_RK.mean(1) - theirs_RK.mean(1)).var())
    own = 0.0
    for side_RK in (ours_RK, theirs_RK):
        runs = side_RK.shape[1]
        own += float((side_RK - side_RK.mean(1, keepdims=True)).var(0).sum()) / (runs - 1) / runs
    variance = max(sum(over_runs) + max(0.0, over_sentences - own), over_sentences)
    if not variance:
        return 0.0, 1.0
    parts = [*zip(over_runs, (len(ours_K) - 1, len(theirs_K) - 1), strict=True)]
    parts.append((variance - sum(over_runs), max(1, sentences - 1)))
    return math.sqrt(variance), variance**2 / sum(part**2 / freedom for part, freedom in parts)


def permutation_test(ours_K: Floats, theirs_K: Floats) -> tuple[float, float, float]:
    """Return p of a permutation test of runs, and the extent of its 95 % interval below and above the difference.

    The interval has all shifts d that the test does not reject after d is subtracted from our scores. The difference of
    an assignment of runs to sides is then `difference - d * share`, where `share` is the share of our own runs among
    those assigned to our side, minus their share among those assigned to the other side. While d moves away from the
    actual difference, each assignment is at least as extreme as the actual one up to a bound that is solved for here.
    The extents are infinite if there are too few runs for p to reach 5 %.
    """
    runs_K = np.concatenate([ours_K, theirs_K])
    is_ours_AK = _assignments(len(ours_K), len(theirs_K))
    sign_AK = np.where(is_ours_AK, 1 / len(ours_K), -1 / len(theirs_K))
    differences_A, share_A = sign_AK @ runs_K, sign_AK[:, : len(ours_K)].sum(1)
    actual = differences_A[0]
    slack = 1e-9 * (np.abs(runs_K).max() + 1e-300)  # sums in another order are equal
    p = float(np.mean(np.abs(differences_A) >= abs(actual) - slack))
    rest_A = differences_A - actual * share_A
    rest_A[np.abs(rest_A) < slack] = 0.0
    reaches = []
    for rest in (-rest_A, rest_A):
        with np.errstate(divide="ignore", invalid="ignore"):
            reach_A = np.maximum(rest / (1 + share_A), -rest / (1 - share_A))
        reach_A[np.abs(share_A) > 1 - 1e-9] = math.inf  # the actual assignment, and that with the sides exchanged
        rejected = int(LEVEL * len(reach_A) + 1e-9)  # so many of all assignments may remain as extreme
        reaches.append(float(np.sort(reach_A)[::-1][rejected]))
    return p, reaches[0], reaches[1]


def _assignments(ours: int, theirs: int) -> NDArray[np.bool_]:
    """Return a mask of the runs on our side for each assignment: first the actual one, then all others or a sample."""
    runs = ours + theirs
    if math.comb(runs, ours) <= MOST_ASSIGNMENTS:
        chosen_AO = np.array([*itertools.combinations(range(runs), ours)])
    else:
        generator = np.random.default_rng(SEED)
        chosen_AO = generator.permuted(np.tile(np.arange(runs), (MOST_ASSIGNMENTS, 1)), axis=1)[:, :ours]
        chosen_AO[0] = np.arange(ours)
    is_ours_AK = np.zeros((len(chosen_AO), runs), np.bool_)
    np.put_along_axis(is_ours_AK, chosen_AO, True, 1)
    return is_ours_AK


class _Student:
    """Student's t distribution by numerical integration; t = sqrt(freedom) tan(angle), and the density is a power of a
    cosine.
    """

    def __init__(self, freedom: float) -> None:
        self.freedom = min(freedom, 1000.0)  # from there on it is the normal distribution to three digits
        self.angles = np.linspace(0, math.pi / 2, 10_001)
        middle = (self.angles[:-1] + self.angles[1:]) / 2
        slices = np.cos(middle) ** (self.freedom - 1)
        tail = np.append(np.cumsum(slices[::-1])[::-1], 0.0)
        self.upper = tail / tail[0] / 2
        """Probability that t is larger than at each of `angles`."""

    def p(self, t: float) -> float:
        """Return the two-sided p-value of a value of t."""
        return 2 * float(np.interp(math.atan(abs(t) / math.sqrt(self.freedom)), self.angles, self.upper))

    def quantile(self, probability: float) -> float:
        """Return the quantile of t for a probability of at least one half."""
        angle = float(np.interp(1 - probability, self.upper[::-1], self.angles[::-1]))
        return math.sqrt(self.freedom) * math.tan(angle)


def _verdict(low: float, high: float, name: str, pairs: int) -> Verdict:
    if pairs < FEWEST:
        return "too few pairs"
    if low <= 0 <= high:
        return "no clear difference"
    return "better" if (low > 0) == (name not in LOWER_IS_BETTER) else "worse"
