"""`seq2see train NEW --from RUN`: another run's model, new pairs, and what it forgot; through the real program."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from quick import QUICK, interrupted
from safetensors.torch import load_file

from conftest import random_words
from seq2see import api, load

TUNE = ["--set", "training.max_steps=60", "--set", "training.learning_rate=0.005", "--set", "training.log_every=1"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own(trained: Path, tmp_path: Path) -> Path:
    """A copy of the shared run, which writes words large, that may be changed."""
    return Path(shutil.copytree(trained, tmp_path / "upper"))


def new_pairs(name: str = "aaa.tsv", count: int = 200) -> str:
    """A task that contradicts the old one: every letter becomes an A."""
    Path(name).write_text("".join(f"{word}\t{'A' * len(word)}\n" for word in random_words(count, 7)))
    return name


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(ended, *words: str) -> None:
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    line = ended.err.rstrip("\n").split("\n")[-1]
    assert line.startswith("seq2see: ")
    for word in words:
        assert word in line
    assert not Path("new").exists()


@pytest.fixture(scope="module")
def tuned(trained: Path, once) -> Path:
    """A finished fine-tuning; copy it before changing anything."""

    def make(folder: Path) -> None:
        old = Path(shutil.copytree(trained, folder / "upper"))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            settings = {"training": {"max_steps": 60, "learning_rate": 0.005, "log_every": 1}}
            api.train(new_pairs(), "new", from_run=old, settings=settings)

    return once("tuned", make) / "new"


def test_a_new_task_is_learned_and_the_old_one_forgotten(cli, own: Path) -> None:
    before = contents(own)
    ended = cli("train", new_pairs(), "--from", own, "--out", "new", "--json", *TUNE)
    assert ended.code == 0, ended.err
    assert contents(own) == before
    facts = json.loads(ended.out)
    assert facts["run"] == "new"
    scores = facts["fine_tuning"]["scores"]
    assert scores["old"]["before"]["exact"] > 80
    assert scores["old"]["after"]["exact"] < 50
    assert scores["new"]["after"]["exact"] > scores["new"]["before"]["exact"] + 30
    assert scores["old"]["after"]["loss"] > scores["old"]["before"]["loss"]
    lines = ended.err.splitlines()
    table = lines[lines.index("scoring the model before and after the fine-tuning") + 1 :][:6]
    assert table[0].split() == ["validation", "before", "after"]
    assert [line.split()[-1] for line in table[1:5]] == ["worse", "worse", "better", "better"]
    assert table[1].startswith("old: upper ")
    assert table[3].startswith("new: aaa ")
    assert table[5].startswith("to forget less")
    assert json.loads(Path("new/manifest.json").read_text())["fine_tuning"] == facts["fine_tuning"]
    assert "exact on the old validation pairs" in Path("new/report.html").read_text()


def test_what_is_kept_and_what_is_suggested(trained: Path, tuned: Path) -> None:
    old, new = load(trained), load(tuned)
    assert new.settings.model == old.settings.model
    assert new.settings.data == old.settings.data
    assert new.settings.training.metric == old.settings.training.metric
    assert new.settings.training.schedule == "cosine"
    assert new.settings.training.warmup_steps == 6
    for name in ("source.tokenizer.json", "target.tokenizer.json"):
        assert (tuned / name).read_bytes() == (trained / name).read_bytes()
    first, last = load_file(trained / "model.safetensors"), load_file(tuned / "model.safetensors")
    start = load_file(tuned / "start.safetensors")
    assert all(torch.equal(weight, first[name]) for name, weight in start.items())
    assert not all(torch.equal(weight, first[name]) for name, weight in last.items())


def test_the_scores_are_those_that_each_run_gives_itself(cli, trained: Path, tuned: Path) -> None:
    scores = load(tuned).manifest["fine_tuning"]["scores"]
    for which, name in (("old", "old_validation.jsonl"), ("new", "validation.jsonl")):
        for when, run in (("before", trained), ("after", tuned)):
            ended = cli("evaluate", run, tuned / name, "--beam", 1, "--engine", "torch", "--json")
            assert json.loads(ended.out)["scores"]["exact"]["value"] == pytest.approx(scores[which][when]["exact"])


def test_without_settings_of_ones_own(cli, own: Path) -> None:
    ended = cli("train", new_pairs(), "--from", own, "--set", "training.max_minutes=0.001")  # only its end
    assert ended.code == 0, ended.err
    run = load("runs/aaa")
    assert run.settings.training.learning_rate < 0.01
    assert run.settings.training.max_steps == 300
    again = cli("train", new_pairs("third.tsv", 30), "--from", "runs/aaa", "--set", "training.max_steps=3")
    assert again.code == 0, again.err
    third = load("runs/third")
    assert third.settings.training.learning_rate == run.settings.training.learning_rate
    assert third.manifest["fine_tuning"]["from"] == "aaa"


@pytest.mark.parametrize(
    ("option", "word"),
    [
        (["--preset", "tiny"], "model."),
        (["--set", "model.d_model=64"], "model.d_model = 64"),
        (["--set", "data.shared=true"], "data.shared"),
        (["--tag"], "--tag"),
    ],
)
def test_options_that_would_change_the_model(cli, own: Path, option: list[str], word: str) -> None:
    ended = cli("train", new_pairs(), "--from", own, "--out", "new", *option)
    refused(ended, word, "--from keeps", str(own))
    assert ended.err.count("\n") == 1


def test_a_run_that_is_missing_or_none(cli) -> None:
    refused(cli("train", new_pairs(), "--from", "nowhere", "--out", "new"), "nowhere: no such run folder")
    Path("empty").mkdir()
    refused(cli("train", new_pairs(), "--from", "empty", "--out", "new"), "empty: not a run folder")
    refused(cli("train", new_pairs(), "--from", "aaa.tsv", "--out", "new"), "aaa.tsv: a file, not a run folder")


def test_a_run_without_weights_yet_or_with_broken_ones(cli, own: Path) -> None:
    weights = own / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    refused(cli("train", new_pairs(), "--from", own, "--out", "new"), "cannot be read")
    weights.unlink()
    refused(cli("train", new_pairs(), "--from", own, "--out", "new"), "model.safetensors: is missing")


@pytest.mark.parametrize("out", ["upper", "."])
def test_the_old_run_is_never_thrown_away(cli, own: Path, out: str) -> None:
    before = contents(own)
    refused(cli("train", new_pairs(), "--from", own, "--out", out, "--force"), "Choose another --out")
    assert contents(own) == before


def test_an_interrupted_run_will_do_and_no_validation_pairs_are_said(cli, own: Path) -> None:
    facts = json.loads((own / "manifest.json").read_text())
    (own / "manifest.json").write_text(json.dumps({**facts, "state": "training"}))
    (own / "validation.jsonl").unlink()
    ended = cli("train", new_pairs(), "--from", own, "--out", "new", "--set", "training.max_steps=2")
    assert ended.code == 0, ended.err
    assert "validation.jsonl: no pairs, so forgetting cannot be measured\n" in ended.err
    assert "old:" not in ended.err
    assert list(load("new").manifest["fine_tuning"]["scores"]) == ["new"]


def test_what_the_old_model_is_not_ready_for_is_said(cli, own: Path) -> None:
    """Letters that its tokenizers never saw, and validation pairs that are now trained on."""
    old = [json.loads(line) for line in (own / "validation.jsonl").read_text().splitlines()][:5]
    Path("mixed.tsv").write_text("".join(f"{row['source']}\t{row['target']}\n" for row in old) + "xyz\tA\n" * 5)
    words = ["train", "mixed.tsv", "--from", own, "--out", "new", "--set", "training.max_steps=2"]
    ended = cli(*words, "--valid", own / "validation.jsonl")
    assert ended.code == 0, ended.err
    assert "sampled source tokens are unknown to" in ended.err
    assert "sampled target tokens" not in ended.err
    assert "_tokenizer=unigram" not in ended.err  # for new words only: the tokens of this run are characters
    assert "5 of the " in ended.err
    assert "old validation sources are among the new training pairs" in ended.err


def test_tags_and_languages_are_kept(cli) -> None:
    words = random_words(60, 3)
    for name, lines in (
        ("a.en", words),
        ("a.de", map(str.upper, words)),
        ("a.fr", words),
        ("a.it", map(str.upper, words)),
        ("b.en", words),
        ("b.fr", words),
    ):
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    assert cli("train", "a.en,a.de", "a.en,a.fr", "--tag", "--out", "both", *QUICK).code == 0
    few = ["--set", "training.max_steps=2"]
    ended = cli("train", "b.en,b.fr", "--from", "both", "--out", "french", *few)
    assert ended.code == 0, ended.err
    assert load("french").tags == ["de", "fr"]
    assert load("french").languages == load("both").languages == ("en", None)
    assert all(
        json.loads(row)["source"].startswith("<2fr> ")
        for row in Path("french/validation.jsonl").read_text().splitlines()
    )
    assert json.loads(Path("french/old_validation.jsonl").read_text().split("\n")[0])["source"].startswith("<2")
    refused(
        cli("train", "a.en,a.it", "--from", "both", "--out", "new", *few),
        "has target language it",
        "translates to de, fr",
    )
    refused(cli("train", new_pairs(), "--from", "both", "--out", "new", *few), "--target-language")

    assert cli("train", "a.en,a.de", "--out", "german", *QUICK).code == 0
    ended = cli("train", "a.en,a.it", "--from", "german", "--out", "italian", *few)
    assert ended.code == 0, ended.err
    assert "warning: the target language of german is 'de', but that of a is 'it'\n" in ended.err
    assert load("italian").languages == ("en", "de")
    refused(cli("train", "a.it,a.en", "--from", "german", "--out", "new", *few), "unknown to german", "without --from")


# Resuming


def metrics(run: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "tokens_per_second")} for row in rows]


@pytest.mark.slow
def test_interrupted_and_resumed_it_ends_like_one_that_was_not(cli, own: Path, tuned: Path) -> None:
    _, err = interrupted("train", new_pairs(), "--from", "upper", "--out", "new", *TUNE)
    command = err.rstrip("\n").split("\n")[-1].split()
    shutil.rmtree(own)  # it is no longer needed
    ended = cli(*command[1:])
    assert ended.code == 0, ended.err
    assert "resuming after step" in ended.err
    assert metrics(Path("new")) == metrics(tuned)
    for name in ("model.safetensors", "settings.toml", "start.safetensors"):
        assert Path("new", name).read_bytes() == (tuned / name).read_bytes(), name
    assert load("new").manifest["fine_tuning"] == load(tuned).manifest["fine_tuning"]


def test_before_the_first_checkpoint_it_starts_from_the_old_weights_again(cli, tuned: Path) -> None:
    new = Path(shutil.copytree(tuned, "new"))
    shutil.rmtree(new / "checkpoints")
    (new / "model.safetensors").unlink()
    ended = cli("train", "aaa.tsv", "--out", new, "--resume")  # --from need not be said again
    assert ended.code == 0, ended.err
    assert metrics(new) == metrics(tuned)
    assert (new / "model.safetensors").read_bytes() == (tuned / "model.safetensors").read_bytes()


def test_a_finished_one_says_so_and_makes_up_for_scores_that_were_not_written(cli, tuned: Path) -> None:
    new = Path(shutil.copytree(tuned, "new"))
    before = contents(new)
    words = ["train", "aaa.tsv", "--from", tuned.parent / "upper", "--out", new, "--resume"]
    assert "is finished: nothing to resume" in cli(*words).err
    assert contents(new) == before
    facts = json.loads((new / "manifest.json").read_text())
    del facts["fine_tuning"]["scores"]
    (new / "manifest.json").write_text(json.dumps(facts))
    assert "old: upper" in cli(*words).err
    assert contents(new) == before


def test_more_steps_measure_anew(cli, tuned: Path) -> None:
    new = Path(shutil.copytree(tuned, "new"))
    ended = cli("train", "aaa.tsv", "--out", new, "--resume", "--set", "training.max_steps=62")
    assert ended.code == 0, ended.err
    assert "old: upper" in ended.err
    assert load(new).manifest["steps"] == 62


def test_a_run_goes_on_only_from_where_it_began(cli, tuned: Path, trained: Path, own: Path) -> None:
    shutil.copytree(tuned, "tuned")
    other = Path(shutil.copytree(trained, "other"))
    words = ["train", "aaa.tsv", "--out", "tuned", "--resume"]
    refused(cli(*words, "--from", other), "was started from 'upper', and cannot be resumed from")
    refused(cli("train", "upper.tsv", "--out", other, "--resume", "--from", own), "was started without --from")
