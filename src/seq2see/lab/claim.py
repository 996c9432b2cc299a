"""A claim, the measurements for it, and its verdict, which follows from the numbers alone.

The decision rule: an expectation names the smallest effect that matters. Over the seeds, its number has a mean and a 95
% confidence interval. The effect is present if the interval excludes "no effect" and reaches the effect that matters;
it is absent if the interval excludes the effect that matters; if the interval contains both, nothing is decided.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from seq2see.display import notebook

Conditions = Mapping[str, Any]
"""Conditions of a trial by name, without the seed: strings, numbers, booleans. With the seed, they are its key on disk.
"""
Numbers = Mapping[str, float]
Verdict = Literal["held", "did not hold", "undecided", "not trusted"]

QUICK_SEEDS, FULL_SEEDS = 5, 8
"""Default number of seeds for each combination of conditions, with `--quick` and without it, for claims that set no
number of their own.
"""


@dataclass(frozen=True)
class Plan:
    """What the user chose for all claims: `--quick` (smaller trials, fewer seeds), a corpus, and the seeds."""

    quick: bool = False
    pairs: str = ""
    """Name or file of the corpus for the claim `comparison`; empty if the user gave none."""

    seeds: int | None = None
    """Number of seeds (`--seeds`) for all claims; None for the default of each claim."""
    first_seed: int = 1

    def seeds_of(self, claim: "Claim") -> range:
        """Return the seeds with which each combination of conditions of a claim is measured."""
        usual = (claim.quick_seeds or QUICK_SEEDS) if self.quick else (claim.full_seeds or FULL_SEEDS)
        return range(self.first_seed, self.first_seed + (self.seeds or usual))


def grid(**conditions: Any) -> list[dict[str, Any]]:
    """Return every combination of conditions, where a tuple lists several values of one; the last condition varies
    fastest.
    """
    choices = [value if isinstance(value, tuple) else (value,) for value in conditions.values()]
    return [dict(zip(conditions, chosen, strict=True)) for chosen in itertools.product(*choices)]


@dataclass(frozen=True)
class Trial:
    """One measurement to make: conditions and one seed; `trial["depth"]` returns the condition `depth`."""

    claim: str
    conditions: Conditions
    seed: int
    folder: Path
    """Path of a folder for the files of this trial alone, from which it is resumed after an interruption; the trial
    creates the folder if it needs one.
    """

    def __getitem__(self, condition: str) -> Any:
        return self.conditions[condition]


@dataclass(frozen=True)
class Measurement:
    """The numbers that one `Trial` measured, with its conditions and its seed."""

    conditions: Conditions
    seed: int
    numbers: Numbers

    def unfold(self, places: str) -> list["Measurement"]:
        """Split numbers such as `right@4` by the value after `@`, which becomes the condition named by `places`.

        Numbers without `@` are copied into each part. If no number has an `@`, the measurement is returned as it is.
        """
        found = dict.fromkeys(name.partition("@")[2] for name in self.numbers if "@" in name)
        if not found:
            return [self]
        everywhere = {name: value for name, value in self.numbers.items() if "@" not in name}
        unfolded = []
        for place in found:
            conditions = {**self.conditions, places: int(place) if place.isdecimal() else place}
            own = {name.partition("@")[0]: value for name, value in self.numbers.items() if name.endswith(f"@{place}")}
            unfolded.append(Measurement(conditions, self.seed, own | everywhere))
        return unfolded


class Measurements(list[Measurement]):
    """A list of measurements, from which conditions select some: `measured.get("loss", norm="post", depth=6)`."""

    def where(self, **conditions: Any) -> "Measurements":
        wanted = conditions.items()
        return Measurements(row for row in self if all(row.conditions.get(key) == value for key, value in wanted))

    def of_seed(self, seed: int) -> "Measurements":
        return Measurements(row for row in self if row.seed == seed)

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self})

    def values(self, condition: str) -> list[Any]:
        """Return the distinct values of a condition, in the order of the measurements."""
        return list(dict.fromkeys(row.conditions[condition] for row in self if condition in row.conditions))

    def parted(self, by: Sequence[str]) -> Iterator[tuple[Conditions, "Measurements"]]:
        """Yield each combination of values of the conditions in `by`, with all measurements that have these values."""
        for values in dict.fromkeys(tuple(row.conditions.get(key) for key in by) for row in self):
            conditions = dict(zip(by, values, strict=True))
            yield conditions, self.where(**conditions)

    def get(self, number: str, **conditions: Any) -> float:
        """Return a number of the measurement that has `conditions`: the mean if several have them, NaN if none has."""
        found = [row.numbers[number] for row in self.where(**conditions) if number in row.numbers]
        return statistics.fmean(found) if found else math.nan

    def slope(self, number: str, along: str, **conditions: Any) -> float:
        """Return the exponent p of number = c along^p, fitted to the logarithms by least squares.

        It is NaN if the condition `along` has fewer than two values, or if some number is not positive.
        """
        points = [(row.conditions[along], row.numbers.get(number, math.nan)) for row in self.where(**conditions)]
        if len({x for x, _ in points}) < 2 or not all(y > 0 for _, y in points):
            return math.nan
        return statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points]).slope


Value = Callable[[Measurements], float]
"""Function that computes, from the measurements of one seed, the number that an expectation is about."""


@dataclass(frozen=True)
class Expectation:
    """An expected result if the claim is true: a number for each seed, and the effect that it must or must not show."""

    words: str
    label: str
    """Name of the measured number in the report."""
    value: Value
    matters: float
    """Value of the number from which on an effect matters. If it is above `none`, larger numbers are the effect; if it
    is below, smaller ones.
    """
    reason: str
    """Explanation, for the report, why an effect matters from `matters` on."""
    none: float = 0.0
    """Value of the number if there is no effect: 0 for a difference, 1 for a ratio."""
    absent: Literal["", "one side", "both sides"] = ""
    """Set if the claim is that there is no such effect: in the direction of `matters` (`one side`), or in either
    direction (`both sides`). Empty if the claim is that there is one.
    """
    exact: bool = False
    """Whether the number is the same for every seed, so that one seed is enough."""

    @property
    def size(self) -> float:
        """Return the smallest effect that matters, as a distance from no effect."""
        return abs(self.matters - self.none)

    @property
    def bounds(self) -> str:
        """Return the expected range of the number as text, such as `at least 2 (no effect: 1)`."""
        if self.absent == "both sides":
            return f"{show(self.none - self.size)} to {show(self.none + self.size)}"
        larger = self.matters > self.none
        if self.absent:
            return f"less than {show(self.matters)}" if larger else f"more than {show(self.matters)}"
        side = "at least" if larger else "at most"
        return f"{side} {show(self.matters)} (no effect: {show(self.none)})"


@dataclass(frozen=True)
class Judgement:
    """An expectation, its measured numbers, and the verdict."""

    words: str
    label: str
    bounds: str
    reason: str
    values: list[float]
    """The measured number, one value for each seed."""
    mean: float
    margin: float
    """Half of the width of the 95 % confidence interval of `mean` over the seeds; infinite for a single seed, 0 if the
    number is exact.
    """
    power: float
    """Statistical power: the approximate probability of detecting an effect that is only just large enough to matter,
    given the number of seeds and the standard deviation over them.
    """
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.label}: {show(self.mean)} ± {show(self.margin)}, expected {self.bounds}"


T_95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t distribution for 1, 2, 3, ... degrees of freedom, for 95 % confidence intervals; the
last is used for all higher degrees, too.
"""


