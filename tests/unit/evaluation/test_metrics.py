"""Scores against numbers worked out by hand, against sacreBLEU called directly, and against a brute-force recursion."""

import json
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seq2see import config
from seq2see.errors import DataError, SettingError
from seq2see.evaluation import metrics

HYPOTHESES = ["the cat sat on the mat .", "a dog barked at the moon", "we like green tea"]
REFERENCES = ["the cat sat on a mat .", "a dog barked at the full moon", "we all like green tea"]
SECOND = ["there sat a cat on the mat .", None, "we like green tea"]


def listed(texts):
    return [[text] for text in texts]


def brute_force(left, right):
    if not left or not right:
        return len(left) + len(right)
    return min(
        brute_force(left[1:], right[1:]) + (left[0] != right[0]),
        brute_force(left[1:], right) + 1,
        brute_force(left, right[1:]) + 1,
    )


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("", "", 0), ("flaw", "lawn", 2), ("ab", "ba", 2)],
)
def test_edit_distance_by_hand(left, right, distance):
    assert metrics.edit_distance(left, right) == distance


@given(st.lists(st.sampled_from("abc"), max_size=5), st.lists(st.sampled_from("abc"), max_size=5))
def test_edit_distance_equals_the_recursion_that_defines_it(left, right):
    assert metrics.edit_distance(left, right) == brute_force(left, right)


def test_bleu_chrf_and_ter_are_sacrebleus_with_its_signatures():
    scores = metrics.score(listed(HYPOTHESES), listed(REFERENCES))
    for name, theirs in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert scores[name].value == theirs.corpus_score(HYPOTHESES, [REFERENCES]).score
        assert scores[name].signature == str(theirs.get_signature())
    assert "nrefs:1|" in scores["bleu"].signature
    assert "tok:13a" in scores["bleu"].signature
    assert 0 < scores["bleu"].value < 100


def test_items_may_have_different_numbers_of_references():
    references = [[first, second] if second else [first] for first, second in zip(REFERENCES, SECOND, strict=True)]
    scores = metrics.score(listed(HYPOTHESES), references)
    alone = metrics.score(listed(HYPOTHESES), listed(REFERENCES))
    for name, theirs in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert scores[name].value == theirs.corpus_score(HYPOTHESES, [REFERENCES, SECOND]).score
        assert scores[name].value != alone[name].value
        assert "nrefs:var" in scores[name].signature
    assert scores["exact"].value == pytest.approx(100 / 3)  # the third equals its second reference only
    assert alone["exact"].value == 0


def test_exact_and_top_k_count_items():
    hypotheses = [["a", "b", "c"], ["x", "a"], ["p", "q", "r"], ["z"]]
    references = [["a"], ["y", "a"], ["r"], ["a", "b"]]
    for k, value in ((2, 50.0), (3, 75.0), (9, 75.0)):
        scores = metrics.score(hypotheses, references, names=["exact", "top_k"], top_k=k)
        assert [(score.name, score.value) for score in scores] == [("exact", 25.0), (f"top_{k}", value)]


def test_no_top_k_where_the_best_alone_is_asked_for():
    names = [score.name for score in metrics.score([["a", "b"]], [["b c d e"]])]
    assert names == [name for name in metrics.NAMES if name != "top_k"]


def test_every_score_is_a_function_of_its_summed_counts():
    scores = metrics.score([[text, "other"] for text in HYPOTHESES], listed(REFERENCES), top_k=2)
    for score in scores:
        assert len(score.counts) == len(HYPOTHESES)
        assert score.of_sums([sum(column) for column in zip(*score.counts, strict=True)]) == score.value
    alone = metrics.score([[HYPOTHESES[1]]], [[REFERENCES[1]]])
    for score in alone:
        assert scores[score.name].counts[1] == score.counts[0]


def test_error_rate_counts_symbols_over_the_whole_corpus():
    # 1 edit of 3 symbols, and 2 of 4: 3 / 7, not the mean of 1/3 and 2/4
    rate = metrics.score([["K AE T"], ["D AO G"]], [["K AH T"], ["D AA G Z"]], names=["error_rate"])["error_rate"]
    assert rate.value == pytest.approx(100 * 3 / 7)
    assert rate.signature.startswith("unit:symbols|refs:best|version:")


def test_error_rate_takes_the_reference_of_lowest_rate():
    # 2 edits of 4 symbols beat 1 edit of 1
    assert metrics.score([["a b"]], [["x", "a b c d"]], names=["error_rate"])["error_rate"].value == 50
    assert metrics.score([["a"]], [["x", "a b c"]], names=["error_rate"])["error_rate"].value == pytest.approx(200 / 3)


def test_error_rate_by_characters():
    rate = metrics.score([["a bc"]], [["a bd"]], names=["error_rate"], unit="characters")["error_rate"]
    assert rate.value == 25  # the space counts
    assert rate.signature.startswith("unit:characters|")


def test_an_empty_translation_costs_the_whole_reference():
    scores = metrics.score([[""]], [["a b"]])
    assert scores["error_rate"].value == 100
    assert scores["exact"].value == 0


