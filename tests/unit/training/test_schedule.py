import itertools
import math

import pytest

from seq2see.config import Training
from seq2see.training.schedule import KNOWN_SPEED, is_warmed_up, noam, rate

PAPER = {"peak": 0.0, "d_model": 512, "warmup_steps": 4000, "max_steps": 100_000}
OWN = {"peak": 0.003, "d_model": 64, "warmup_steps": 100, "max_steps": 1100}


@pytest.mark.parametrize("step", [1, 7, 3999, 4000, 4001, 16_000, 100_000, 500_000])
def test_noam_without_a_peak_is_the_papers(step):
    assert rate(step, schedule="noam", **PAPER) == pytest.approx(noam(step, 512, 4000))


@pytest.mark.parametrize("schedule", ["noam", "cosine"])
def test_warm_up_is_a_line_to_the_peak(schedule):
    rates = [rate(step, schedule=schedule, **OWN) for step in range(1, 101)]
    assert rates == pytest.approx([0.003 * step / 100 for step in range(1, 101)])


@pytest.mark.parametrize("schedule", ["noam", "cosine"])
def test_the_papers_peak_where_none_is_given(schedule):
    assert rate(4000, schedule=schedule, **PAPER) == pytest.approx(6.98771e-4, rel=1e-6)


def test_noam_falls_with_the_root_from_a_peak_of_its_own():
    assert rate(400, schedule="noam", **OWN) == pytest.approx(0.0015)
    assert rate(900, schedule="noam", **OWN) == pytest.approx(0.001)


def test_cosine_falls_to_nothing_at_the_last_step():
    assert rate(350, schedule="cosine", **OWN) == pytest.approx(0.003 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert rate(600, schedule="cosine", **OWN) == pytest.approx(0.0015)
    assert rate(1100, schedule="cosine", **OWN) == pytest.approx(0, abs=1e-12)
    assert rate(1500, schedule="cosine", **OWN) == pytest.approx(0, abs=1e-12), "and does not come back"


@pytest.mark.parametrize("schedule", ["noam", "cosine"])
def test_the_rate_never_rises_after_warm_up(schedule):
    rates = [rate(step, schedule=schedule, **OWN) for step in range(100, 1101)]
    assert all(later < earlier for earlier, later in itertools.pairwise(rates))


@pytest.mark.parametrize("schedule", ["noam", "cosine"])
def test_warm_up_that_outlasts_training(schedule):
    options = OWN | {"warmup_steps": 2000}
    assert rate(1100, schedule=schedule, **options) == pytest.approx(0.003 * 1100 / 2000)
    assert rate(2001, schedule=schedule, **options) <= 0.003


def test_the_first_step_is_not_wasted():
    assert rate(1, schedule="noam", **(OWN | {"warmup_steps": 1})) == pytest.approx(0.003)
    assert noam(0, 512, 4000) == noam(1, 512, 4000), "no division by zero before the first step"


def test_a_time_limit_ends_the_cosine_before_the_last_step():
    def at(step, share):
        return rate(step, schedule="cosine", time_share=share, **OWN)

    assert at(350, 0.3) == at(350, 0.0), "the steps will be done before the time is over"
    assert at(20, KNOWN_SPEED / 2) == at(20, 0.0), "the first updates are slow, which says nothing about the rest"
    assert at(350, 0.5) == pytest.approx(0.0015), "the time is further than the steps"
    assert at(350, 1.0) == pytest.approx(0, abs=1e-12)
    assert at(350, 1.2) == pytest.approx(0, abs=1e-12), "a step that takes long may end after the limit"
    assert at(50, 0.5) == pytest.approx(0.0015), "warm-up is over when half of the time is"
    assert rate(350, schedule="noam", time_share=0.9, **OWN) == rate(350, schedule="noam", **OWN)


def test_the_cosine_of_a_time_limit_falls_evenly_whatever_the_speed():
    rates = [rate(step, schedule="cosine", time_share=step / 200, **OWN) for step in range(101, 201)]
    assert all(later < earlier for earlier, later in itertools.pairwise(rates))
    assert rates[-1] == pytest.approx(0, abs=1e-12)


def test_a_short_time_limit_shortens_the_warm_up():
    options = OWN | {"warmup_steps": 400, "max_steps": 6620}
    rates = [rate(step, schedule="cosine", time_share=step / 222, **options) for step in range(1, 223)]
    assert max(rates) == pytest.approx(0.5 * 0.003 * (1 + math.cos(math.pi * 37 / 222)), rel=0.01)
    assert rates.index(max(rates)) + 1 == 37, "a sixth of the steps for which there is time"
    assert all(later > earlier for earlier, later in itertools.pairwise(rates[:37]))
    assert max(later - earlier for earlier, later in itertools.pairwise(rates[:37])) < 0.1 * 0.003, "without a jump"
    assert rates[-1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("warmup_steps", [1, 50, 183, 184, 500, 1100, 2000])
def test_a_time_limit_that_is_not_reached_changes_nothing(warmup_steps):
    options = OWN | {"warmup_steps": warmup_steps}
    for step in range(1, 1101):
        by_steps = rate(step, schedule="cosine", **options)
        assert rate(step, schedule="cosine", time_share=0.9999 * step / 1100, **options) == by_steps
        hardly = rate(step, schedule="cosine", time_share=1.0001 * step / 1100, **options)
        assert hardly <= by_steps * 1.0001


def test_whether_the_warm_up_is_over():
    training = Training(schedule="cosine", warmup_steps=400, max_steps=6620)
    assert not is_warmed_up(222, 150.0, training)
    assert is_warmed_up(400, 150.0, training)
    limited = Training(schedule="cosine", warmup_steps=400, max_steps=6620, max_minutes=2.5)
    assert is_warmed_up(222, 150.0, limited)
    assert not is_warmed_up(30, 20.0, limited)
    assert not is_warmed_up(222, 150.0, Training(schedule="noam", warmup_steps=400, max_steps=6620, max_minutes=2.5))