def judge(expectation: Expectation, measured: Measurements) -> Judgement:
    """Compare the 95 % confidence interval of a number over the seeds with no effect and with the effect that matters.

    The two sides of a comparison have the same seed, so that a number is a paired difference or ratio.
    """
    values = [_value(expectation, measured.of_seed(seed)) for seed in measured.seeds]
    mean, margin, power = math.nan, math.nan, math.nan
    if values and all(map(math.isfinite, values)):
        mean, margin = statistics.fmean(values), 0.0 if expectation.exact else math.inf
        power = 1.0 if expectation.exact else 0.0
        if len(values) > 1:
            error = statistics.stdev(values) / math.sqrt(len(values))
            margin = _t_95(len(values)) * error
            power = find_probability(expectation.size, error, len(values))
    there = effect(mean - margin - expectation.none, mean + margin - expectation.none, expectation)
    verdict: Verdict = "undecided"
    if there is not None:
        verdict = "held" if there != bool(expectation.absent) else "did not hold"
    about = (expectation.words, expectation.label, expectation.bounds, expectation.reason)
    return Judgement(*about, values, mean, margin, power, verdict)


def effect(low: float, high: float, expectation: Expectation) -> bool | None:
    """Return whether an effect that matters is present; None if the confidence interval leaves that open.

    If it is present, the middle of the interval is more than half of the smallest effect that matters. An interval that
    is unbounded (one seed) or NaN leaves it open.

    Args:
        low: lower end of the 95 % confidence interval of the number, minus `expectation.none`; `high` is the upper end.
    """
    size = expectation.size
    if expectation.matters < expectation.none:
        low, high = -high, -low
    if expectation.absent == "both sides":
        if -size < low and high < size:
            return False
        return True if (low > 0 and high >= size) or (high < 0 and low <= -size) else None
    if high < size:
        return False
    return True if low > 0 and math.isfinite(high) else None


def find_probability(size: float, error: float, seeds: int) -> float:
    """Return the approximate probability that the 95 % confidence interval of an effect of this size is above 0.

    It approximates the noncentral t distribution by a normal distribution.

    Args:
        error: the standard error of the mean over the seeds.
    """
    if not error:
        return 1.0
    freedom, quantile = seeds - 1, _t_95(seeds)
    distance = size / error - quantile * (1 - 1 / (4 * freedom))
    return statistics.NormalDist().cdf(distance / math.sqrt(1 + quantile**2 / (2 * freedom)))


