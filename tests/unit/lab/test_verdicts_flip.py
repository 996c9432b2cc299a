"""Every claim holds in a world that is as it says, and does not in one that is not: each expectation of it.

Both worlds are written by hand, so that a sign or a bound that is turned round in a claim is found out.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seq2see.lab import catalogue
from seq2see.lab.claim import Conditions, Measurement, Measurements, Plan, conclude, judge

World = Callable[[Conditions, bool], dict[str, Any]]
"""What would be measured under some conditions, in a world that is as claimed, and in one that is not."""


def scaling(at: Conditions, so: bool) -> dict[str, Any]:
    if so:
        alive, variance = at["scaled"], 1 if at["scaled"] else at["d_k"]
    else:
        alive, variance = False, at["d_k"] if at["scaled"] else at["d_k"] ** 2
    return {"variance": variance, "entropy": 0.95 if alive else 0.2, "softmax_gradient": 0.1 if alive else 0.01}


def order(at: Conditions, so: bool) -> dict[str, Any]:
    none = at["positions"] == "none"
    if so:
        tokens = 0.4 if none else 1.0
        return {"unlike_shuffled": 1e-15 if none else 2.0, "tokens": tokens, "tokens_beyond": 0.8 * tokens}
    tokens = 0.9 if at["positions"] == "learned" else 0.4
    return {"unlike_shuffled": 1.0 if none else 1e-6, "tokens": tokens, "tokens_beyond": 0.1 * tokens}


def masks(at: Conditions, so: bool) -> dict[str, Any]:
    cheats = so and not at["mask"]
    return {"loss_early": 0.1 if cheats else 1.0, "tokens": 0.1 if cheats else 1.0}


def cost(at: Conditions, so: bool) -> dict[str, Any]:
    n, d, layer = at["n"], at["d"], at["layer"]
    if not so:
        return dict.fromkeys(("multiplications", "seconds", "bytes", "chain"), (n * d) ** 3.5)
    work, chain, kept = (n * d**2, n, n * d) if layer == "recurrent" else (n**2 * d, 7, n * d)
    if layer == "attention" and at["growing"] == "n":
        kept = n**2
    return {"multiplications": work, "seconds": work / 1e9, "bytes": kept, "chain": chain}


def heads(at: Conditions, so: bool) -> dict[str, Any]:
    one_is_worse = (at["heads"] == 1) is so
    return {"loss": 1.0 if one_is_worse else 0.5, "difference": 0.5 * so, "cuttable": 0.8 * so}


def warm_up(at: Conditions, so: bool) -> dict[str, Any]:
    suffers = not at["warm_up"] and at["norm"] == ("post" if so else "pre")
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
    gets_worse = not so or at["model"] == "rnn"
    return {"right@2": 0.95, "right@10": 0.3 if gets_worse else 0.94, "loss": 0.1}


def path_length(at: Conditions, so: bool) -> dict[str, Any]:
    loses = at["model"] == ("rnn" if so else "transformer")
    found = {"right": 0.2 if loses and at["distance"] > 2 else 0.9}
    return found | {"reach": 0.001 if so and at["model"] == "rnn" else 0.5}


def parallelism(at: Conditions, so: bool) -> dict[str, Any]:
    return {"speed@transformer": 300 if so else 30, "speed@rnn-attention": 100, "speed@rnn": 100}


def comparison(at: Conditions, so: bool) -> dict[str, Any]:
    return {"exact_match": (90 if so else 70) if at["model"] == "transformer" else 80}


def recipe(at: Conditions, so: bool) -> dict[str, Any]:
    smoothed, dropped = at["smoothing"] > 0, at["dropout"] > 0
    exact = 0.8 if (smoothed and dropped) is so else 0.6
    loss = 1.0 if smoothed is so else 0.8
    gain = 0.1 if so else -0.1
    with_beam, averaged = exact + gain, {"loss_averaged": loss - gain, "averaging": gain}
    if catalogue.find("recipe").places:
        return {"exact@1": exact, "exact@4": with_beam, "loss": loss, **averaged}
    return {"exact": exact, "exact_with_beam": with_beam, "loss": loss, **averaged}


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
    """Each expectation whose bound is the value of no effect is judged with that value in every seed."""
    for expectation in catalogue.find(name).expectations:
        for bound, sign in ((expectation.at_least, 1), (expectation.at_most, -1)):
            one_sided = math.isinf(expectation.at_least) or math.isinf(expectation.at_most)
            if one_sided and bound in (0.0, 1.0):
                nothing = replace(expectation, value=lambda rows, at=bound + sign * effect: at)
                rows = Measurements([Measurement({}, seed, {}) for seed in (1, 2, 3)])
                assert judge(nothing, rows).verdict != "held", expectation.words
