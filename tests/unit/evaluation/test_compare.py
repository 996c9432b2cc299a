"""The paired bootstrap against sacreBLEU's own, against a case worked out by hand, and against plain sense."""

import random

import numpy as np
import pytest
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
    assert found.verdict == "better"


def test_the_same_system_twice():
    for each in compare.paired_bootstrap([scored(A, REFERENCES)], [scored(A, REFERENCES)]):
        assert (each.difference, each.low, each.high, each.p) == (0, 0, 0, 1)
        assert each.verdict == "no clear difference"


def test_clearly_better_whichever_way_is_up():
    good, bad = scored(spoilt(REFERENCES, 0.02, 4), REFERENCES), scored(spoilt(REFERENCES, 0.6, 5), REFERENCES)
    there, back = compare.paired_bootstrap([good], [bad]), compare.paired_bootstrap([bad], [good])
    assert {each.verdict for each in there} == {"better"}
    assert {each.verdict for each in back} == {"worse"}
    assert {each.name: each.difference > 0 for each in there} == {
        "bleu": True,
        "chrf": True,
        "ter": False,
        "exact": True,
        "error_rate": False,
    }
    for one, other in zip(there, back, strict=True):
        assert (one.difference, one.low, one.high) == (-other.difference, -other.high, -other.low)
        assert one.p == other.p < 0.05


def test_pairing_finds_what_two_intervals_would_hide():
    """B is A, but for a few more mistakes on top: a small difference, always in one direction."""
    right = [number % 2 == 0 for number in range(400)]
    worse = [each and number >= 24 for number, each in enumerate(right)]
    (found,) = compare.paired_bootstrap([exact(right)], [exact(worse)])
    assert found.difference == 3
    assert found.verdict == "better"


def test_few_pairs_get_no_verdict():
    for count, verdict in ((1, "too few pairs"), (19, "too few pairs"), (20, "better")):
        (found,) = compare.paired_bootstrap([exact([1] * count)], [exact([0] * count)])
        assert (found.difference, found.verdict) == (100, verdict)


def test_means_over_seeds_are_compared_and_a_lucky_seed_is_not_enough():
    def runs(*rates):
        dice = random.Random(6)
        return [exact([dice.random() < rate for _ in range(3000)]) for rate in rates]

    scattered, steady = runs(0.9, 0.5, 0.6), runs(0.5, 0.5, 0.5)
    (found,) = compare.paired_bootstrap(scattered, steady)
    assert found.ours == pytest.approx(np.mean([scores["exact"].value for scores in scattered]))
    assert found.difference == pytest.approx(16.7, abs=2)
    assert found.verdict == "no clear difference"  # one seed of three makes it
    (alone,) = compare.paired_bootstrap(scattered[:1], steady[:1])
    assert alone.verdict == "better"
    (found,) = compare.paired_bootstrap(runs(0.6, 0.62, 0.61), steady)
    assert found.verdict == "better"


def test_the_same_again():
    sides = [scored(A, REFERENCES)], [scored(B, REFERENCES), scored(A, REFERENCES)]
    assert compare.paired_bootstrap(*sides) == compare.paired_bootstrap(*sides)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_the_interval_leaves_out_zero_exactly_where_p_is_small(items):
    ours, theirs = zip(*items, strict=True)
    (found,) = compare.paired_bootstrap([exact(ours)], [exact(theirs)])
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
    assert 0 < found.p <= 1
    assert found.low <= found.high