@pytest.mark.parametrize("tokenize", ["none", "13a", "char", "ko-mecab"])
def test_bleu_tokenizers(tokenize):
    hypotheses, references = ["나는 학생입니다. 학교에 갑니다."], ["나는 학생이다. 학교에 갑니다."]
    ours = metrics.score([hypotheses], [references], tokenize, names=["bleu"])["bleu"]
    assert ours.value == BLEU(tokenize=tokenize).corpus_score(hypotheses, [references]).score
    assert f"tok:{tokenize}" in ours.signature


def test_mistakes_are_explained():
    with pytest.raises(SettingError, match="Did you mean '13a'"):
        metrics.score([["a"]], [["a"]], tokenize="13")
    with pytest.raises(SettingError, match="Did you mean 'bleu'"):
        metrics.score([["a"]], [["a"]], names=["blue"])
    with pytest.raises(SettingError, match="Did you mean 'characters'"):
        metrics.score([["a"]], [["a"]], unit="character")
    with pytest.raises(DataError, match="2 translations but 1 references"):
        metrics.score([["a"], ["b"]], [["a"]])
    with pytest.raises(DataError, match="no translations"):
        metrics.score([], [])
    with pytest.raises(DataError, match="item 2: no reference"):
        metrics.score([["a"], ["b"]], [["a"], []])
    with pytest.raises(DataError, match="item 1: no translation"):
        metrics.score([[]], [["a"]])


def test_korean_tokenizer_without_its_library(monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ko_mecab.MeCab", None)
    with pytest.raises(SettingError, match=r"pip install 'sacrebleu\[ko\]'"):
        metrics.score([["가"]], [["가"]], tokenize="ko-mecab")


@pytest.mark.parametrize("name", [name for name in get_args(config.Metric) if name != "loss"])
def test_one_is_the_same_number(name):
    assert (
        metrics.one(name, HYPOTHESES, listed(REFERENCES))
        == metrics.score(listed(HYPOTHESES), listed(REFERENCES))[name].value
    )


def test_full_stops_after_a_blank_are_no_reason_to_talk(caplog):
    """sacreBLEU guesses from a hundred of them that somebody forgot to join words."""
    assert metrics.one("bleu", ["오늘 은 잘 가 ."] * 200, [["오늘 은 잘 가 ."]] * 200) == pytest.approx(100)
    assert caplog.records == []


def test_which_way_is_up():
    better = {name: name not in config.LOWER_IS_BETTER for name in get_args(config.Metric)}
    assert better == {"loss": False, "bleu": True, "chrf": True, "ter": False, "exact": True, "error_rate": False}


def test_scores_go_to_json():
    scores = metrics.score([["a b", "a"]], [["a b"]], top_k=2)
    back = json.loads(json.dumps(scores.as_dict()))
    assert list(back) == ["top_2" if name == "top_k" else name for name in metrics.NAMES]
    assert back["exact"]["value"] == 100
    assert back["exact"]["signature"].startswith("refs:any|version:")


def test_words_without_blanks_are_cut_by_characters() -> None:
    said, wanted = ["我喜欢苹果。", "他在家。"], [["我喜欢苹果。"], ["他在家里。"]]
    found = metrics.score([[text] for text in said], wanted, names=["bleu"])["bleu"]
    assert "tok:char" in found.signature
    assert found.value > 50
    assert "bleu" in metrics.score([[text] for text in said], wanted, "13a", names=["bleu"]).inapplicable


def test_import_is_cheap():
    code = (
        "import sys, seq2see.evaluation.metrics; "
        "print([name for name in ('torch', 'sacrebleu', 'numpy') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


SHORT = ["one", "two words", "and three words"]


@pytest.mark.parametrize(("tokenize", "texts"), [("13a", SHORT), ("none", SHORT), ("char", ["a", "ab", "abc"])])
def test_bleu_does_not_apply_where_no_reference_has_four_words(tokenize, texts):
    """Perfect translations would have BLEU 0.00 beside exact 100.00."""
    assert BLEU(tokenize=tokenize).corpus_score(texts, [texts]).score == 0
    scores = metrics.score(listed(texts), listed(texts), tokenize)
    assert scores["exact"].value == 100
    assert [score.name for score in scores] == [name for name in metrics.NAMES if name not in ("bleu", "top_k")]
    found = scores.as_dict()["bleu"]
    assert found["value"] is None
    assert "4 words" in found["reason"]
    with pytest.raises(DataError, match="bleu does not apply"):
        scores["bleu"]


@pytest.mark.parametrize("hypothesis", ["one", "one of far too many words"])
def test_it_is_the_references_that_decide(hypothesis):
    assert "bleu" in metrics.score([[hypothesis]], [["one"]]).inapplicable
    assert not metrics.score([[hypothesis]], [["one", "one of many words"]]).inapplicable
    assert not metrics.score([[hypothesis], ["a"]], [["one"], ["a b c d"]]).inapplicable


def test_by_characters_short_words_are_long_enough():
    assert metrics.score([["abcd"]], [["abcd"]], "char")["bleu"].value == pytest.approx(100)


def test_nothing_is_chosen_by_a_score_that_does_not_apply():
    assert metrics.one("bleu", ["one of far too many words"], [["one"]]) == 0
    with pytest.raises(SettingError, match=r"training.metric = 'bleu' does not apply.*--metric exact"):
        metrics.check_metric("bleu", listed(SHORT))
    metrics.check_metric("bleu", listed(REFERENCES))
    metrics.check_metric("exact", listed(SHORT))
