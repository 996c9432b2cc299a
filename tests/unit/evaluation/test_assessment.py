"""A model that learnt nothing is told from one that did, and the cause from how the losses went."""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stores
from seq2see import config
from seq2see.evaluation import assessment, metrics
from seq2see.evaluation.assessment import Assessment, Frequencies
from seq2see.tokens import store, tokenizers

DICE = random.Random(4)
WORDS = ["".join(DICE.sample("abcdefghijklmnop", 5)) for _ in range(60)]


def trained(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "epoch": 0, "loss": loss, "smoothed_loss": loss, "rate": 1e-3}


def validated(step: int, loss: float, best: bool = True, what: str = "model") -> dict[str, Any]:
    return {"step": step, "validation": {"loss": loss}, "best": best, "what": what}


FLAT = [trained(1000, 2.0), validated(1000, 2.0), trained(2000, 1.99), validated(2000, 1.99)]


def judged(
    hypotheses: list[str],
    targets: list[str],
    sources: list[str] = WORDS,
    rows: list[dict[str, Any]] = FLAT,
    most_frequent: str = "zz",
    unigram_loss: float = 3.0,
    pairs: int = 50_000,
    metric: str = "exact",
    **training: Any,
) -> Assessment:
    settings = config.resolve({"training": {"metric": metric, "warmup_steps": 100, "learning_rate": 4e-3, **training}})
    references = [[target] for target in targets]
    scores = metrics.score([[text] for text in hypotheses], references)
    known = Frequencies(most_frequent, unigram_loss)
    return assessment.assess(scores, hypotheses, sources, references, known, rows, settings, pairs)


def upper(words: list[str]) -> list[str]:
    return [word.upper() for word in words]


def test_a_model_that_learnt_its_task_is_left_alone() -> None:
    found = judged(upper(WORDS), upper(WORDS))
    assert found.findings == []
    assert found.scores["model"]["exact"] == 100
    assert found.scores["copying the source"]["exact"] == 0
    assert (found.loss, found.unigram_loss) == (1.99, 3.0)


def test_some_right_answers_are_enough() -> None:
    assert judged([*upper(WORDS[:12]), *["QQ"] * 48], upper(WORDS)).findings == []


def test_a_copy_task_is_no_failure_however_well_it_is_learnt() -> None:
    assert judged(WORDS, WORDS).findings == []
    assert judged([*WORDS[:40], *["q"] * 20], WORDS).findings == []


def test_a_copy_task_that_was_not_learnt() -> None:
    (line, _) = judged(["q"] * 60, WORDS).findings
    assert line.startswith("the model is not clearly better than")


def test_a_corpus_with_one_target_is_no_failure() -> None:
    assert judged(["yes"] * 60, ["yes"] * 60, most_frequent="yes").findings == []


def test_always_the_most_frequent() -> None:
    targets = ["yes"] * 40 + ["no"] * 20
    line, cause = judged(["yes"] * 60, targets, most_frequent="yes").findings
    assert line.startswith(
        "the model is not clearly better than always giving the most frequent target: exact match 66.7 against 66.7"
    )
    assert line.endswith(" on 60 validation pairs")
    assert "seq2see doctor" in cause


def test_nearly_copying_must_be_more_than_copying() -> None:
    targets = [*WORDS[:40], *upper(WORDS[40:])]
    line = judged(WORDS, targets).findings[0]
    assert line.startswith("the model is not clearly better than copying the source: exact match 66.7 against 66.7")
    assert judged(targets, targets).findings == []


def test_good_sentences_that_answer_nothing() -> None:
    """Only its own answers shuffled are as good: the words are right, their places are not."""
    targets = [f"{word} stands in the old garden behind the house" for word in upper(WORDS)]
    said = [f"{word} stands in the old garden behind the house" for word in upper([*WORDS[7:], *WORDS[:7]])]
    line, cause = judged(said, targets, metric="loss").findings
    assert line.startswith("the model is not clearly better than its own answers shuffled: chrF")
    assert cause == "the sides may be unrelated or out of step (check with seq2see doctor)"


def test_few_pairs_are_named() -> None:
    assert judged(["q"] * 60, upper(WORDS), pairs=812).findings[1].endswith(", or 812 pairs are too few")


