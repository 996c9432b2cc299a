"""`seq2see lab` as a user calls it."""

import json
from dataclasses import replace

import pytest

from seq2see.lab import catalogue
from seq2see.lab.catalogue import CLAIMS


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
        (["scaling", "--pairs", "dates"], "--pairs is for the comparison"),
        (["comparison", "--pairs", "nothing.tsv"], "nothing.tsv"),
        (["scaling", "--out", "full"], "holds something else than a lab"),
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
    assert "To go on: seq2see lab scaling --quick --seeds 1" in ended.err
    assert "--force" not in ended.err
    kept = (tmp_path / "lab" / "results" / "scaling.jsonl").read_text().splitlines()
    assert len(kept) == 3

    monkeypatch.setattr(catalogue, "find", lambda name: replace(usual, alone=True))
    assert cli(*words).code == 0
    assert (tmp_path / "lab" / "results" / "scaling.jsonl").read_text().splitlines()[:3] == kept
