"""`train` says before what it chose and why, and after whether it was of any use."""

import json
import random
from pathlib import Path

import pytest
from quick import QUICK

SHUFFLED = random.Random(7)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("".join(f"{number}\t{number}\n" for number in range(60)))


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"{name} "))


def test_the_choices_and_their_reasons_are_shown_and_in_the_json(cli) -> None:
    ended = cli("train", "pairs.tsv", *QUICK, "--json")
    assert ended.code == 0, ended.err
    assert row(ended.err, "source").endswith(" no spaces in the text, 10 characters")
    assert row(ended.err, "batch").endswith(" set by you")
    assert row(ended.err, "steps").endswith(" set by you: max_steps")
    assert max(map(len, ended.err.splitlines())) <= 116
    facts = json.loads(ended.out)
    assert facts["run"] == str(Path("runs", "pairs"))
    choices = {choice["name"]: choice for choice in facts["choices"]}
    assert choices["dropout"]["why"] == "overfitting is likely with 60 pairs"
    assert choices["model"]["settings"]["model.d_model"] == 8
    assert "model.d_model" in choices["model"]["yours"]
    assert "float32" in choices["machine"]["value"]
    assert json.loads(Path("runs/pairs/manifest.json").read_text())["choices"] == facts["choices"]


def test_presets_and_files_are_the_users_too(cli) -> None:
    Path("my.toml").write_text("[model]\ndropout = 0.25\n")
    ended = cli("train", "pairs.tsv", *QUICK, "--preset", "tutorial-small", "--config", "my.toml")
    assert ended.code == 0, ended.err
    assert row(ended.err, "dropout").split() == ["dropout", "0.25", "set", "by", "you"]
    assert row(ended.err, "learning rate").endswith(" set by you")


def test_a_resumed_run_still_knows_why(cli) -> None:
    assert cli("train", "pairs.tsv", *QUICK).code == 0
    ended = cli("train", "pairs.tsv", "--resume", "--set", "training.max_steps=3", "--set", "training.patience=2")
    assert ended.code == 0, ended.err
    assert row(ended.err, "source").endswith(" no spaces in the text, 10 characters")
    assert row(ended.err, "batch").endswith(" set by you")
    assert row(ended.err, "stopping").endswith(" set by you: patience")


def test_a_run_of_an_earlier_version_keeps_its_reasons(cli) -> None:
    """The row of the learning rate was called `rate` in its manifest."""
    quick = [word for word in QUICK if not word.startswith("training.warmup_steps")]
    quick = [word for place, word in enumerate(quick) if word != "--set" or quick[place + 1] != "--set"]
    assert cli("train", "pairs.tsv", *quick).code == 0
    manifest = Path("runs/pairs/manifest.json")
    manifest.write_text(manifest.read_text().replace('"learning rate"', '"rate"', 1))
    ended = cli("train", "pairs.tsv", "--resume", "--set", "training.max_steps=3")
    assert ended.code == 0, ended.err
    assert row(ended.err, "learning rate").endswith(" works well for a model of this width")


def test_a_run_of_two_steps_learnt_nothing_and_says_so_in_one_line(cli) -> None:
    ended = cli("train", "pairs.tsv", *QUICK, "--json")
    assert ended.code == 0, ended.err
    (warning,) = [line for line in ended.err.splitlines() if line.startswith("warning")]
    assert warning.startswith("warning: the model is not clearly better than ")
    assert warning.endswith(": 2 steps are too few")
    assert json.loads(ended.out)["diagnosis"]["findings"] == [warning.removeprefix("warning: ")]
    assert "What went wrong" in Path("runs/pairs/report.html").read_text(encoding="utf-8")


def test_no_alarm_where_the_task_was_learnt(trained: Path) -> None:
    told = json.loads((trained / "manifest.json").read_text())["diagnosis"]
    assert told["findings"] == []
    assert told["scores"]["model"]["exact"] > told["scores"]["copying the source"]["exact"]
    assert told["loss"] < told["unigram_loss"]
    assert "What went wrong" not in (trained / "report.html").read_text(encoding="utf-8")


def test_sides_that_have_nothing_to_do_with_each_other(cli) -> None:
    answers = ["yes"] * 300 + ["no"] * 150
    SHUFFLED.shuffle(answers)
    Path("pairs.tsv").write_text("".join(f"{number}\t{answer}\n" for number, answer in enumerate(answers)))
    longer = ["training.max_steps=80", "training.validate_every=20", "training.learning_rate=0.01"]
    settings = [word for setting in longer for word in ("--set", setting)]
    ended = cli("train", "pairs.tsv", *QUICK, *settings)
    assert ended.code == 0, ended.err
    line, cause = [line for line in ended.err.splitlines() if line.startswith("warning")]
    assert "not clearly better than " in line
    assert "seq2see doctor" in cause


def test_a_rate_that_breaks_everything_leaves_one_line(cli) -> None:
    wild = ["training.learning_rate=1e30", "training.clip_norm=0", "training.max_steps=20", "training.log_every=5"]
    settings = [word for setting in wild for word in ("--set", setting)]
    ended = cli("train", "pairs.tsv", *QUICK, *settings, "--metric", "loss")
    assert ended.code == 2
    assert "was not finite" in ended.err.splitlines()[-1]
    assert "lower learning rate" in ended.err.splitlines()[-1]
    told = json.loads(Path("runs/pairs/manifest.json").read_text())["diagnosis"]["findings"]
    assert "was not finite" in told[0]
