"""Two models on one sentence: probabilities are those of a forced translation, and differences are found by letters."""

import math
from types import SimpleNamespace

import pytest

from seq2see.lens import side_by_side
from seq2see.run import load


def said(text, spans):
    """A look of which only the translation is known."""
    return SimpleNamespace(source="s", translation=text, source_spans=[(0, 1), (0, 0)], target_spans=[*spans, (0, 0)])


LETTERS = [(0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.fixture(scope="module")
def other(once):
    """A model with other tokenizers (words) and without attention, which has learned nothing."""
    from seq2see import api

    def make(folder):
        words = ["cab", "bac", "abba", "dada"]
        lines = [f"{one} {two}\t{two.upper()}\n" for one in words for two in words]
        (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
        model = {"architecture": "rnn", "encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
        training = {"max_steps": 2, "validate_every": 2, "average": 1}
        data = {"source_tokenizer": "symbols", "target_tokenizer": "symbols", "source_tags": "none"}
        api.train(
            folder / "pairs.tsv", folder / "run", settings={"model": model, "training": training, "data": data}, tune=0
        )

    return once("words-without-attention", make) / "run"


@pytest.fixture(scope="module")
def runs(trained, other):
    return load(trained), load(other)


def test_each_model_scores_both_translations(runs):
    run, other = runs
    both = run.compare_looks(other, "cab")
    assert both.translations == (run.look("cab").translation, other.look("cab").translation)
    own = both.looks[0].confidence.probability
    assert both.log_probability[0][0] == pytest.approx(sum(math.log(each) for each in own), rel=1e-5)
    forced = run.look("cab", target="BAC").confidence.probability
    same = run.compare_looks(run, "cab")
    assert same.difference is None
    assert same.log_probability[0][1] == same.log_probability[1][0] == both.log_probability[0][0]
    swapped = side_by_side.compare(("a", "b"), (run.bundle,) * 2, (run.look("cab"), run.look("cab", target="BAC")))
    assert swapped.log_probability[0][1] == pytest.approx(sum(math.log(each) for each in forced), rel=1e-4)
    assert swapped.difference == (0, (0, 0))


def test_a_model_without_attention_has_none_and_other_tokens(runs):
    both = runs[0].compare_looks(runs[1], "cab", target="CAB")
    assert both.looks[0].cross
    assert both.looks[1].cross == []
    assert both.looks[0].target_tokens != both.looks[1].target_tokens
    assert both.difference is None
    assert both.json()["looks"][1]["cross"] == []
    assert "CAB" in repr(both)


def test_what_has_no_token_has_no_probability(runs):
    run, other = runs
    both = side_by_side.compare(("a", "b"), (run.bundle, other.bundle), (run.look("cab"), other.look("cab")))
    unknown = SimpleNamespace(**{**vars(both.looks[0]), "translation": "漢字", "target_tokens": ["漢字", "</s>"]})
    found = side_by_side.compare(("a", "b"), (run.bundle, other.bundle), (both.looks[0], unknown))
    assert found.log_probability[0][1] is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (said("abcd", LETTERS), said("abcd", [(0, 2), (2, 4)]), None),
        (said("abcd", LETTERS), said("abxd", [(0, 2), (2, 4)]), (2, (2, 1))),
        (said("abcd", LETTERS), said("ab", LETTERS[:2]), (2, (2, 2))),  # the end token of the shorter one
        (said("", []), said("ab", [(0, 2)]), (0, (0, 0))),
        (said("e\u0301", [(0, 2)]), said("e\u0300", [(0, 2)]), (0, (0, 0))),  # not between a letter and its accent
    ],
)
def test_the_first_difference(first, second, expected):
    assert side_by_side.first_difference(first, second) == expected


def test_tokens_of_the_same_letters_are_linked():
    first, second = said("abcd", LETTERS), said("abxd", [(0, 2), (2, 4)])
    found = side_by_side.links(first, second)
    assert found["target"] == [(0, 0), (1, 0)]  # not beyond the difference
    assert found["source"] == [(0, 0), (1, 1)]
    second.source, second.source_spans = "<2de> s", [(0, 5), (6, 7), (0, 0)]
    assert side_by_side.links(first, second)["source"] == [(0, 1), (1, 2)]  # behind the tag
    same = said("abcd", [(0, 4)])
    assert side_by_side.links(first, same)["target"] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]
