"""A claim, what was measured for it, and the verdict: held, did not hold, or undecided. By the numbers alone."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Conditions = Mapping[str, Any]
"""All that tells one trial from another, the seed apart: texts, numbers, true and false. They are its key on disk."""
Numbers = Mapping[str, float]
Verdict = Literal["held", "did not hold", "undecided"]


QUICK_SEEDS, FULL_SEEDS = 3, 5


@dataclass(frozen=True)
class Plan:
    """How much is to be tried."""

    quick: bool = False
    pairs: str = ""
    """A corpus of the user's own, for the claims that can use one."""

    @property
    def usual_seeds(self) -> int:
        """How many, where nobody says."""
        return QUICK_SEEDS if self.quick else FULL_SEEDS


@dataclass(frozen=True)
class Trial:
    """Something to be measured: `trial["depth"]` is one of its conditions."""

    claim: str
    conditions: Conditions
    seed: int
    folder: Path
    """Its own: where it may leave what it needs to go on after an interruption. It need not be there yet."""

    def __getitem__(self, condition: str) -> Any:
        return self.conditions[condition]


@dataclass(frozen=True)
class Row:
    """One trial with one seed."""

    conditions: Conditions
    seed: int
    numbers: Numbers


def unfold(row: Row, places: str) -> list[Row]:
    """Numbers that one trial measured at several places, `right@4` and `right@8`, as rows with a condition more."""
    found = dict.fromkeys(name.partition("@")[2] for name in row.numbers if "@" in name)
    if not found:
        return [row]
    rows = []
    for place in found:
        conditions = {**row.conditions, places: int(place) if place.isdecimal() else place}
        own = {name.partition("@")[0]: value for name, value in row.numbers.items() if name.endswith(f"@{place}")}
        everywhere = {name: value for name, value in row.numbers.items() if "@" not in name}
        rows.append(Row(conditions, row.seed, own | everywhere))
    return rows


class Rows(Sequence[Row]):
    """What was measured, to be asked for by conditions: `rows.get("loss", norm="post", depth=6)`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = list(rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, **conditions: Any) -> "Rows":
        wanted = conditions.items()
        return Rows([row for row in self._rows if all(row.conditions.get(key) == value for key, value in wanted)])

    def of_seed(self, seed: int) -> "Rows":
        return Rows([row for row in self._rows if row.seed == seed])

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self._rows})

    def values(self, condition: str) -> list[Any]:
        """Those that a condition takes, in the order of the trials."""
        return list(dict.fromkeys(row.conditions[condition] for row in self._rows if condition in row.conditions))

    def get(self, number: str, **conditions: Any) -> float:
        """The number of the one trial with these conditions; of several, the mean. Not a number where there is none."""
        found = [row.numbers[number] for row in self.where(**conditions) if number in row.numbers]
        return statistics.fmean(found) if found else math.nan

    def slope(self, number: str, along: str, **conditions: Any) -> float:
        """The exponent p of number = c along^p, fitted to the logarithms by least squares."""
        points = [(row.conditions[along], row.numbers.get(number, math.nan)) for row in self.where(**conditions)]
        if len({x for x, _ in points}) < 2 or not all(y > 0 for _, y in points):
            return math.nan
        return statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points]).slope


@dataclass(frozen=True)
class Expectation:
    """What must come out if the claim is true: a number from the rows of one seed, and where it must lie."""

    words: str
    label: str
    """What the number is."""
    value: Callable[[Rows], float]
    at_least: float = -math.inf
    at_most: float = math.inf
    tolerance: float = 0.0
    """The smallest effect that counts, however well the seeds agree. A bound that is the value of no effect (a
    difference of 0, a ratio of 1) needs one: without it, rounding errors would be an effect."""
    exact: bool = False
    """No chance is in it, so that one seed is enough."""


@dataclass(frozen=True)
class Finding:
    """An expectation and what came out."""

    words: str
    label: str
    bounds: str
    values: list[float]
    """One for each seed."""
    mean: float
    margin: float
    """Half of the 95 % interval of the mean, or the tolerance where that is more."""
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.label}: {show(self.mean)} ± {show(self.margin)}, expected {self.bounds}"


T_95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 95 % by degrees of freedom, from 1."""


