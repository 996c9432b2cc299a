"""What is compared differs in what the claim is about, and in nothing else."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from seq2see.lab import catalogue, learning
from seq2see.lab.claim import Measurement, Measurements, Plan, Trial, judge
from seq2see.lab.claims import cost, heads, parallelism, warm_up
from seq2see.lab.models import ARCHITECTURES, WITHOUT_ATTENTION, small_model
from seq2see.lab.tasks import NEEDLES, Haystack, SymbolTask, some_dates
from seq2see.training import loop


def verdicts(name: str, rows: list[Measurement]) -> dict[str, str]:
    """By the words of the expectations, after two seeds that measured the same."""
    both = Measurements([dataclasses.replace(row, seed=seed) for row in rows for seed in (1, 2)])
    return {each.words: judge(each, both).verdict for each in catalogue.find(name).expectations}


def test_only_the_ramp_has_another_rate_without_warm_up():
    steps, peak = 40, 3e-3
    with_it, without = (
        [warm_up.rate_at(step, steps, peak, warm) for step in range(1, steps + 1)] for warm in (True, False)
    )
    assert with_it[9:] == without[9:]
    assert without[:10] == [peak] * 10
    assert all(one < other for one, other in itertools.pairwise(with_it[:10]))
    assert with_it[-1] == pytest.approx(0.0)


def test_a_training_takes_the_rates_that_it_is_given():
    task = SymbolTask("copy", symbols=3, shortest=1, longest=2)
    model = small_model(1, task.vocabularies, d_model=8, heads=2, d_ff=8)
    before = [weight.detach().clone() for weight in model.parameters()]
    asked = []
    learning.train(model, task.batches(1, 4), 3, rate=lambda step: asked.append(step) or 0.0)
    assert asked == [1, 2, 3]
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("distance", [2, 9])
def test_a_needle_is_far_from_both_ends_and_at_no_place_of_its_own(distance):
    task = Haystack("needle", symbols=11, shortest=distance, longest=distance + distance // 2)
    places = set()
    for source, target in task.draw(np.random.default_rng(1), 60):
        (wanted,) = target
        before = source.index(wanted)
        after = len(source) - before - 1
        assert wanted in NEEDLES
        assert distance <= min(before, after) <= max(before, after) <= distance + distance // 2
        assert all(NEEDLES.stop <= token < task.vocabularies[0] for token in source[:before] + source[before + 1 :])
        places.add((before, after))
    assert len(places) >= 4


def test_seeds_have_other_dates_and_none_is_learned_and_tested():
    one, other = (some_dates(seed, 300, 200, ("en",)) for seed in (1, 2))
    assert len(one.train) == 300
    assert len(one.test) == 200
    for part in ("train", "test"):
        ours, theirs = ({tuple(target) for _, target in getattr(each, part)} for each in (one, other))
        assert len(ours & theirs) < len(ours) / 10
    assert not {tuple(target) for _, target in one.train} & {tuple(target) for _, target in one.test}


def test_a_head_that_says_nothing_can_be_cut_at_no_cost():
    dates = some_dates(1, 60, 20, ("en",))
    model = small_model(1, dates.vocabularies, heads=4, d_model=16)
    with torch.no_grad():
        model.encoder[0].self_attention.w_o.weight[:, 4:8] = 0.0
    growth = heads.loss_growth(model, "encoder", 4, dates.test)
    assert growth[1] == 1.0
    assert all(growth[head] != 1.0 for head in (0, 2, 3))


def test_one_head_is_compared_with_the_papers_eight_not_with_the_luckiest():
    losses = {1: 0.5, 8: 0.6, 16: 0.1}
    rows = [
        Measurement({"heads": count, "weights": 1, "place": "cross"}, 1, {"loss": loss})
        for count, loss in losses.items()
    ]
    assert verdicts("heads", rows)["one head is worse than 8"] == "did not hold"


@pytest.mark.parametrize(("rival", "words"), [("rnn-attention", "RNN with attention"), ("transformer", "Transformer")])
def test_attention_that_gets_worse_on_long_rows_is_told(rival, words):
    def right(model: str, length: int) -> float:
        return 1.0 if length == 4 else 0.0 if model in WITHOUT_ATTENTION else 0.5 if model == rival else 1.0

    rows = [
        Measurement({"task": "reverse", "model": model, "length": length}, 1, {"right": right(model, length)})
        for model in ARCHITECTURES
        for length in (4, 16)
    ]
    found = verdicts("bottleneck", rows)
    assert [each for each, verdict in found.items() if verdict != "held"] == [f"the {words} does not get worse"]


def test_costs_are_measured_alone_with_one_thread_and_counts_need_one_seed(monkeypatch, tmp_path):
    threads, before = [], torch.get_num_threads()
    monkeypatch.setattr(cost, "seconds_of", lambda forward: threads.append(torch.get_num_threads()) or 1.0)
    torch.set_num_threads(2)
    try:
        rows = [
            Measurement(conditions, 1, cost.measure(Trial("cost", conditions, 1, tmp_path)))
            for conditions in cost.trials(Plan(quick=True))
            if max(conditions["n"], conditions["d"]) <= 512
        ]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}
    claim = catalogue.find("cost")
    assert claim.alone
    found = {each.label: judge(each, Measurements(rows)).verdict for each in claim.expectations}
    assert {verdict for label, verdict in found.items() if "seconds" not in label} <= {"held", "did not hold"}
    assert {verdict for label, verdict in found.items() if "seconds" in label} == {"undecided"}
    small = cost.measure(Trial("cost", {"layer": "recurrent", "n": 5, "d": 7, "threads": 1}, 1, tmp_path))
    assert small["bytes"] == 4 * 7 * (5 + 4)  # inputs, and states after the first one; the weights are there anyway


def test_all_learn_by_the_passes_that_training_has_for_them(monkeypatch, tmp_path):
    made, used = [], []

    def fastest(model, settings):
        made.append(model)
        plain = loop.plain_passes(model, settings)
        return lambda piece, tokens: used.append(model) or plain(piece, tokens)

    monkeypatch.setattr(loop, "fastest_passes", fastest)
    conditions = {"length": 4, "width": 16, "rounds": 2}
    numbers = parallelism.measure(Trial("parallelism", conditions, 1, tmp_path))
    assert len(made) == len(numbers) == len(ARCHITECTURES) + 1
    assert [used.count(model) for model in made] == [parallelism.UNTIMED + 2] * len(made)
