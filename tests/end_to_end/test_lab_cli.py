"""`seq2see lab` as a user calls it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from seq2see import machine, storage
from seq2see.lab import catalogue, runner
from seq2see.lab.catalogue import CLAIMS
from seq2see.lab.claim import Plan


def test_a_claim_is_measured_reported_and_not_measured_twice(cli, tmp_path):
    out = tmp_path / "lab"
    ended = cli("lab", "scaling", "--quick", "--seeds", "2", "--out", out)
    assert ended.code == 0, ended.err
    head, row, *_ = ended.out.splitlines()
    assert head.split() == ["claim", "verdict", "what", "decided"]
    assert row.startswith("scaling")
    for name in ("report.html", "report.md", "verdicts.json", "results/scaling.jsonl", "pictures/scaling.svg"):
        assert (out / name).exists()
    before = (out / "results" / "scaling.jsonl").read_bytes()

    again = cli("lab", "scaling", "--quick", "--seeds", "2", "--out", out, "--json")
    assert again.code == 0, again.err
    assert (out / "results" / "scaling.jsonl").read_bytes() == before
    (claim,) = json.loads(again.out)["claims"]
    assert claim["claim"] == "scaling"
    assert claim["verdict"] in row
    assert {finding["verdict"] for finding in claim["findings"]} <= {"held", "did not hold", "undecided"}
    assert len(claim["rows"]) == len(before.splitlines())


def test_the_report_has_what_earlier_commands_measured_at_this_size(cli, tmp_path, monkeypatch):
    usual = catalogue.find("scaling")
    few = [{**conditions, "queries": 100} for conditions in usual.trials(Plan(quick=True))]
    monkeypatch.setattr(catalogue, "find", lambda name: replace(usual, name=name, alone=True, trials=lambda plan: few))
    out, common = tmp_path / "lab", ("--quick", "--seeds", "2", "--out", tmp_path / "lab")
    assert cli("lab", "masks", *common).code == 0
    ended = cli("lab", "scaling", *common, "--json")
    assert [claim["claim"] for claim in json.loads(ended.out)["claims"]] == ["scaling"]
    for page in ("report.html", "report.md"):
        assert all(name in (out / page).read_text() for name in ("scaling: ", "masks: "))
    kept = json.loads((out / "verdicts.json").read_text())["claims"]
    assert [claim["claim"] for claim in kept] == ["scaling", "masks"]  # in the order of the catalogue

    assert cli("lab", "order", *common, "--first-seed", "7").code == 0
    report = (out / "report.md").read_text()
    assert "- seeds: 7, 8" in report
    assert "## masks" not in report  # nobody has measured it with these seeds


def test_the_lab_is_a_python_function_first(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 1)  # measured in this process
    told = []
    outcomes, facts = runner.measure_claims(["scaling"], tmp_path / "lab", quick=True, seeds=2, tell=told.append)
    assert outcomes == told
    assert outcomes[0].claim.name == "scaling"
    assert facts["seeds"] == "1, 2"
    assert "command" not in facts
    assert (tmp_path / "lab" / "report.html").exists()


def test_the_list_measures_nothing(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("lab", "--list")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == list(CLAIMS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["scalign"], "Did you mean 'scaling'?"),
        (["scaling", "--seeds", "0"], "--seeds"),
        (["scaling", "--first-seed", "-1"], "--first-seed"),
        (["scaling", "--pairs", "dates"], "--pairs is for the claim comparison"),
        (["comparison", "--pairs", "nothing.tsv"], "nothing.tsv"),
        (["scaling", "--out", "full"], "not a folder with results of `seq2see lab`"),
        (["scaling", "--out", "full/file"], "a file, expected a folder"),
    ],
)
def test_mistakes_get_one_line(cli, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    ended = cli("lab", *words)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not ended.out
    assert (tmp_path / "full" / "file").read_text() == "mine"
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_loses_nothing(cli, tmp_path, monkeypatch):
    usual, made = catalogue.find("scaling"), []

    def measure(trial):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(trial.seed)
        return usual.measure(trial)

    monkeypatch.setattr(catalogue, "find", lambda name: replace(usual, alone=True, measure=measure))
    words = ("lab", "scaling", "--quick", "--seeds", "1", "--out", tmp_path / "lab")
    ended = cli(*words, "--force")
    assert ended.code == 130
    assert "To resume: seq2see lab scaling --quick --seeds 1" in ended.err
    assert "--force" not in ended.err
    kept = (tmp_path / "lab" / "results" / "scaling.jsonl").read_text().splitlines()
    assert len(kept) == 3

    monkeypatch.setattr(catalogue, "find", lambda name: replace(usual, alone=True))
    assert cli(*words).code == 0
    assert (tmp_path / "lab" / "results" / "scaling.jsonl").read_text().splitlines()[:3] == kept


def test_a_full_disk_is_told_what_the_lab_can_do(cli, tmp_path, monkeypatch):
    out = tmp_path / "lab"
    real = storage.extend

    def extend(path: Path) -> BinaryIO:
        return Path("/dev/full").open("ab") if path.name == "scaling.jsonl" else real(path)

    monkeypatch.setattr(storage, "extend", extend)
    ended = cli("lab", "scaling", "--quick", "--seeds", "1", "--out", out)
    assert ended.code == 75
    assert "the disk is full. Make room, then resume with --resume (lab: repeat the command)" in ended.err