def _t_95(seeds: int) -> float:
    return T_95[min(seeds - 1, len(T_95)) - 1]


def _value(expectation: Expectation, measured: Measurements) -> float:
    try:
        return float(expectation.value(measured))
    except (ZeroDivisionError, ValueError):  # a ratio to zero, the logarithm of zero
        return math.nan


@dataclass(frozen=True)
class Chart:
    """A chart of a measured number over the condition `along` (x axis), of the trials whose conditions include `only`.

    It has a line for each combination of values of the conditions in `by`.
    """

    title: str
    number: str
    along: str
    by: Sequence[str] = ()
    only: Conditions = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Claim:
    """One claim from the literature, and the experiment that tests it."""

    name: str
    words: str
    source: str
    """Papers and sections in which the claim is made."""
    measured: str
    """Description of what is measured, for the report."""
    trials: Callable[[Plan], list[dict[str, Any]]]
    """Function that returns all combinations of conditions of a plan; each is measured with every seed."""
    measure: Callable[[Trial], Numbers]
    """Function that makes one trial (with one seed), and returns its numbers. It runs with one thread beside other
    trials or, if `alone`, without other trials and with all cores.
    """
    expectations: tuple[Expectation, ...]
    controls: tuple[Expectation, ...] = ()
    """Expectations about comparisons without the cause of the effect (negative controls); if one of them holds, the
    measurement is not valid.
    """
    charts: tuple[Chart, ...] = ()
    alone: bool = False
    """Whether no other trial may run at the same time, because time is measured or a trial uses the whole GPU."""
    places: str = ""
    """If one trial measures a number several times, as `right@4` and `right@8`: the name of the condition whose value
    follows the `@`; else empty.
    """
    quick_seeds: int = 0
    """Number of seeds for each combination of conditions with `--quick`; 0 for `QUICK_SEEDS`."""
    full_seeds: int = 0
    """Number of seeds for each combination of conditions without `--quick`; 0 for `FULL_SEEDS`."""
    rows_of: str = ""
    """Name of another claim whose measurements this claim is judged by, instead of trials of its own; empty if it has
    its own.
    """


@dataclass(frozen=True)
class Outcome:
    """A claim, its measurements, and the judgement of each expectation and each control."""

    claim: Claim
    measured: Measurements
    judgements: list[Judgement]
    controls: list[Judgement]

    @property
    def verdict(self) -> Verdict:
        if any(control.verdict == "held" for control in self.controls):
            return "not trusted"
        found = [judgement.verdict for judgement in self.judgements]
        if "did not hold" in found:
            return "did not hold"
        return "undecided" if "undecided" in found or not found else "held"

    @property
    def deciding(self) -> Judgement:
        """Return the first control that held, which makes the verdict "not trusted"; if none did, the first judgement
        with the verdict of the claim.
        """
        if self.verdict == "not trusted":
            return next(control for control in self.controls if control.verdict == "held")
        return next(judgement for judgement in self.judgements if judgement.verdict == self.verdict)

    @property
    def controls_in_words(self) -> str:
        """Return as text how many controls held; none should."""
        held = sum(control.verdict == "held" for control in self.controls)
        return f"{held} of {len(self.controls)} held" if held else f"none of {len(self.controls)} held"

    @property
    def reason(self) -> str:
        """Return `deciding` as text; if all of several expectations held, their number and the first of them."""
        if self.verdict == "not trusted":
            return f"a control held: {self.deciding}"
        if self.verdict == "held" and len(self.judgements) > 1:
            return f"all {len(self.judgements)}, such as {self.deciding}"
        return str(self.deciding)


class Measured(NamedTuple):
    """Result of `measure_claims`: the outcomes of the claims that were asked for, and the facts at the beginning of the
    reports.
    """

    outcomes: list[Outcome]
    facts: dict[str, str]

    def _repr_html_(self) -> str:
        rows = [(each.claim.name, each.verdict, each.reason) for each in self.outcomes]
        return notebook.table("lab", ("claim", "verdict", "what decided"), rows)


def conclude(claim: Claim, measured: Sequence[Measurement]) -> Outcome:
    """Return the outcome of a claim, with every expectation and every control judged."""
    rows = Measurements(row for each in measured for row in each.unfold(claim.places))
    judged, controls = ([judge(each, rows) for each in kind] for kind in (claim.expectations, claim.controls))
    return Outcome(claim, rows, judged, controls)


def show(number: float) -> str:
    """Return a number as text with three significant digits, or rounded to an integer from 1,000 on.

    Below 0.001 and from a million on it has two significant digits; NaN is `none`, infinity is `unknown`.
    """
    if math.isnan(number):
        return "none"
    if math.isinf(number):
        return "unknown"
    if number and not 1e-3 <= abs(number) < 1e6:
        return f"{number:.2g}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
