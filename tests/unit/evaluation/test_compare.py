"""The comparison of models against sacreBLEU's own, and that of systems against exact error rates and simulations."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from bench import comparisons
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, _bootstrap_resample

from seq2see.evaluation import compare, metrics

WORDS = ["the", "a", "cat", "dog", "sat", "stood", "on", "under", "mat", "moon", "green", "tea", "we", "like"]


def sentences(count, seed=1):
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=dice.randint(4, 12))) for _ in range(count)]


def spoilt(texts, share, seed):
    """Each word replaced with so much probability."""
    dice = random.Random(seed)
    return [" ".join(dice.choice(WORDS) if dice.random() < share else word for word in text.split()) for text in texts]


def scored(texts, references, names=None):
    return metrics.score([[text] for text in texts], [[text] for text in references], names=names)


def by_name(differences):
    return {each.name: each for each in differences}


def exact(right):
    """The score `exact` of items that are right or wrong."""
    return scored(["yes" if each else "no" for each in right], ["yes"] * len(right), ["exact"])


REFERENCES = sentences(150)
A, B = spoilt(REFERENCES, 0.20, 2), spoilt(REFERENCES, 0.25, 3)


def test_intervals_are_those_of_scores_that_sacrebleu_resampled():
    found = by_name(compare.paired_bootstrap([scored(A, REFERENCES)], [scored(B, REFERENCES)]))
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        ones, others = (
            _bootstrap_resample(metric._extract_corpus_statistics(texts, [REFERENCES]), metric, 1000)[1]
            for texts in (A, B)
        )
        differences = np.sort([one.score - other.score for one, other in zip(ones, others, strict=True)])
        assert (found[name].low, found[name].high) == pytest.approx((differences[24], differences[975]), abs=1e-3)
        actual = [metric.corpus_score(texts, [REFERENCES]).score for texts in (A, B)]
        assert (found[name].ours, found[name].theirs) == pytest.approx(actual)
        assert found[name].difference == pytest.approx(actual[0] - actual[1])
        assert found[name].low < found[name].difference < found[name].high


def test_p_is_sacrebleus_for_both_directions():
    """sacreBLEU counts the draws that go too far to one side only: half as many."""
    found = by_name(compare.paired_bootstrap([scored(A, REFERENCES)], [scored(B, REFERENCES)]))
    tested = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    _, theirs = PairedTest([("B", B), ("A", A)], tested, [REFERENCES], "bs", 1000)()
    for name, their_name in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        assert 0.002 < found[name].p < 0.2  # a case where p says something
        assert found[name].p / 2 == pytest.approx(theirs[their_name][1].p_value, abs=0.015)


def test_by_hand():
    """Of 400 items 300 are right in both, 70 only in A, 30 only in B.

    The difference has mean 10 %. Its variance is 0.25 - 0.01 for one item; its deviation for 400, sqrt(0.24 / 400).
    """
    (found,) = compare.paired_bootstrap(
        [exact([1] * 300 + [1] * 70 + [0] * 30)], [exact([1] * 300 + [0] * 70 + [1] * 30)]
    )
    assert (found.name, found.ours, found.theirs, found.difference) == ("exact", 92.5, 82.5, 10)
    assert found.low == pytest.approx(10 - 1.96 * 2.449, abs=0.5)
    assert found.high == pytest.approx(10 + 1.96 * 2.449, abs=0.5)
    assert found.p == pytest.approx(2 / 1001)  # no draw of a thousand comes near zero, four deviations away
    assert (found.models, found.verdict) == ("better", "too few runs")
    assert found.detectable == pytest.approx(2.80 * 2.449, rel=0.1)


def test_the_same_system_twice():
    for each in compare.paired_bootstrap([scored(A, REFERENCES)], [scored(A, REFERENCES)]):
        assert (each.difference, each.low, each.high, each.p) == (0, 0, 0, 1)
        assert (each.models, each.verdict) == ("no clear difference", "too few runs")


def test_clearly_better_whichever_way_is_up():
    good, bad = scored(spoilt(REFERENCES, 0.02, 4), REFERENCES), scored(spoilt(REFERENCES, 0.6, 5), REFERENCES)
    there, back = compare.paired_bootstrap([good], [bad]), compare.paired_bootstrap([bad], [good])
    assert {each.models for each in there} == {"better"}
    assert {each.models for each in back} == {"worse"}
    assert {each.name for each in there if each.difference < 0} == {"ter", "error_rate"}
    for one, other in zip(there, back, strict=True):
        assert (one.difference, one.low, one.high) == (-other.difference, -other.high, -other.low)
        assert one.p == other.p < 0.05


def test_pairing_finds_what_two_intervals_would_hide():
    """B is A, but for a few more mistakes on top: a small difference, always in one direction."""
    right = [number % 2 == 0 for number in range(400)]
    worse = [each and number >= 24 for number, each in enumerate(right)]
    (found,) = compare.paired_bootstrap([exact(right)], [exact(worse)])
    assert found.difference == 3
    assert found.models == "better"


def test_few_pairs_get_no_verdict():
    for count, verdict in ((1, "too few pairs"), (19, "too few pairs"), (20, "better")):
        (found,) = compare.paired_bootstrap([exact([1] * count)], [exact([0] * count)])
        assert (found.difference, found.models) == (100, verdict)
        (found,) = compare.compare([exact([1] * count)] * 4, [exact([0] * count)] * 4)
        assert (found.difference, found.verdict) == (100, verdict)


def runs(*rates, pairs=3000, seed=6):
    """One run for each rate of right answers."""
    dice = random.Random(seed)
    return [exact([dice.random() < rate for _ in range(pairs)]) for rate in rates]


def test_means_over_seeds_are_compared_and_a_lucky_seed_is_not_enough():
    scattered, steady = runs(0.9, 0.5, 0.6, 0.55), runs(0.5, 0.5, 0.5, 0.5)
    (found,) = compare.compare(scattered, steady)
    assert found.ours == pytest.approx(np.mean([scores["exact"].value for scores in scattered]))
    assert found.difference == pytest.approx(14, abs=2)
    assert (found.verdict, found.models) == ("no clear difference", None)  # one seed of four makes it
    (found,) = compare.compare(runs(0.6, 0.62, 0.61, 0.62), steady)
    assert (found.verdict, found.p) == ("better", pytest.approx(2 / 70))
    (found,) = compare.compare(steady, runs(0.6, 0.62, 0.61, 0.62))
    assert (found.verdict, found.p) == ("worse", pytest.approx(2 / 70))


@pytest.mark.parametrize("sides", [(1, 1), (1, 4), (39, 1), (2, 2), (3, 3), (2, 4), (4, 2)])
def test_too_few_runs_get_no_verdict_however_far_apart(sides):
    ours, theirs = (runs(*([rate] * count), pairs=100) for rate, count in zip((0.9, 0.1), sides, strict=True))
    (found,) = compare.compare(ours, theirs)
    assert found.verdict == "too few runs"
    assert found.models == ("better" if 1 in sides else None)
    assert not compare.enough_runs(*sides)
    assert "at least 4 runs" in compare.explain(*sides)


@pytest.mark.parametrize("sides", [(4, 4), (3, 4), (5, 2), (3, 5), (10, 10), (12, 13)])
def test_enough_runs_get_a_verdict(sides):
    ours, theirs = (runs(*([rate] * count), pairs=100) for rate, count in zip((0.9, 0.1), sides, strict=True))
    (found,) = compare.compare(ours, theirs)
    assert found.verdict == "better"
    assert found.p >= min(compare.smallest_p(*sides), 1 / compare.MOST_ASSIGNMENTS)


@pytest.mark.parametrize("seeds", ["normal", "skewed", "failing"])
def test_of_all_assignments_of_eight_runs_at_most_one_in_twenty_gets_a_verdict(seeds):
    """Equal systems: which four of eight runs are called A is a matter of chance.

    All 70 ways are tried, 35 of them with the first run in A; the others exchange the sides, which changes nothing.
    """
    dice = np.random.default_rng(3)
    effects = {
        "normal": dice.normal(0, 0.1, 8),
        "skewed": 0.1 * dice.exponential(size=8),
        "failing": np.array([0.01, -0.02, 0.0, -0.4, 0.02, 0.01, -0.01, -0.5]),
    }[seeds]
    every = runs(*(0.6 + effects), pairs=60)
    said = []
    for others in itertools.combinations(range(1, 8), 3):
        ours = (0, *others)
        theirs = [number for number in range(8) if number not in ours]
        (found,) = compare.compare([every[number] for number in ours], [every[number] for number in theirs])
        said.append(found.verdict)
    assert set(said) <= {"better", "worse", "no clear difference"}
    assert sum(each != "no clear difference" for each in said) <= 0.05 * 35


def test_runs_with_equal_scores_are_not_taken_for_runs_without_variance():
    """Each of the eight runs gets 10 of 20 right; the ninth score that B happens to have cannot decide."""
    half = [exact([(number + shift) % 2 for number in range(20)]) for shift in (0, 1, 0, 1)]
    more = [exact([(number + shift) % 2 or number == shift for number in range(20)]) for shift in (0, 1, 0, 1)]
    (found,) = compare.compare(more, half)
    assert found.difference == 5
    assert found.verdict == "no clear difference"
    assert found.low < 0


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3.5, 2.9403), (9, 2.262), (1e6, 1.962)])
def test_students_t_as_in_its_tables(freedom, quantile):
    student = compare._Student(freedom)
    assert student.quantile(0.975) == pytest.approx(quantile, rel=1e-3)
    assert student.p(-quantile) == pytest.approx(0.05, rel=2e-3)
    assert student.p(0) == 1


SCORES_OF_RUNS = st.lists(st.integers(0, 20).map(float), min_size=2, max_size=5)


@settings(max_examples=60, deadline=None)
@given(SCORES_OF_RUNS, SCORES_OF_RUNS)
def test_the_permutation_test_by_brute_force(ours, theirs):
    """p by counting, and an interval with exactly the shifts that the test does not reject."""

    def p_of(ours):
        both, actual = ours + theirs, abs(np.mean(ours) - np.mean(theirs))
        extreme = []
        for chosen in itertools.combinations(range(len(both)), len(ours)):
            others = [both[number] for number in range(len(both)) if number not in chosen]
            extreme.append(abs(np.mean([both[number] for number in chosen]) - np.mean(others)) >= actual - 1e-9)
        return np.mean(extreme)

    p, below, above = compare.permutation_test(np.array(ours), np.array(theirs))
    difference = np.mean(ours) - np.mean(theirs)
    assert p == pytest.approx(p_of(ours))
    if math.isinf(above):
        assert compare.smallest_p(len(ours), len(theirs)) > 0.05
        return
    for end, inwards in ((difference - below, 1e-6), (difference + above, -1e-6)):
        assert p_of([score - end - inwards for score in ours]) > 0.05 or below == above == 0
        assert p_of([score - end + inwards for score in ours]) <= 0.05


def test_the_same_again():
    sides = [scored(A, REFERENCES)], [scored(B, REFERENCES), scored(A, REFERENCES)]
    assert compare.compare(*sides) == compare.compare(*sides)
    assert compare.compare(sides[1], sides[1]) == compare.compare(sides[1], sides[1])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_the_interval_leaves_out_zero_exactly_where_p_is_small(items):
    ours, theirs = zip(*items, strict=True)
    (found,) = compare.paired_bootstrap([exact(ours)], [exact(theirs)])
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
    assert 0 < found.p <= 1
    assert found.low <= found.high


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.3, 0.7), min_size=8, max_size=8), st.floats(0, 0.3))
def test_the_interval_of_systems_leaves_out_zero_exactly_where_p_is_small(rates, gain):
    ours, theirs = runs(*(rate + gain for rate in rates[:4]), pairs=40), runs(*rates[4:], pairs=40, seed=7)
    (found,) = compare.compare(ours, theirs)
    assert (found.p <= 0.05) == (found.low > 0 or found.high < 0) == (found.verdict in ("better", "worse"))
    assert found.low <= found.difference <= found.high


def assert_error_rate(world, promised, trials):
    """The share of wrong verdicts about equal systems is at most the promised one, and three deviations of chance."""
    share = comparisons.rate(world, trials)
    assert share <= promised + 3 * math.sqrt(promised * (1 - promised) / trials)


@pytest.mark.parametrize("seeds", ["normal", "failing"])
def test_error_rates_by_a_short_simulation(seeds):
    assert_error_rate(comparisons.World("exact", 50, 4, 4, seeds), 0.05, trials=60)


# One run each tells models apart, not systems: in the last table there is no error rate to hold.
WORLDS = [each for each in comparisons.worlds() if not each[0].endswith("of equal systems")]


@pytest.mark.slow
@pytest.mark.parametrize(("title", "world"), WORLDS)
def test_error_rates_by_simulation(title, world):
    """At most 5 % where the systems are the same, and about 5 % where only their means are; see docs/comparing.md."""
    promised = 0.05 if "normal" in title or "skewed" in title or "failing" in title else 0.08
    assert_error_rate(world, promised, trials=400)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 8])
def test_the_detectable_difference_is_found_in_four_of_five_comparisons(count):
    world = comparisons.World("exact", 500, count, count)
    detectable = np.median([comparisons.verdict(world, seed)[1] for seed in range(100)])
    found = comparisons.rate(replace(world, gain=comparisons.gain_for(world, detectable)), 300)
    assert 0.65 <= found <= 0.95
