"""Every claim can be measured, judged and drawn: what its expectations and charts ask for is what it measures."""

import math

import pytest

from seq2see.lab import catalogue, charts
from seq2see.lab.claim import Measurement, Plan, Trial, conclude
from seq2see.lab.claims import cost

SMALLER = {
    "scaling": {"queries": 50},
    "order": {"steps": 5, "longest": 3, "beyond": 5},
    "longer": {"steps": 5, "longest": 3, "beyond": 5},
    "masks": {"steps": 20},
    "cost": {},
    "heads": {"steps": 5, "pairs": 100, "tests": 8, "width": 16},
    "warm-up": {"steps": 5},
    "residuals": {"steps": 5, "fresh": 2},
    "recipe": {"steps": 12, "pairs": 100, "tests": 40},
    "bottleneck": {"steps": 2, "longest": 4},
    "path-length": {"steps": 2},
    "parallelism": {"width": 16, "rounds": 1},
}


def test_no_claim_is_forgotten():
    assert SMALLER.keys() == catalogue.CLAIMS.keys() - {"comparison"}  # which trains whole runs: test_comparison.py


@pytest.mark.parametrize("name", SMALLER)
def test_what_is_asked_for_is_measured(name, tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "REPEATED_FOR", 0.0)
    claim = catalogue.find(name)
    rows = []
    for conditions in claim.trials(Plan(quick=True)):
        smaller = conditions | {key: value for key, value in SMALLER[name].items() if conditions.get(key)}
        numbers = claim.measure(Trial(name, smaller, 1, tmp_path))
        rows += [Measurement(smaller, seed, numbers) for seed in (1, 2)]
    outcome = conclude(claim, rows)
    assert outcome.controls
    for judgement in outcome.judgements + outcome.controls:
        assert not math.isnan(judgement.mean), judgement.label
    for chart in claim.charts:
        drawn = outcome.measured.where(**chart.only)
        assert any(chart.number in row.numbers for row in drawn)
        assert all(key in row.conditions for row in drawn for key in (chart.along, *chart.by))
    figure = charts.draw(claim.charts, outcome.measured)
    assert len(figure.axes) == len(claim.charts)