def test_a_loss_that_never_fell_asks_for_a_lower_rate() -> None:
    cause = judged(["q"] * 60, upper(WORDS), unigram_loss=1.9).findings[1]
    assert "guessing by frequency" in cause
    assert cause.endswith("--set training.learning_rate=0.001")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([validated(3, 5.0)], "3 steps are too few, warm-up takes 100 steps"),
        ([validated(1, 5.0)], "1 step is too few, warm-up takes 100 steps"),
        ([validated(200, 5.0)], "200 steps are too few"),
        ([validated(200, 5.0), validated(400, 4.0)], "400 steps are too few"),
        ([trained(400, 5.0), validated(200, 5.0), validated(400, 5.0)], "400 steps are too few"),  # not one epoch
    ],
)
def test_a_run_that_ended_early_is_told_in_one_line(rows: list[dict[str, Any]], words: str) -> None:
    (line,) = judged(["q"] * 60, upper(WORDS), rows=rows).findings
    assert line.endswith(f"): {words}")


def test_a_time_limit_ends_the_warm_up() -> None:
    rows = [trained(50, 5.0) | {"seconds": 30.0}, validated(60, 5.0)]
    limited = {"warmup_steps": 100, "max_steps": 600, "schedule": "cosine"}
    (line,) = judged(["q"] * 60, upper(WORDS), rows=rows, **limited, max_minutes=1).findings
    assert line.endswith("60 steps are too few")
    (line,) = judged(["q"] * 60, upper(WORDS), rows=rows, **limited, max_minutes=9).findings
    assert line.endswith("60 steps are too few, warm-up takes 100 steps")


def test_a_loss_that_was_not_finite() -> None:
    rows = [trained(50, 2.0), validated(100, 2.0), trained(150, math.nan), validated(200, math.nan, best=False)]
    line, cause = judged(["q"] * 60, upper(WORDS), rows=rows).findings
    assert line.startswith("the model is not clearly better")
    assert (
        cause
        == "the loss was not finite from step 150 on: try a lower learning rate: --set training.learning_rate=0.001"
    )
    assert judged(upper(WORDS), upper(WORDS), rows=rows).findings == [cause]
    assert cause in assessment.no_model(rows, config.resolve({"training": {"learning_rate": 4e-3}}))


OVERFITTED = [
    trained(100, 3.0),
    validated(100, 3.1),
    trained(200, 1.0),
    validated(200, 4.0, best=False),
    trained(300, 0.2),
    validated(300, 5.0, best=False),
]


def test_strong_overfitting_is_told() -> None:
    told = judged(upper(WORDS), upper(WORDS), rows=OVERFITTED, max_steps=2000, validate_every=100).findings
    assert told == [
        "overfitted: validation loss rose from 3.10 (step 100) to 5.00, training loss fell to 0.20",
        "the model of step 100 is kept; against overfitting: more pairs, --set model.dropout=0.3, a smaller --preset",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [*OVERFITTED, validated(300, 2.0, what="average of the last 3 checkpoints")],  # the late model is the best
        [trained(100, 3.0), validated(100, 3.1), trained(200, 2.9), validated(200, 3.2, best=False)],  # hardly worse
        [trained(100, 3.0), validated(100, 3.1), trained(200, 3.5), validated(200, 4.0, best=False)],  # both worse
        [trained(100, 3.0), validated(100, 3.1)],
    ],
)
def test_no_false_alarm_of_overfitting(rows: list[dict[str, Any]]) -> None:
    assert judged(upper(WORDS), upper(WORDS), rows=rows, max_steps=2000, validate_every=100).findings == []


@given(st.lists(st.text(max_size=5), min_size=1, max_size=8), st.data())
def test_anything_said_about_anything_is_judged(targets: list[str], data: st.DataObject) -> None:
    texts = st.lists(st.text(max_size=5), min_size=len(targets), max_size=len(targets))
    found = judged(data.draw(texts), targets, sources=data.draw(texts), most_frequent=targets[0])
    assert all(0 <= score <= 100.0001 for scores in found.scores.values() for score in scores.values())
    assert len(found.findings) in (0, 2)


def test_frequencies_of_targets(tmp_path: Path) -> None:
    letters = tokenizers.train("characters", ["ab", "b"], 100)
    a, b = letters.encode(["a", "b"])

    def made(name: str, targets: list[list[int]]) -> store.Store:
        return stores.write(tmp_path / name, [(a, target) for target in targets], len(letters))

    known = assessment.frequencies(made("train", [b, b, a + b]), made("valid", [b]), letters)
    assert known.most_frequent == "b"
    counts = np.array([1, 3, 3]) + 1.0  # a, b, the end; beside them the rest of the vocabulary, once each
    total = counts.sum() + len(letters) - 3
    assert known.unigram_loss == pytest.approx(-np.log(4 / total))
