"""Head pruning curves: what is useless goes first and costs nothing, and what matters goes last."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from seq2see.errors import DataError, SettingError
from seq2see.evaluation import metrics
from seq2see.lens import heads, pruning
from seq2see.lens.heads import Head
from seq2see.lens.pruning import Curve, PruningPlan
from seq2see.run import load
from seq2see.text.pair import Pair

PAIRS = [Pair(word, word.upper(), "") for word in ("bad", "cab", "badge", "h", "face", "head", "deaf", "bag")]
USELESS = Head("cross", 0, 1)
NEEDED = Head("cross", 0, 0)


def exact(said, references):
    return metrics.one("exact", said, references)


@pytest.fixture(scope="module")
def run(trained):
    return load(trained)


@pytest.fixture(scope="module")
def made(run):
    """One head of the cross-attention does all: the other one has an output projection of zeros."""
    model = copy.deepcopy(run.bundle.model)
    attention = model.decoder[0].cross_attention
    with torch.no_grad():
        attention.w_o.weight[:, attention.d_value :] = 0.0
    return replace(run.bundle, model=model)


@pytest.fixture(scope="module")
def found(made):
    return pruning.prune(made, PAIRS, exact, "exact")


def test_a_head_without_output_is_removed_first_and_costs_nothing(made, found):
    cross = found.curve("cross")
    assert cross.heads == [USELESS, NEEDED]
    assert cross.removed == [0, 1, 2]
    assert cross.loss[1] == cross.loss[0]
    assert cross.score[1] == cross.score[0]
    assert cross.loss[2] > cross.loss[0] + 0.5
    assert cross.removable == 1
    rises = {each.head: each.rise for each in found.importance}
    assert rises[USELESS] == 0
    assert rises[NEEDED] > 0.5
    assert [each.rise for each in found.importance] == sorted(rises.values())


def test_curves_are_what_the_model_does_without_these_heads(made, found):
    whole = found.curve("all")
    assert whole.removed == list(range(7))
    assert sorted(whole.heads) == sorted(heads.every_head(made))
    expected = heads.worth(made, PAIRS[1::2], [whole.heads[:count] for count in range(7)], exact)
    assert whole.loss == pytest.approx([each.loss for each in expected.without])
    assert whole.score == [each.score for each in expected.without]
    assert (found.pairs, found.ranked_on) == (4, 4)


def test_random_orders_are_the_same_by_seed(made, found):
    assert pruning.prune(made, PAIRS, exact, "exact") == found
    other = pruning.prune(made, PAIRS, exact, "exact", PruningPlan(seed=2))
    assert [each.heads for each in other.random()] != [each.heads for each in found.random()]
    assert other.curve() == found.curve(), "the seed is for the control only"
    assert len(found.random("encoder")) == 3
    for each in found.random():
        assert sorted(each.heads) == sorted(found.curve().heads)
        assert (each.loss[0], each.loss[-1]) == (found.curve().loss[0], found.curve().loss[-1])


def test_a_curve_has_a_limited_number_of_points(made):
    few = pruning.prune(made, PAIRS, exact, "exact", PruningPlan(orders=0, points=2))
    assert few.curve("all").removed == [0, 3, 6]
    assert few.random() == []
    assert [each.part for each in few.curves] == few.parts == ["encoder", "decoder", "cross", "all"]


def test_a_single_attention_needs_no_curve_of_all():
    assert pruning._parts([USELESS, NEEDED]) == [("cross", [USELESS, NEEDED])]


@pytest.mark.parametrize(
    ("loss", "removable"),
    [([1.0, 1.05, 1.09], 2), ([1.0, 1.2, 1.0], 0), ([1.0, 1.05, 3.0], 1), ([1.0, 0.5, 0.4], 2)],
)
def test_heads_are_removable_until_the_loss_first_rises_by_a_tenth(loss, removable):
    assert Curve("cross", "importance", [USELESS, NEEDED], [0, 1, 2], loss, [0.0] * 3).removable == removable


def test_a_run_prunes_by_its_metric_and_is_whole_afterwards(run):
    told = []
    own = load(run.folder)
    own.watch = lambda *words: told.append(words)
    found = own.prune_heads([(pair.source, pair.target) for pair in PAIRS], orders=1)
    assert found.metric == "exact"
    assert found.curve().score[0] == 100
    assert found.curve().score[-1] == 0
    assert ("ranking heads by the loss without each", 6, 6) in told
    assert told[-1][1] == told[-1][2]
    assert own.translate(["bad"]) == ["BAD"]
    assert json.loads(json.dumps(found.json())) == found.json()
    table = found._repr_html_()
    assert "<th scope='row' style='text-align:start'>all</th>" in table
    assert own.prune_heads(orders=0, points=1).pairs == min(200, len(own.validation_pairs)) // 2


def test_what_cannot_be_pruned_is_told(run):
    for few in ([], PAIRS[:1]):
        with pytest.raises(DataError, match="at least 2 pairs"):
            run.prune_heads(few)
    for wrong in ({"orders": -1}, {"points": 0}):
        with pytest.raises(SettingError, match=r"orders=.*points="):
            run.prune_heads(PAIRS, **wrong)
