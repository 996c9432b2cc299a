"""A claim, what was measured for it, and the verdict (held, did not hold, undecided) by the numbers alone."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from seq2see.display import notebook

Conditions = Mapping[str, Any]
"""What distinguishes one trial from another, except for the seed: strings, numbers, booleans. It is the key on disk."""
Numbers = Mapping[str, float]
Verdict = Literal["held", "did not hold", "undecided"]

QUICK_SEEDS, FULL_SEEDS = 3, 5


@dataclass(frozen=True)
class Plan:
    """Amount of measuring: sizes and seeds, by `--quick` or not."""

    quick: bool = False
    pairs: str = ""
    """A corpus of the user, for the claims that can use one."""

    @property
    def usual_seeds(self) -> int:
        """The number of seeds if the user gives none."""
        return QUICK_SEEDS if self.quick else FULL_SEEDS


def grid(**conditions: Any) -> list[dict[str, Any]]:
    """Every combination of the conditions that are tuples of values; the last of them varies fastest."""
    choices = [value if isinstance(value, tuple) else (value,) for value in conditions.values()]
    return [dict(zip(conditions, chosen, strict=True)) for chosen in itertools.product(*choices)]


@dataclass(frozen=True)
class Trial:
    """One measurement to be made: `trial["depth"]` is one of its conditions."""

    claim: str
    conditions: Conditions
    seed: int
    folder: Path
    """A folder of its own, not yet created, for files from which an interrupted trial can be resumed."""

    def __getitem__(self, condition: str) -> Any:
        return self.conditions[condition]


@dataclass(frozen=True)
class Measurement:
    """The numbers of one trial with one seed."""

    conditions: Conditions
    seed: int
    numbers: Numbers

    def unfold(self, places: str) -> list["Measurement"]:
        """Numbers measured at several places, `right@4` and `right@8`, as measurements with one more condition."""
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
    """Measurements selected by conditions: `measured.get("loss", norm="post", depth=6)`."""

    def where(self, **conditions: Any) -> "Measurements":
        wanted = conditions.items()
        return Measurements(row for row in self if all(row.conditions.get(key) == value for key, value in wanted))

    def of_seed(self, seed: int) -> "Measurements":
        return Measurements(row for row in self if row.seed == seed)

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self})

    def values(self, condition: str) -> list[Any]:
        """The values of a condition, in the order of the trials."""
        return list(dict.fromkeys(row.conditions[condition] for row in self if condition in row.conditions))

    def parted(self, by: Sequence[str]) -> Iterator[tuple[Conditions, "Measurements"]]:
        """Groups of equal values of some conditions, in the order of the trials."""
        for values in dict.fromkeys(tuple(row.conditions.get(key) for key in by) for row in self):
            conditions = dict(zip(by, values, strict=True))
            yield conditions, self.where(**conditions)

    def get(self, number: str, **conditions: Any) -> float:
        """The number of the trial with these conditions, the mean of several, NaN where there is none."""
        found = [row.numbers[number] for row in self.where(**conditions) if number in row.numbers]
        return statistics.fmean(found) if found else math.nan

    def slope(self, number: str, along: str, **conditions: Any) -> float:
        """The exponent p of number = c along^p, fitted to the logarithms by least squares."""
        points = [(row.conditions[along], row.numbers.get(number, math.nan)) for row in self.where(**conditions)]
        if len({x for x, _ in points}) < 2 or not all(y > 0 for _, y in points):
            return math.nan
        return statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points]).slope


Value = Callable[[Measurements], float]
"""Computes the number that an expectation judges from the measurements of one seed."""


@dataclass(frozen=True)
class Expectation:
    """Expected result if the claim is true: a number of each seed, and the bounds in which it must lie."""

    words: str
    label: str
    """The name of the number."""
    value: Value
    at_least: float = -math.inf
    at_most: float = math.inf
    tolerance: float = 0.0
    """The smallest effect that counts, however well the seeds agree. A bound that is the value of no effect (a
    difference of 0, a ratio of 1) needs one: without it, rounding errors would be an effect."""
    exact: bool = False
    """The number does not depend on chance, so that one seed is enough."""


@dataclass(frozen=True)
class Judgement:
    """An expectation, what was measured for it, and the verdict."""

    words: str
    label: str
    bounds: str
    values: list[float]
    """One for each seed."""
    mean: float
    margin: float
    """Half of the 95 % confidence interval of the mean, or the tolerance if that is larger."""
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.label}: {show(self.mean)} ± {show(self.margin)}, expected {self.bounds}"


T_95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 95 % by degrees of freedom, from 1."""


