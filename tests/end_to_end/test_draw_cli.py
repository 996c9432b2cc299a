"""`seq2see draw` as a user types it."""

import json
import shutil
from pathlib import Path

import pytest

from seq2see.model.build import count_parameters
from seq2see.run import load


@pytest.mark.parametrize("what", ["waves", "dot-products", "masks", "warm-up", "architecture"])
def test_each_picture_has_a_name_and_is_not_replaced(what, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("draw", what).code == 0
    assert (tmp_path / f"{what}.png").read_bytes().startswith(b"\x89PNG")
    again = cli("draw", what)
    assert again.code == 2
    assert f"{what}.png: exists already" in again.err
    assert cli("draw", what, "--force").code == 0


@pytest.mark.parametrize(
    ("what", "keys"),
    [
        ("waves", {"length", "d_model", "waves"}),
        ("dot-products", {"length", "d_model", "dot_products"}),
        ("masks", {"tokens", "padding", "look_ahead"}),
        ("warm-up", {"curves"}),
        ("architecture", {"model", "parameters", "steps"}),
    ],
)
def test_numbers_instead_of_a_picture(what, keys, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("draw", what, "--json")
    assert ended.code == 0
    assert json.loads(ended.out).keys() == keys
    assert list(tmp_path.iterdir()) == []


def test_the_peak_of_the_paper(cli):
    ended = cli("draw", "warm-up", "--d-model", "512", "--warmup-steps", "4000", "--json")
    (curve,) = json.loads(ended.out)["curves"]
    assert curve["peak"] == pytest.approx(6.98771e-4, rel=1e-5)
    assert max(curve["rates"]) == curve["peak"]


def test_a_run_and_its_curves(cli, trained, tmp_path):
    ended = cli("draw", "architecture", trained, "--json", "-o", tmp_path / "plan.svg")
    run = load(trained)
    sizes = len(run.tokenizers.source), len(run.tokenizers.target)
    assert json.loads(ended.out)["parameters"] == count_parameters(run.settings.model, *sizes)
    assert f">{trained.name}<" in (tmp_path / "plan.svg").read_text(encoding="utf-8"), "its name, not its path"
    assert cli("draw", "curves", trained, "-o", tmp_path / "curves.svg").code == 0
    assert ">loss per token<" in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_heads_of_a_run(cli, trained, tmp_path, monkeypatch):
    """A tiny model has six heads; each is drawn, and those that are needed most are named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.tsv").write_text("bad\tBAD\ncab\tCAB\nface\tFACE\n", encoding="utf-8")
    ended = cli("draw", "heads", trained, "words.tsv", "--limit", "2", "-o", "heads.svg")
    assert ended.err == "heads.svg\n"
    first, *named = ended.out.splitlines()
    assert first.startswith("pairs: 2 of words.tsv; with all heads: loss 0.")
    assert first.endswith("exact 100.00")
    assert len(named) == 5
    rises = [float(line.partition("loss ")[2].partition(",")[0]) for line in named]
    assert rises == sorted(rises, reverse=True)
    drawn = (tmp_path / "heads.svg").read_text(encoding="utf-8")
    assert f">{rises[0]:+.3f}<" in drawn
    assert drawn.count(">head 2<") == 2


def test_heads_as_numbers_on_validation_pairs(cli, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("draw", "heads", trained, "--limit", "3", "--json")
    found = json.loads(ended.out)
    assert found.keys() == {"set", "metric", "worth", "statistics"}
    assert (found["set"], found["metric"]) == ("validation", "exact")
    assert found["worth"]["pairs"] == found["statistics"]["pairs"] == 3
    assert len(found["worth"]["without"]) == len(found["statistics"]["heads"]) == 6
    assert list(tmp_path.iterdir()) == []


def test_pruning_of_a_run(cli, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["bad", "cab", "face", "head"]
    (tmp_path / "words.tsv").write_text("".join(f"{word}\t{word.upper()}\n" for word in words), encoding="utf-8")
    ended = cli("draw", "pruning", trained, "words.tsv", "--orders", "2", "-o", "pruning.svg")
    assert ended.err == "pruning.svg\n"
    first, *parts = ended.out.splitlines()
    assert first.startswith("pairs: 2 of words.tsv; with all heads: loss 0.")
    assert [line.partition(":")[0] for line in parts] == ["encoder", "decoder", "cross", "all"]
    assert all(
        " of 2 heads can be removed before the loss rises by more than 10 %; in random order: " in p for p in parts[:3]
    )
    drawn = (tmp_path / "pruning.svg").read_text(encoding="utf-8")
    assert drawn.count(">removed heads<") == 4
    assert ">exact match, %<" in drawn
    ended = cli("draw", "pruning", trained, "words.tsv", "--orders", "1", "--points", "2", "--seed", "3", "--json")
    found = json.loads(ended.out)
    assert found.keys() == {"set", "pairs", "ranked_on", "metric", "seed", "importance", "curves"}
    assert len(found["curves"]) == 8
    assert cli("draw", "pruning", trained, "words.tsv", "--limit", "2", "--lang", "ko", "-o", "ko.svg").code == 0
    assert ">제거한 헤드 수<" in (tmp_path / "ko.svg").read_text(encoding="utf-8")


def test_heads_of_a_run_without_tags_have_no_language(cli, trained):
    ended = cli("draw", "heads", trained, "--to", "de", "--json")
    assert ended.code == 2
    assert "was trained without --tag" in ended.err


def test_a_run_without_validation_pairs_needs_some(cli, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "run")
    Path("run", "validation.jsonl").unlink()
    ended = cli("draw", "heads", "run")
    assert ended.code == 2
    assert "run/validation.jsonl: no usable pair" in ended.err
    assert ended.err.count("\n") == 1


def test_a_run_that_has_not_begun_has_no_curves(cli, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "run")
    Path("run", "metrics.jsonl").unlink()
    ended = cli("draw", "curves", "run")
    assert ended.code == 2
    assert "nothing to draw yet" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["heads", "nowhere"], "nowhere: no such run folder"),
        (["heads", "nowhere", "--limit", "0"], "--limit"),
        (["pruning", "nowhere"], "nowhere: no such run folder"),
        (["pruning", "nowhere", "--limit", "1"], "--limit"),
        (["architecture", "paper-bse"], "neither a run folder nor a preset. Did you mean 'paper-base'?"),
        (["architecture", "--set", "model.hads=3"], "unknown setting 'model.hads'"),
        (["curves", "nowhere"], "nowhere: no such run folder"),
        (["waves", "-o", "waves.bmp"], "unknown picture format '.bmp'"),
        (["waves", "-o", "nowhere/waves.png"], "there is no folder nowhere"),
        (["waves", "--length", "0"], "--length"),
        (["masks", *["a"] * 101], "at most 100"),
        (["warm-up", *[word for width in range(1, 6) for word in ("--d-model", width)]], "at most 8"),
    ],
)
def test_mistakes_get_one_line(words, line, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = cli("draw", *words)
    assert ended.code == 2
    assert line in ended.err
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_draw_alone_lists_the_pictures(cli):
    ended = cli("draw")
    assert ended.code == 0
    for name in ("waves", "dot-products", "masks", "warm-up", "architecture", "curves", "heads", "pruning"):
        assert f"\n  {name} " in ended.out
