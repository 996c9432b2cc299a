"""Every trial is kept as soon as it is made, and none is made twice."""

import json
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from seq2see.errors import RunError, SettingError
from seq2see.lab import catalogue, circumstances, claims, runner
from seq2see.lab.claim import Claim, Expectation, Outcome, Plan, Trial


class Bench:
    """A claim of three trials that counts how often it is measured."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.stop_at: int | None = None
        expectation = Expectation("large", "mean", lambda rows: rows.get("value", n=3), 2.5, "because")
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
    return list(runner.run([bench.claim], out, Plan(quick, seeds=seeds), **options))


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
    assert second.judgements == first.judgements


def test_what_is_stopped_goes_on(bench, tmp_path):
    bench.stop_at = 4
    with pytest.raises(KeyboardInterrupt):
        run(bench, tmp_path)
    bench.stop_at = None
    (outcome,) = run(bench, tmp_path)
    assert sorted(bench.made) == [(n, seed) for n in (1, 2, 3) for seed in (1, 2)]  # each once, in both together
    assert len(outcome.measured) == 6


def test_quick_and_full_share_what_is_the_same(bench, tmp_path):
    run(bench, tmp_path, quick=True)
    bench.made.clear()
    run(bench, tmp_path, seeds=3)
    assert sorted(bench.made) == [(1, 3), (2, 1), (2, 2), (2, 3), (3, 3)]


def test_two_claims_share_their_trials(bench, tmp_path):
    second = replace(bench.claim, name="second", rows_of="bench")
    told = []
    both = list(runner.run([bench.claim, second], tmp_path, Plan(seeds=2), watch=lambda *told_of: told.append(told_of)))
    assert [outcome.claim.name for outcome in both] == ["bench", "second"]
    assert len(bench.made) == 6
    assert told[0] == ("", 0, 6)
    bench.made.clear()
    (alone,) = runner.run([second], tmp_path, Plan(seeds=2))
    assert alone.verdict == "held"
    assert bench.made == []


def test_force_measures_anew(bench, tmp_path):
    run(bench, tmp_path)
    bench.made.clear()
    run(bench, tmp_path, force=True)
    assert len(bench.made) == 6


def test_a_forced_run_that_is_stopped_never_goes_on_with_old_numbers(bench, tmp_path):
    run(bench, tmp_path, seeds=3)
    bench.stop_at = len(bench.made) + 2
    with pytest.raises(KeyboardInterrupt):
        run(bench, tmp_path, force=True)
    bench.made.clear()
    bench.stop_at = None
    (outcome,) = run(bench, tmp_path)
    assert len(bench.made) == 4  # two were made anew before the stop
    assert len(outcome.measured) == 6
    bench.made.clear()
    run(bench, tmp_path, seeds=3)
    assert bench.made == []  # the third seed was not asked for, and so not forgotten


def test_force_spares_what_was_measured_elsewhere(bench, tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(circumstances, "where", lambda: "elsewhere")
        run(bench, tmp_path)
    run(bench, tmp_path)
    run(bench, tmp_path, force=True)
    kept = [json.loads(line) for line in (tmp_path / "results" / "bench.jsonl").read_text().splitlines()]
    assert sum(row["where"] == "elsewhere" for row in kept) == 6
    assert len(kept) == 12


@pytest.mark.parametrize("damage", ["{}\n", "rubbish\n", '{"conditions": {"n"'])
def test_force_mends_what_is_damaged(bench, tmp_path, damage):
    run(bench, tmp_path)
    kept = tmp_path / "results" / "bench.jsonl"
    kept.write_text(f"{kept.read_text()}{damage}")
    run(bench, tmp_path, force=True)
    bench.made.clear()
    run(bench, tmp_path)
    assert bench.made == []
    assert len(kept.read_text().splitlines()) == 6


def test_a_trial_has_a_folder_that_goes_with_its_key_and_force_empties_it(bench, tmp_path, monkeypatch):
    folders = []

    def measure(trial):
        folders.append(trial.folder)
        assert not trial.folder.exists()
        trial.folder.mkdir(parents=True)
        (trial.folder / "half").write_text("half")
        return {"value": 1.0}

    object.__setattr__(bench.claim, "measure", measure)
    run(bench, tmp_path)
    assert len(set(folders)) == 6
    run(bench, tmp_path, force=True)
    assert folders[6:] == folders[:6]
    monkeypatch.setattr(circumstances, "where", lambda: "elsewhere")
    run(bench, tmp_path)
    assert not set(folders[12:]) & set(folders[:12])


def test_other_sources_or_versions_measure_anew(tmp_path, monkeypatch):
    for folder in ("cli", "lab", "lab/claims"):
        (tmp_path / folder).mkdir()
    names = ("lab/masks.py", "presets.toml", "lab/report.py", "cli/lab.py", "lab/claims/claims.toml")
    source, presets, *shown = paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_text("rate = 1")
    digest = circumstances.digest.__wrapped__
    before = digest(tmp_path)
    for path in shown:
        path.write_text("rate = 2")
    assert digest(tmp_path) == before
    for path in (source, presets):
        path.write_text("rate = 2")
        assert digest(tmp_path) != before
        path.write_text("rate = 1")

    assert before not in circumstances.where()
    here = circumstances.where()
    assert circumstances.facts()["sources"] in here
    for library in ("torch", "numpy", "Babel"):
        with monkeypatch.context() as other:
            other.setattr(circumstances, "version", lambda name, new=library: "9.9" if name == new else version(name))
            assert circumstances.where() != here


def test_a_library_that_is_missing_is_named_as_such(monkeypatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(circumstances, "version", missing)
    assert "Babel none" in circumstances.facts()["versions"]


def test_the_time_of_a_trial_is_kept(bench, tmp_path):
    run(bench, tmp_path)
    first = json.loads((tmp_path / "results" / "bench.jsonl").read_text().splitlines()[0])
    assert first["seconds"] >= 0
    assert first["cpu_seconds"] >= 0


def test_fresh_seeds_are_measured_and_told_apart(bench, tmp_path):
    run(bench, tmp_path)
    bench.made.clear()
    (outcome,) = runner.run([bench.claim], tmp_path, Plan(seeds=2, first_seed=2))
    assert sorted(bench.made) == [(1, 3), (2, 3), (3, 3)]
    assert outcome.measured.seeds == [2, 3]


def test_what_is_kept_is_told_where_it_is_whole(bench, tmp_path):
    run(bench, tmp_path, quick=True)
    bench.made.clear()
    (outcome,) = runner.kept([bench.claim], tmp_path, Plan(quick=True, seeds=2))
    assert outcome.verdict == "held"
    assert runner.kept([bench.claim], tmp_path, Plan(seeds=2)) == []
    assert runner.kept([bench.claim], tmp_path, Plan(quick=True, seeds=3)) == []
    assert bench.made == []


def test_another_machine_measures_anew(bench, tmp_path, monkeypatch):
    run(bench, tmp_path)
    bench.made.clear()
    monkeypatch.setattr(circumstances, "where", lambda: "elsewhere")
    run(bench, tmp_path)
    assert len(bench.made) == 6


def test_a_line_that_was_cut_short_is_made_again(bench, tmp_path):
    run(bench, tmp_path)
    kept = tmp_path / "results" / "bench.jsonl"
    kept.write_text(kept.read_text()[:-20])
    bench.made.clear()
    (outcome,) = run(bench, tmp_path)
    assert bench.made == [(3, 2)]
    assert len(outcome.measured) == 6
    bench.made.clear()
    run(bench, tmp_path)
    assert bench.made == []


def test_lines_of_release_0_1_0_are_read(bench, tmp_path):
    (tmp_path / "results").mkdir()
    lines = [
        f'{{"conditions": {{"n": {n}}}, "seed": 1, "numbers": {{"value": {n}.5, "none": null}}, "seconds": 0.1, '
        f'"where": {json.dumps(circumstances.where(), ensure_ascii=False)}}}\n'
        for n in (1, 2, 3)
    ]
    (tmp_path / "results" / "bench.jsonl").write_text("".join(lines), encoding="utf-8")
    (outcome,) = run(bench, tmp_path, seeds=1)
    assert bench.made == []
    assert [row.numbers["value"] for row in outcome.measured] == [1.5, 2.5, 3.5]


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
    here = {path.stem for path in Path(claims.__file__).parent.glob("*.py")} - {"__init__"}
    assert here == {name.replace("-", "_") for name in catalogue.CLAIMS}
    for name in catalogue.CLAIMS:
        claim = catalogue.find(name)
        assert claim.name == name
        assert claim.words
        assert claim.source
        module = import_module(f"seq2see.lab.claims.{name.replace('-', '_')}")
        assert claim.expectations
        assert {each.value for each in claim.expectations} == set(module.VALUES.values())
        assert claim.controls
        assert {each.value for each in claim.controls} == set(module.CONTROLS.values())
        for each in (*claim.expectations, *claim.controls):
            assert each.reason
            assert each.size > 0
        for quick in (True, False):
            trials = claim.trials(Plan(quick))
            assert trials
            json.dumps(trials)
            keys = [json.dumps(each, sort_keys=True) for each in trials]
            assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("names", ["order", ["order"]])
def test_the_pages_have_a_claim_that_shares_its_trials_at_once(tmp_path, names, monkeypatch):
    real = {name: catalogue.find(name) for name in catalogue.CLAIMS}
    short = {"steps": 2, "longest": 3, "beyond": 5}
    for name in ("order", "longer"):
        trials = real[name].trials
        shortened = [{**each, **short} for each in trials(Plan(quick=True))]
        real[name] = replace(real[name], trials=lambda plan, shortened=shortened: shortened, alone=True)
    monkeypatch.setattr(catalogue, "find", real.__getitem__)
    outcomes, _ = runner.measure_claims(names, tmp_path / "lab", quick=True, seeds=1)
    assert [outcome.claim.name for outcome in outcomes] == ["order"]
    assert "## longer" in (tmp_path / "lab" / "report.md").read_text(encoding="utf-8")


def test_a_claim_may_have_seeds_of_its_own(bench):
    few = replace(bench.claim, quick_seeds=2, full_seeds=4)
    assert list(Plan(quick=True).seeds_of(bench.claim)) == [1, 2, 3, 4, 5]
    assert list(Plan(quick=True, first_seed=101).seeds_of(few)) == [101, 102]
    assert list(Plan(quick=True, seeds=3).seeds_of(few)) == [1, 2, 3]
    assert len(Plan().seeds_of(bench.claim)) == 8
    assert list(Plan().seeds_of(few)) == [1, 2, 3, 4]
    assert runner._seeds([bench.claim, replace(few, name="few")], Plan(True)) == "1, 2, 3, 4, 5 (few: 1, 2)"


def test_no_seeds_are_too_few(tmp_path):
    with pytest.raises(SettingError, match="at least 1"):
        runner.measure_claims(["order"], tmp_path, seeds=0)
