"""The three architectures have one size, and the comparison trains, tests and reports them fairly."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from seq2see.errors import DataError
from seq2see.lab import catalogue, charts, report
from seq2see.lab.claim import Measurement, Plan, Trial, conclude
from seq2see.lab.claims import comparison
from seq2see.lab.models import ARCHITECTURES, small_model
from seq2see.run import Run
from seq2see.text.corpora import Pairs


def sizes_of(vocabularies: tuple[int, int], **changes: int) -> list[int]:
    models = (small_model(1, vocabularies, kind, **changes) for kind in ARCHITECTURES)
    return [sum(weight.numel() for weight in model.parameters()) for model in models]


@pytest.mark.parametrize(("vocabularies", "width"), [((14, 14), 64), ((900, 700), 32), ((1004, 1004), 256)])
def test_all_have_about_as_many_parameters(vocabularies, width):
    first, *others = sizes_of(vocabularies, d_model=width, d_ff=2 * width)
    assert all(abs(other / first - 1) < 0.06 for other in others)


UPPER = [(word, word.upper()) for word in map("{:b}".format, range(1, 200))]


def a_file(path: Path, pairs: list[tuple[str, str]] = UPPER) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return str(path)


def tiny(trial: Trial) -> Trial:
    return replace(trial, conditions={**trial.conditions, "steps": 8, "batch_tokens": 200})


def trials_of(pairs: str, folder: Path, seed: int = 1) -> list[Trial]:
    """As the runner makes them, of very short trainings."""
    conditions = catalogue.find("comparison").trials(Plan(quick=True, pairs=pairs))
    made = (
        Trial("comparison", each, seed, folder / f"{each['model']}-{each['weights']}-{seed}") for each in conditions
    )
    return [tiny(trial) for trial in made]


@pytest.mark.slow
def test_the_comparison_trains_whole_runs_and_keeps_them(tmp_path):
    claim, sizes = catalogue.find("comparison"), []
    for trial in trials_of(a_file(tmp_path / "upper.tsv", UPPER[:60]), tmp_path / "runs"):
        numbers = claim.measure(trial)
        assert list(numbers) == ["exact_match", "minutes", "parameters", "test_pairs"]
        assert 0 <= numbers["exact_match"] <= 100
        assert numbers["minutes"] > 0
        sizes.append(numbers["parameters"])
        assert claim.measure(trial) == numbers  # the run is there: nothing is trained again
    assert all(abs(size / sizes[0] - 1) < 0.06 for size in sizes)


def test_minutes_are_of_training_alone(trained, tmp_path):
    """Two seconds a step; a validation takes 100, and somebody stopped for an hour after step 30."""
    shutil.copytree(trained, tmp_path / "run")
    seconds = {10: 20, 20: 40, 30: 60 + 100, 40: 80 + 3700, 50: 100 + 3700, 60: 120 + 3700}
    rows = [{"step": step, "loss": 1.0, "seconds": after} for step, after in seconds.items()]
    rows.insert(2, {"step": 20, "validation": {"loss": 1.0}, "best": True, "what": "model"})
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert comparison.minutes(Run(tmp_path / "run"), 60) == pytest.approx(2.0)


def test_test_pairs_are_never_trained_or_validated_on(tmp_path):
    pairs = a_file(tmp_path / "upper.tsv", [*UPPER, *UPPER[:50]])  # some sources twice
    one, *_, other = trials_of(pairs, tmp_path / "runs")
    assert comparison.parts(one) == comparison.parts(other)  # the same for all
    train_on, test = ([(pair.source, pair.target) for pair in Pairs(part)] for part in comparison.parts(one))
    assert sorted(train_on + test) == sorted([*UPPER, *UPPER[:50]])
    assert not {source for source, _ in train_on} & {source for source, _ in test}
    assert 5 <= len(test) <= 50
    run = comparison.trained(one, comparison.parts(one)[0])
    assert not {pair.source for pair in run.validation_pairs} & {source for source, _ in test}


def test_a_corpus_that_brings_a_test_set_is_tested_on_that(tmp_path):
    (trial, *_) = trials_of("dates", tmp_path)
    assert comparison.parts(trial) == ("dates", "dates")  # to train means its training set, to evaluate its test set


def test_another_text_under_the_same_name_is_another_trial(tmp_path):
    path = tmp_path / "upper.tsv"
    before = trials_of(a_file(path), tmp_path)[0].conditions
    assert trials_of(a_file(path), tmp_path)[0].conditions == before
    assert trials_of(a_file(path, [*UPPER[:-1], ("x", "Y")]), tmp_path)[0].conditions != before


def test_a_file_too_small_to_test_on_is_refused_before_anything_is_measured(tmp_path):
    pairs = a_file(tmp_path / "upper.tsv", [("a", "A")] * 30)
    with pytest.raises(DataError, match=r"upper\.tsv: too few different sources to keep some for a test"):
        trials_of(pairs, tmp_path / "runs")


def scored(name: str, transformer: float, others: float, second: float) -> list[Measurement]:
    values = [(kind, 1, transformer if kind == "transformer" else others) for kind in ARCHITECTURES]
    return [
        Measurement(
            {"pairs": "dates", "model": kind, "weights": weights, "steps": 400},
            seed,
            {name: value + seed / 10, "minutes": 1.0},
        )
        for kind, weights, value in [*values, ("transformer", 2, second)]
        for seed in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ((90, 80, 90), "held"),
        ((80, 90, 80), "did not hold"),
        ((99.7, 99.7, 99.7), "did not hold"),
        ((90, 80, 70), "not trusted"),  # it is better than its like
    ],
)
@pytest.mark.parametrize(("name", "shown"), [("exact_match", "exact match"), ("bleu", "BLEU")])
def test_better_is_more_than_equal_and_the_score_has_a_name(tmp_path, scores, verdict, name, shown):
    claim = catalogue.find("comparison")
    outcome = conclude(claim, scored(name, *scores))
    assert outcome.verdict == verdict
    report.write(tmp_path, [outcome], {})
    text = (tmp_path / "report.md").read_text()
    assert f"| model | weights | {shown} | minutes |" in text
    assert f"| transformer | 1 | {scores[0] + 0.2:.3g} ± 0.1 | 1 |" in text
    assert ("not trusted" in (tmp_path / "report.html").read_text()) == (verdict == "not trusted")
    titles = [axes.get_title(loc="left") for axes in charts.draw(claim.charts, outcome.measured).axes]
    assert titles == [shown, "minutes of training"]