def judge(expectation: Expectation, measured: Measurements) -> Judgement:
    """Compare the 95 % confidence interval of a number over the seeds with its bounds.

    The expectation held if the whole interval lies strictly within the bounds, and did not hold if all of it lies
    strictly outside. An interval that touches a bound is undecided: an effect of exactly 0 in every seed, whose
    interval has no width, does not show that something helps.
    """
    values = [_value(expectation, measured.of_seed(seed)) for seed in measured.seeds]
    low, high = expectation.at_least, expectation.at_most
    mean, margin = math.nan, math.nan
    if values and all(map(math.isfinite, values)):
        mean = statistics.fmean(values)
        chance = 0.0 if expectation.exact else math.inf
        if len(values) > 1:
            quantile = T_95[min(len(values) - 1, len(T_95)) - 1]
            chance = quantile * statistics.stdev(values) / math.sqrt(len(values))
        margin = max(chance, expectation.tolerance)
    verdict: Verdict = "undecided"
    if low < mean - margin and mean + margin < high:
        verdict = "held"
    elif mean + margin < low or mean - margin > high:
        verdict = "did not hold"
    if math.isinf(high):
        bounds = f"at least {show(low)}"
    else:
        bounds = f"at most {show(high)}" if math.isinf(low) else f"{show(low)} to {show(high)}"
    if expectation.tolerance:
        bounds += f", by {show(expectation.tolerance)} or more"
    return Judgement(expectation.words, expectation.label, bounds, values, mean, margin, verdict)


def _value(expectation: Expectation, measured: Measurements) -> float:
    try:
        return float(expectation.value(measured))
    except (ZeroDivisionError, ValueError):  # a ratio to zero, the logarithm of zero
        return math.nan


@dataclass(frozen=True)
class Chart:
    """A chart of a number along a condition, with a line for each combination of the conditions in `by`."""

    title: str
    number: str
    along: str
    by: Sequence[str] = ()
    only: Conditions = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, and the experiment that tests it."""

    name: str
    words: str
    source: str
    """Section of the paper that makes the claim."""
    measured: str
    """Description of the measurement."""
    trials: Callable[[Plan], list[dict[str, Any]]]
    """Returns the conditions to try."""
    measure: Callable[[Trial], Numbers]
    """Called with each of them and each seed: with one thread beside others, or, `alone`, on the whole machine."""
    expectations: tuple[Expectation, ...]
    charts: tuple[Chart, ...] = ()
    alone: bool = False
    """It measures time, so that nothing else may run."""
    places: str = ""
    """The name of the condition behind the @ in `right@4`, if a trial measures at several places."""
    rows_of: str = ""
    """The claim whose trials these are, if two claims share them."""


@dataclass(frozen=True)
class Outcome:
    """A claim, what was measured for it, and the judgement of each expectation."""

    claim: Claim
    measured: Measurements
    judgements: list[Judgement]

    @property
    def verdict(self) -> Verdict:
        found = [judgement.verdict for judgement in self.judgements]
        if "did not hold" in found:
            return "did not hold"
        return "undecided" if "undecided" in found or not found else "held"

    @property
    def deciding(self) -> Judgement:
        """The first judgement that has the verdict of the claim."""
        return next(judgement for judgement in self.judgements if judgement.verdict == self.verdict)

    @property
    def reason(self) -> str:
        """One line: a single expectation that did not hold decides, but a claim holds only if all of them do."""
        every = f"all {len(self.judgements)}, such as " if self.verdict == "held" and len(self.judgements) > 1 else ""
        return f"{every}{self.deciding}"


class Measured(NamedTuple):
    """What `measure_claims` returns: the outcomes, and the facts with which the reports begin."""

    outcomes: list[Outcome]
    facts: dict[str, str]

    def _repr_html_(self) -> str:
        rows = [(each.claim.name, each.verdict, each.reason) for each in self.outcomes]
        return notebook.table("lab", ("claim", "verdict", "what decided"), rows)


def conclude(claim: Claim, measured: Sequence[Measurement]) -> Outcome:
    """Judge every expectation of a claim."""
    rows = Measurements(row for each in measured for row in each.unfold(claim.places))
    return Outcome(claim, rows, [judge(expectation, rows) for expectation in claim.expectations])


def show(number: float) -> str:
    """Format a number with four digits at most, and what is no number in words."""
    if math.isnan(number):
        return "none"
    if math.isinf(number):
        return "unknown"
    if number and not 1e-3 <= abs(number) < 1e6:
        return f"{number:.2g}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
