"""Every trial is kept as soon as it is made, and none is made twice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seq2see.errors import RunError
from seq2see.lab import catalogue, runner
from seq2see.lab.claim import Claim, Expectation, Outcome, Plan, Trial


class Bench:
    """A claim of three trials that counts how often it is measured."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.stop_at: int | None = None
        expectation = Expectation("large", "mean", lambda rows: rows.get("value", n=3), at_least=2.5)
        self.claim = Claim(
            "bench", "words", "source", "measured", self.trials, self.measure, (expectation,), alone=True
        )

    def trials(self, plan: Plan) -> list[dict[str, int]]:
        return [{"n": n} for n in ((1, 3) if plan.quick else (1, 2, 3))]

    def measure(self, trial: Trial) -> dict[str, float]:
        if len(self.made) == self.stop_at:
            raise KeyboardInterrupt
        self.made.append((trial["n"], trial.seed))
        return {"value": trial["n"] + 0.01 * trial.seed}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(catalogue, "find", lambda name: made.claim)
    return made


def run(bench: Bench, out: Path, quick: bool = False, seeds: int = 2, **options) -> list[Outcome]:
    return list(runner.run([bench.claim], out, Plan(quick), seeds, **options))


def test_all_trials_with_all_seeds(bench, tmp_path):
    told = []
    (outcome,) = run(bench, tmp_path, watch=lambda *told_of: told.append(told_of))
    assert sorted(bench.made) == [(n, seed) for n in (1, 2, 3) for seed in (1, 2)]
    assert outcome.verdict == "held"
    assert told[0] == ("", 0, 6)
    assert told[-1] == ("bench", 6, 6)


def test_a_second_run_measures_nothing(bench, tmp_path):
    (first,) = run(bench, tmp_path)
    bench.made.clear()
    (second,) = run(bench, tmp_path)
    assert bench.made == []
    assert second.findings == first.findings


def test_what_is_stopped_goes_on(bench, tmp_path):
    bench.stop_at = 4
    with pytest.raises(KeyboardInterrupt):
        run(bench, tmp_path)
    bench.stop_at = None
    (outcome,) = run(bench, tmp_path)
    assert sorted(bench.made) == [(n, seed) for n in (1, 2, 3) for seed in (1, 2)]  # each once, in both together
    assert len(outcome.rows) == 6


def test_quick_and_full_share_what_is_the_same(bench, tmp_path):
    run(bench, tmp_path, quick=True)
    bench.made.clear()
    run(bench, tmp_path, seeds=3)
    assert sorted(bench.made) == [(1, 3), (2, 1), (2, 2), (2, 3), (3, 3)]


def test_two_claims_share_their_trials(bench, tmp_path):
    second = replace(bench.claim, name="second", rows_of="bench")
    told = []
    both = list(runner.run([bench.claim, second], tmp_path, Plan(), 2, watch=lambda *told_of: told.append(told_of)))
    assert [outcome.claim.name for outcome in both] == ["bench", "second"]
    assert len(bench.made) == 6
    assert told[0] == ("", 0, 6)
    bench.made.clear()
    (alone,) = runner.run([second], tmp_path, Plan(), 2)
    assert alone.verdict == "held"
    assert bench.made == []


def test_force_measures_anew(bench, tmp_path):
    run(bench, tmp_path)
    bench.made.clear()
    run(bench, tmp_path, force=True)
    assert len(bench.made) == 6


def test_another_machine_measures_anew(bench, tmp_path, monkeypatch):
    run(bench, tmp_path)
    bench.made.clear()
    monkeypatch.setattr(runner, "where", lambda: "elsewhere")
    run(bench, tmp_path)
    assert len(bench.made) == 6


def test_a_line_that_was_cut_short_is_made_again(bench, tmp_path):
    run(bench, tmp_path)
    kept = tmp_path / "results" / "bench.jsonl"
    kept.write_text(kept.read_text()[:-20])
    bench.made.clear()
    (outcome,) = run(bench, tmp_path)
    assert bench.made == [(3, 2)]
    assert len(outcome.rows) == 6
    bench.made.clear()
    run(bench, tmp_path)
    assert bench.made == []


@pytest.mark.parametrize("line", ["{}", "rubbish", "[]", '{"conditions": 3}'])
def test_a_damaged_line_is_named(bench, tmp_path, line):
    run(bench, tmp_path)
    kept = tmp_path / "results" / "bench.jsonl"
    kept.write_text(f"{line}\n{kept.read_text()}")
    with pytest.raises(RunError, match=r"bench\.jsonl, line 1: damaged"):
        run(bench, tmp_path)


def test_numbers_that_are_none_are_kept_as_null(bench, tmp_path):
    bench.measure = lambda trial: {"value": float("nan")}
    object.__setattr__(bench.claim, "measure", bench.measure)
    (outcome,) = run(bench, tmp_path)
    assert outcome.verdict == "undecided"
    first = json.loads((tmp_path / "results" / "bench.jsonl").read_text().splitlines()[0])
    assert first["numbers"] == {"value": None}
    (again,) = run(bench, tmp_path)
    assert again.verdict == "undecided"


def test_every_claim_is_in_the_catalogue_and_says_what_it_is():
    here = {path.stem for path in Path(catalogue.__file__).parent.glob("*.py") if "CLAIM = " in path.read_text()}
    assert here == {name.replace("-", "_") for name in catalogue.CLAIMS}
    for name in catalogue.CLAIMS:
        claim = catalogue.find(name)
        assert claim.name == name
        assert claim.words
        assert claim.source
        assert claim.expectations
        for quick in (True, False):
            trials = claim.trials(Plan(quick))
            assert trials
            json.dumps(trials)
            keys = [json.dumps(each, sort_keys=True) for each in trials]
            assert len(set(keys)) == len(keys)
