"""Every claim holds in a world that is as it says, and does not in one that is not: each expectation of it.

Both worlds are written by hand, so that a sign or a bound that is turned round in a claim is found out.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seq2see.lab import catalogue
from seq2see.lab.claim import Conditions, Measurement, Measurements, Plan, conclude, judge
from seq2see.lab.claims.parallelism import SECOND
from seq2see.lab.models import ARCHITECTURES, WITHOUT_ATTENTION

World = Callable[[Conditions, bool], dict[str, Any]]
"""What would be measured under some conditions, in a world that is as claimed, and in one that is not."""


def scaling(at: Conditions, so: bool) -> dict[str, Any]:
    if at["queries_are"] != "of variance 1":
        return {"variance": 1, "entropy": 0.95, "softmax_gradient": 0.1}
    if so:
        alive, variance = at["scaled"], 1 if at["scaled"] else at["d_k"]
    else:
        alive, variance = at["d_k"] < 5, at["d_k"] if at["scaled"] else at["d_k"] ** 2
    return {"variance": variance, "entropy": 0.95 if alive else 0.2, "softmax_gradient": 0.1 if alive else 0.01}


def order(at: Conditions, so: bool) -> dict[str, Any]:
    none = at["positions"] == "none"
    if at["task"] == "sort":
        return {"unlike_shuffled": 9.0, "tokens": 1.0, "tokens_beyond": 1.0}
    beyond = 0.8 if at["positions"] == "sinusoid" and so else 0.2
    if so:
        return {"unlike_shuffled": 1e-15 if none else 2.0, "tokens": 0.4 if none else 1.0, "tokens_beyond": beyond}
    tokens = 0.9 if at["positions"] == "learned" else 0.41 if none else 0.4
    return {"unlike_shuffled": 1.0 if none else 1e-6, "tokens": tokens, "tokens_beyond": beyond}


def masks(at: Conditions, so: bool) -> dict[str, Any]:
    cheats = so and not at["mask"]
    return {"loss_early": 0.1 if cheats else 1.0, "tokens": 0.1 if cheats else 1.0}


def cost(at: Conditions, so: bool) -> dict[str, Any]:
    n, d, layer = at["n"], at["d"], at["layer"]
    if not so:
        steep = layer != "position-wise"
        return dict.fromkeys(("multiplications", "seconds", "bytes", "chain"), (n * d) ** 3.5 if steep else 1.0)
    work, chain, kept = (n**2 * d, 7, n * d) if "attention" in layer else (n * d**2, 7, n * d)
    if layer == "recurrent":
        chain = n
    if layer == "attention" and at["growing"] == "n":
        kept = n**2
    return {"multiplications": work, "seconds": work / 1e9, "bytes": kept, "chain": chain}


def heads(at: Conditions, so: bool) -> dict[str, Any]:
    one_is_worse = (at["heads"] == 1) is so
    cuttable = 0.8 * so if at["heads"] > 1 else 0.0
    return {"loss": 1.0 if one_is_worse else 0.5, "difference": 0.5 * so, "untrained": 0.0, "cuttable": cuttable}


def warm_up(at: Conditions, so: bool) -> dict[str, Any]:
    suffers = at["depth"] > 1 and not at["warm_up"] and at["norm"] == ("post" if so else "pre")
    return {"loss": 2.0 if suffers else 0.5, "failed": 0.0}


def residuals(at: Conditions, so: bool) -> dict[str, Any]:
    if not so:
        return {"gradient_digits": 5.0 * at["norm"], "alike": 0.5, "loss": 1.0}
    whole = at["residuals"] and at["norm"]
    return {
        "gradient_digits": 0.0 if at["norm"] else 2.0,
        "alike": 0.5 if at["residuals"] else 0.999,
        "loss": 0.2 if whole else 1.0,
    }


def bottleneck(at: Conditions, so: bool) -> dict[str, Any]:
    gets_worse = at["task"] == "reverse" and (not so or at["model"] in WITHOUT_ATTENTION)
    return {"right@2": 0.95, "right@10": 0.3 if gets_worse else 0.94, "loss": 0.1}


def path_length(at: Conditions, so: bool) -> dict[str, Any]:
    loses = (at["model"] in WITHOUT_ATTENTION) is so
    found = {"right": 0.2 if loses and at["distance"] > 2 else 0.9}
    return found | {"reach": 0.001 if so and at["model"] == "rnn" else 0.5}


def parallelism(at: Conditions, so: bool) -> dict[str, Any]:
    ours = 300 if so else 30
    return {f"speed@{kind}": ours if kind.startswith("transformer") else 100 for kind in (*ARCHITECTURES, SECOND)}


def comparison(at: Conditions, so: bool) -> dict[str, Any]:
    return {"exact_match": (90 if so else 70) if at["model"] == "transformer" else 80}


def recipe(at: Conditions, so: bool) -> dict[str, Any]:
    smoothed, dropped = at["smoothing"] > 0, at["dropout"] > 0
    exact = 0.8 if (smoothed and dropped) is so else 0.6
    loss = 1.0 if smoothed is so else 0.8
    beam = exact + (0.1 if so else -0.1)
    averaged = {"averaging": 0.1 if so else -0.1, "one_earlier": 0.0}
    return {"exact@1": exact, "exact@4": beam, "exact@10": beam, "loss": loss, **averaged}


WORLDS: dict[str, World] = {
    "scaling": scaling,
    "order": order,
    "longer": order,
    "masks": masks,
    "cost": cost,
    "heads": heads,
    "warm-up": warm_up,
    "residuals": residuals,
    "bottleneck": bottleneck,
    "path-length": path_length,
    "parallelism": parallelism,
    "comparison": comparison,
    "recipe": recipe,
}


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("so", "verdict"), [(True, "held"), (False, "did not hold")])
@pytest.mark.parametrize("name", catalogue.CLAIMS)
def test_a_verdict_flips_when_the_world_is_another(name, so, verdict, quick):
    claim, world = catalogue.find(name), WORLDS[name]
    measured = [Measurement(at, seed, world(at, so)) for at in claim.trials(Plan(quick)) for seed in (1, 2, 3)]
    outcome = conclude(claim, measured)
    assert outcome.verdict == verdict
    assert all(control.verdict == "did not hold" for control in outcome.controls)
    assert {each.label: each.verdict for each in outcome.judgements} == {
        each.label: verdict for each in outcome.judgements
    }


@pytest.mark.parametrize("number", [0.0, 0.05, 0.5, 1.0, 100.0])
@pytest.mark.parametrize("name", catalogue.CLAIMS)
def test_no_claim_holds_where_nothing_makes_a_difference(name, number):
    """Every trial measures the same numbers, so no part of a model has any effect."""
    claim, world = catalogue.find(name), WORLDS[name]
    measured = [
        Measurement(at, seed, dict.fromkeys(world(at, True), number))
        for at in claim.trials(Plan(True))
        for seed in (1, 2, 3)
    ]
    assert conclude(claim, measured).verdict != "held"


@pytest.mark.parametrize("effect", [0.0, 1e-12])
@pytest.mark.parametrize("name", catalogue.CLAIMS)
def test_no_expectation_of_an_effect_holds_by_none_or_by_rounding(name, effect):
    """Each expectation and each control is judged with the value of no effect in every seed."""
    claim = catalogue.find(name)
    for expectation in (*claim.expectations, *claim.controls):
        nothing = replace(expectation, value=lambda rows, at=expectation.none + effect: at)
        rows = Measurements([Measurement({}, seed, {}) for seed in (1, 2, 3)])
        assert judge(nothing, rows).verdict == ("held" if expectation.absent else "did not hold"), expectation.words


@pytest.mark.parametrize("name", catalogue.CLAIMS)
def test_an_effect_that_just_matters_is_decided_the_other_way(name):
    claim = catalogue.find(name)
    for expectation in (*claim.expectations, *claim.controls):
        enough = replace(expectation, value=lambda rows, at=expectation: at.none + 1.01 * (at.matters - at.none))
        rows = Measurements([Measurement({}, seed, {}) for seed in (1, 2, 3)])
        assert judge(enough, rows).verdict == ("did not hold" if expectation.absent else "held"), expectation.words


@pytest.mark.parametrize("name", catalogue.CLAIMS)
def test_a_control_that_shows_the_effect_takes_the_trust_away(name):
    claim, world = catalogue.find(name), WORLDS[name]
    control = claim.controls[0]
    broken = replace(control, value=lambda rows: control.none if control.absent else 2 * control.matters - control.none)
    measured = [Measurement(at, seed, world(at, True)) for at in claim.trials(Plan(True)) for seed in (1, 2, 3)]
    assert conclude(replace(claim, controls=(broken,)), measured).verdict == "not trusted"
