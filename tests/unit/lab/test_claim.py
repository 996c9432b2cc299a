"""Verdicts come from the numbers: other numbers, another verdict."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.lab.claim import Claim, Expectation, Measurement, Measurements, conclude, grid, judge, show


def rows_of(*values: float, number: str = "loss", **conditions) -> Measurements:
    return Measurements([Measurement(conditions, seed, {number: value}) for seed, value in enumerate(values, start=1)])


def below(limit: float, **options) -> Expectation:
    return Expectation("small", "loss", lambda rows: rows.get("loss"), at_most=limit, **options)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.1, 0.11, 0.12), "held"),
        ((0.9, 0.91, 0.92), "did not hold"),
        ((0.1, 0.5, 0.9), "undecided"),  # the seeds do not agree
        ((0.1,), "undecided"),  # nobody knows how far another seed would be
        ((0.1, math.nan, 0.1), "undecided"),
        ((0.1, math.inf, 0.1), "undecided"),
        ((), "undecided"),
    ],
)
def test_a_verdict_follows_from_the_numbers(values, expected):
    assert judge(below(0.5), rows_of(*values)).verdict == expected


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (0.0,)])
def test_no_effect_at_all_is_not_held(values):
    """An interval without width that lies on its bound shows nothing, in either direction."""
    for bound in ({"at_least": 0.0}, {"at_most": 0.0}, {"at_least": 0.0, "at_most": 0.0}):
        nothing = Expectation("helps", "loss", lambda rows: rows.get("loss"), exact=True, **bound)
        assert judge(nothing, rows_of(*values)).verdict == "undecided"


def test_a_ratio_to_nothing_decides_nothing():
    ratio = Expectation("ratio", "ratio", lambda rows: 1 / rows.get("loss"), at_least=0.5)
    assert judge(ratio, rows_of(0.0, 1.0)).verdict == "undecided"


def test_between_two_bounds():
    within = Expectation("one", "loss", lambda rows: rows.get("loss"), at_least=0.9, at_most=1.1)
    assert judge(within, rows_of(1.0, 1.01, 0.99)).verdict == "held"
    assert judge(within, rows_of(1.5, 1.51, 1.52)).verdict == "did not hold"
    assert judge(within, rows_of(0.5, 0.51, 0.52)).verdict == "did not hold"
    assert judge(within, rows_of(1.1, 1.11, 1.09)).verdict == "undecided"


def test_what_chance_cannot_touch_needs_one_seed():
    assert judge(below(0.5, exact=True), rows_of(0.1)).verdict == "held"
    assert judge(below(0.5, exact=True), rows_of(0.9)).verdict == "did not hold"


def test_a_number_is_not_more_exact_than_its_tolerance():
    assert judge(below(0.5), rows_of(0.49, 0.49, 0.49)).verdict == "held"
    assert judge(below(0.5, tolerance=0.02), rows_of(0.49, 0.49, 0.49)).verdict == "undecided"


def test_the_margin_is_students():
    """By hand: deviation 1, three seeds, t = 4.303."""
    judgement = judge(below(100), rows_of(1.0, 2.0, 3.0))
    assert judgement.mean == 2
    assert judgement.margin == pytest.approx(4.303 / math.sqrt(3))
    assert str(judgement) == "loss: 2 ± 2.48, expected at most 100"


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(-10, 10))
def test_at_least_is_the_mirror_of_at_most(values, limit):
    """No number makes both a bound and its opposite hold, unless it lies on it."""
    mirrored = Expectation("large", "loss", lambda rows: rows.get("loss"), at_least=limit)
    opposite = {"held": "did not hold", "did not hold": "held", "undecided": "undecided"}
    rows = rows_of(*values)
    one, other = judge(below(limit), rows), judge(mirrored, rows)
    if abs(abs(one.mean - limit) - one.margin) > 1e-9:
        assert one.verdict == opposite[other.verdict]


def a_claim(*expectations: Expectation) -> Claim:
    return Claim("name", "words", "source", "measured", lambda plan: [{}], lambda trial: {}, expectations)


def test_a_claim_holds_where_all_of_it_does():
    good, bad, open_one = below(1.0), below(0.01), below(0.11)
    rows = rows_of(0.1, 0.11, 0.12)
    assert conclude(a_claim(good), rows).verdict == "held"
    assert conclude(a_claim(good, open_one), rows).verdict == "undecided"
    outcome = conclude(a_claim(good, open_one, bad), rows)
    assert outcome.verdict == "did not hold"
    assert outcome.deciding.bounds == "at most 0.01"


def test_rows_are_asked_for_by_conditions():
    rows = Measurements(
        [
            Measurement({"n": n, "kind": kind}, 1, {"time": n**power})
            for kind, power in (("a", 2), ("b", 1))
            for n in (2, 4, 8)
        ]
    )
    assert rows.get("time", n=4, kind="a") == 16
    assert rows.slope("time", "n", kind="a") == pytest.approx(2)
    assert rows.slope("time", "n", kind="b") == pytest.approx(1)
    assert math.isnan(rows.get("time", n=3))
    assert math.isnan(rows.slope("time", "n", kind="c"))
    assert rows.values("n") == [2, 4, 8]


@pytest.mark.parametrize(
    ("number", "shown"), [(0.12345, "0.123"), (1234567.0, "1.2e+06"), (12345.0, "12,345"), (0.0, "0"), (1e-15, "1e-15")]
)
def test_numbers_are_short(number, shown):
    assert show(number) == shown


def test_what_is_measured_at_several_places_becomes_rows():
    claim = Claim(
        "name", "words", "source", "measured", lambda plan: [{}], lambda trial: {}, (below(1.0),), places="length"
    )
    outcome = conclude(claim, [Measurement({"kind": "a"}, 1, {"right@4": 0.9, "right@8": 0.5, "loss": 0.1})])
    assert [dict(row.conditions) for row in outcome.measured] == [
        {"kind": "a", "length": 4},
        {"kind": "a", "length": 8},
    ]
    assert outcome.measured.get("right", length=8) == 0.5
    assert outcome.measured.get("loss") == pytest.approx(0.1)


def test_the_reason_of_a_claim_that_held_says_that_all_did():
    rows = rows_of(0.1, 0.11, 0.12)
    assert conclude(a_claim(below(1.0)), rows).reason.startswith("loss: 0.11 ± ")
    assert conclude(a_claim(below(1.0), below(2.0)), rows).reason.startswith("all 2, such as loss: 0.11 ± ")
    assert conclude(a_claim(below(1.0), below(0.01)), rows).reason.endswith("expected at most 0.01")


def test_a_tolerance_is_said():
    judgement = judge(
        Expectation("words", "loss", lambda rows: rows.get("loss"), at_least=0.0, tolerance=0.5), rows_of(1.0)
    )
    assert judgement.bounds == "at least 0, by 0.5 or more"


def test_a_grid_has_every_combination_and_the_last_condition_varies_fastest():
    assert grid(norm=("post", "pre"), depth=(1, 2), steps=7) == [
        {"norm": "post", "depth": 1, "steps": 7},
        {"norm": "post", "depth": 2, "steps": 7},
        {"norm": "pre", "depth": 1, "steps": 7},
        {"norm": "pre", "depth": 2, "steps": 7},
    ]