def judge(expectation: Expectation, rows: Rows) -> Finding:
    """Compare the 95 % interval of a number over the seeds with its bounds.

    The expectation held where the whole interval lies strictly within the bounds, and did not hold where all of it lies
    strictly outside. An interval that touches a bound is undecided: an effect of exactly 0 in every seed, whose
    interval has no width, does not show that something helps.
    """
    values = [_value(expectation, rows.of_seed(seed)) for seed in rows.seeds]
    low, high = expectation.at_least, expectation.at_most
    mean, margin = math.nan, math.nan
    if values and all(map(math.isfinite, values)):
        mean = statistics.fmean(values)
        chance = math.inf
        if len(values) > 1:
            quantile = T_95[min(len(values) - 1, len(T_95)) - 1]
            chance = quantile * statistics.stdev(values) / math.sqrt(len(values))
        elif expectation.exact:
            chance = 0.0
        margin = max(chance, expectation.tolerance)
    verdict: Verdict = "undecided"
    if low < mean - margin and mean + margin < high:
        verdict = "held"
    elif mean + margin < low or mean - margin > high:
        verdict = "did not hold"
    bounds = _bounds(low, high)
    if expectation.tolerance:
        bounds += f", by {show(expectation.tolerance)} or more"
    return Finding(expectation.words, expectation.label, bounds, values, mean, margin, verdict)


def _value(expectation: Expectation, rows: Rows) -> float:
    try:
        return float(expectation.value(rows))
    except (ZeroDivisionError, ValueError):  # a ratio to nothing, the logarithm of nothing
        return math.nan


def _bounds(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {show(low)}"
    return f"at most {show(high)}" if math.isinf(low) else f"{show(low)} to {show(high)}"


@dataclass(frozen=True)
class Chart:
    """A picture of the rows: a number along a condition, a line for each combination of others."""

    title: str
    number: str
    along: str
    by: tuple[str, ...] = ()
    only: Conditions = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, and the experiment that asks whether it is so."""

    name: str
    words: str
    source: str
    """Where it is made."""
    measured: str
    """What is measured, in words."""
    trials: Callable[[Plan], list[dict[str, Any]]]
    """The conditions to try."""
    measure: Callable[[Trial], Numbers]
    """Called with each of them and each seed: with one thread beside others, or, `alone`, on the whole machine."""
    expectations: tuple[Expectation, ...]
    charts: tuple[Chart, ...] = ()
    alone: bool = False
    """Whether it measures time, so that nothing else may run."""
    places: str = ""
    """What stands behind the @ in `right@4`, where a trial measures at several places: the name of a condition."""
    rows_of: str = ""
    """The claim whose trials these are, where two share them."""


@dataclass(frozen=True)
class Outcome:
    """A claim and what became of it."""

    claim: Claim
    rows: Rows
    findings: list[Finding]

    @property
    def verdict(self) -> Verdict:
        found = [finding.verdict for finding in self.findings]
        if "did not hold" in found:
            return "did not hold"
        return "undecided" if "undecided" in found or not found else "held"

    @property
    def deciding(self) -> Finding:
        """The first that is as good as the whole."""
        return next(finding for finding in self.findings if finding.verdict == self.verdict)

    @property
    def reason(self) -> str:
        """In one line: one that is not held decides, but to hold it takes all of them."""
        every = f"all {len(self.findings)}, such as " if self.verdict == "held" and len(self.findings) > 1 else ""
        return f"{every}{self.deciding}"


def conclude(claim: Claim, measured: Sequence[Row]) -> Outcome:
    rows = Rows([row for each in measured for row in unfold(each, claim.places)])
    return Outcome(claim, rows, [judge(expectation, rows) for expectation in claim.expectations])


def show(number: float) -> str:
    """Four digits at most, and plain words for what is no number."""
    if math.isnan(number):
        return "none"
    if math.isinf(number):
        return "unknown"
    if number and not 1e-3 <= abs(number) < 1e6:
        return f"{number:.2g}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def combinations(rows: Rows, by: Sequence[str]) -> Iterator[tuple[Conditions, Rows]]:
    """The rows parted by the values of some conditions, in the order of the trials."""
    found = dict.fromkeys(tuple(row.conditions.get(key) for key in by) for row in rows)
    for values in found:
        conditions = dict(zip(by, values, strict=True))
        yield conditions, rows.where(**conditions)
