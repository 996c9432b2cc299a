"""A run that was interrupted and resumed ends like one that was not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from quick import interrupted

from seq2see.cli.options import parse_assignments
from seq2see.session import resume, train
from seq2see.training import checkpoint

SETTINGS = [
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=16",
    "model.heads=2",
    "model.d_ff=32",
    "model.dropout=0.1",
    "training.max_steps=130",
    "training.warmup_steps=20",
    "training.batch_tokens=200",
    "training.validate_every=20",
    "training.log_every=1",
    "training.average=3",
    "training.patience=0",
]
SET = [word for assignment in SETTINGS for word in ("--set", assignment)]
TIMINGS = ("seconds", "tokens_per_second")


def corpus(path: Path, count: int = 120) -> Path:
    path.write_text("".join(f"{number}\t{number * 7}\n" for number in range(count)))
    return path


def metrics(run: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_same_end(run: Path, whole: Path) -> None:
    """The same bytes of model, weights, optimizer, settings and attention, the same metrics, as many checkpoints."""
    assert metrics(run) == metrics(whole)
    names = [path.relative_to(whole) for path in sorted(whole.glob("checkpoints/*/*.safetensors"))]
    assert [path.relative_to(run) for path in sorted(run.glob("checkpoints/*/*.safetensors"))] == names
    for name in (
        "model.safetensors",
        "settings.toml",
        "attention.json",
        "source.tokenizer.json",
        "target.tokenizer.json",
        *names,
    ):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    states = [json.loads((path / "state.json").read_text()) for path in sorted((run / "checkpoints").iterdir())]
    others = [json.loads((path / "state.json").read_text()) for path in sorted((whole / "checkpoints").iterdir())]
    timings = {"seconds": 0, "crc32": ""}
    assert [state | timings for state in states] == [state | timings for state in others]
    assert json.loads((run / "manifest.json").read_text())["state"] == "finished"


def uninterrupted(once: Callable[..., Path]) -> Path:
    """Return the folder of a whole run; copy it before changing anything."""
    from seq2see import api

    def make(folder: Path) -> None:
        api.train(corpus(folder / "pairs.tsv"), folder / "run", settings=parse_assignments(SETTINGS))

    return once("uninterrupted", make) / "run"


def unfinish(run: Path) -> None:
    """As if it had been stopped before its end was noted."""
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"state": "training"}))


@pytest.fixture(scope="module")
def whole(once) -> Path:
    """The uninterrupted run; copy it before changing anything."""
    return uninterrupted(once)


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    corpus(tmp_path / "pairs.tsv")
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_interrupted_by_ctrl_c_and_resumed(tmp_path: Path, whole: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path / "pairs.tsv")
    out, err = interrupted("train", "pairs.tsv", "--out", "run", *SET)
    assert out == ""
    assert "Traceback" not in err
    *_, told, command = err.rstrip("\n").split("\n")
    assert told.startswith("interrupted after step ")
    assert told.endswith("; everything is saved. Resume with:")
    step = int(told.removeprefix("interrupted after step ").partition(";")[0])
    assert 20 <= step < 130
    assert command.strip() == f"seq2see train pairs.tsv --out run {' '.join(SET)} --resume"

    ended = cli(*command.split()[1:])  # as the message says
    assert ended.code == 0, ended.err
    assert f"resuming after step {step}" in ended.err
    assert_same_end(tmp_path / "run", whole)


def test_a_finished_run_says_so(finished: Path, cli) -> None:
    before = contents(finished)
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *SET, "--resume")
    assert ended.code == 0
    assert "is finished: nothing to resume" in ended.err
    assert contents(finished) == before


def test_more_steps_go_on_with_a_finished_run(finished: Path, cli) -> None:
    ended = cli(
        "train", finished.parent / "pairs.tsv", "--out", finished, "--resume", "--set", "training.max_steps=133"
    )
    assert ended.code == 0
    assert "resuming after step 130" in ended.err
    assert [row["step"] for row in metrics(finished) if "loss" in row] == list(range(1, 134))
    assert "max_steps = 133" in (finished / "settings.toml").read_text()


@pytest.mark.parametrize(
    ("limit", "raised"),
    [("training.max_minutes=0.0001", "training.max_minutes=1"), ("training.patience=1", "training.patience=0")],
)
def test_a_raised_limit_goes_on_whatever_it_was(tmp_path: Path, cli, limit: str, raised: str) -> None:
    """A run that ended by minutes or patience goes on once it may: the limit that ended it no longer holds."""
    pairs = corpus(tmp_path / "pairs.tsv", 30)
    words = ["train", pairs, "--out", tmp_path / "run", *SET, "--set", "training.max_steps=12"]
    words += ["--set", "training.validate_every=1", "--set", "training.learning_rate=1e-12"]
    assert cli(*words, "--set", limit).code == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["steps"] < 12, manifest
    ended = cli(*words, "--set", raised, "--resume")
    assert ended.code == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["steps"] == 12, ended.err


@pytest.mark.parametrize("left", ["no checkpoint", "half a checkpoint", "half prepared"])
def test_without_a_whole_checkpoint_it_starts_at_step_0(finished: Path, whole: Path, cli, left: str) -> None:
    """As after a power cut: before the first validation, while it was saved, or while the corpus was tokenised."""
    manifest = json.loads((finished / "manifest.json").read_text())
    manifest["state"] = "preparing" if left == "half prepared" else "training"
    (finished / "manifest.json").write_text(json.dumps(manifest))
    (finished / "model.safetensors").unlink()
    checkpoints = finished / "checkpoints"
    if left == "half a checkpoint":
        first, *rest = sorted(checkpoints.iterdir())
        first.rename(checkpoints / ".step-00000020.part")
        (checkpoints / ".step-00000020.part" / "state.json").unlink()
        for path in rest:
            shutil.rmtree(path)
    else:
        shutil.rmtree(checkpoints)
    if left == "half prepared":
        shutil.rmtree(finished / "corpus")
        (finished / "settings.toml").unlink()
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *SET, "--resume")
    assert ended.code == 0, ended.err
    assert "resuming" not in ended.err
    assert metrics(finished) == metrics(whole)
    assert (finished / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_what_an_interruption_at_the_end_left_out_is_made_up_for(finished: Path, cli) -> None:
    """After the report, and before the measurement of the alignment."""
    facts = json.loads((finished / "manifest.json").read_text())
    assert facts["alignment"]
    (finished / "manifest.json").write_text(json.dumps({key: facts[key] for key in facts if key != "alignment"}))
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *SET, "--resume")
    assert ended.code == 0, ended.err
    assert json.loads((finished / "manifest.json").read_text())["alignment"] == facts["alignment"]


def test_ctrl_c_before_the_training_begins_says_that_nothing_is_saved(tmp_path: Path, cli, monkeypatch) -> None:
    def survey(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "survey_corpus", survey)
    ended = cli("train", corpus(tmp_path / "pairs.tsv"), "--out", tmp_path / "run")
    assert ended.code == 130
    assert ended.err.endswith("interrupted before the training began; nothing is saved\n")
    assert not (tmp_path / "run").exists()


def test_ctrl_c_in_a_run_that_exists_does_not_say_that_nothing_is_saved(finished: Path, cli, monkeypatch) -> None:
    def reopened(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(resume, "reopened", reopened)
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, "--resume")
    assert ended.code == 130
    assert "everything up to the last checkpoint is saved. Resume with:" in ended.err


def test_a_finished_run_without_checkpoints_is_not_trained_again(finished: Path, cli) -> None:
    """Someone deleted them to save space: the model that is left must not be replaced."""
    shutil.rmtree(finished / "checkpoints")
    before = contents(finished)
    again = ["train", finished.parent / "pairs.tsv", "--out", finished, *SET, "--resume"]
    assert "is finished: nothing to resume" in cli(*again).err
    assert contents(finished) == before
    ended = cli(*again, "--set", "training.max_steps=1000")
    assert ended.code == 2
    assert f"{finished}: finished, but it has no intact checkpoint" in ended.err
    assert contents(finished) == before


def test_a_run_that_never_was_starts(tmp_path: Path, cli) -> None:
    pairs = corpus(tmp_path / "pairs.tsv", 30)
    words = ["train", pairs, "--out", tmp_path / "run", "--resume", *SET, "--set", "training.max_steps=2"]
    ended = cli(*words)
    assert ended.code == 0
    assert ended.err.startswith(f"nothing to resume in {tmp_path / 'run'}: starting anew\n")
    assert [row["step"] for row in metrics(tmp_path / "run") if "loss" in row] == [1, 2]


def test_who_uses_an_interrupted_run_is_told_how_to_resume_it(finished: Path, cli, monkeypatch) -> None:
    """The command that is shown works, although it has only the name of the corpus."""
    home, name = finished.parent, finished.name
    monkeypatch.chdir(home)
    facts = json.loads((finished / "manifest.json").read_text())
    words = {"translate": [name], "evaluate": [name, "pairs.tsv"], "look": [name, "a", "--json"]}
    assert not any("not finished" in cli(verb, *rest, stdin=b"a\n").err for verb, rest in words.items())
    (finished / "manifest.json").write_text(json.dumps(facts | {"state": "training"}))
    command = f"seq2see train pairs --out {name} --resume"
    line = f"{name}: not finished, this is its best model so far. To resume its training: {command}"
    for verb, rest in words.items():
        ended = cli(verb, *rest, stdin=b"a\n")
        assert (ended.code, ended.err.splitlines().count(line)) == (0, 1), ended.err
    assert cli(*command.split()[1:], "--set", "training.max_steps=140").code == 0
    assert json.loads((finished / "manifest.json").read_text())["state"] == "finished"


def test_a_misspelt_run_folder_is_noticed(finished: Path, tmp_path: Path, cli) -> None:
    """Other runs on the corpus are named, those on other corpora are not."""
    home = finished.parent
    shutil.copytree(finished, home / "another")
    shutil.copytree(finished, home / "foreign")
    facts = json.loads((home / "foreign" / "manifest.json").read_text())
    (home / "foreign" / "manifest.json").write_text(json.dumps(facts | {"corpus": "others"}))
    misspelt = home / f"{finished.name}x"
    words = ["train", home / "pairs.tsv", "--resume", *SET, "--set", "training.max_steps=1"]
    told = cli(*words, "--out", misspelt).err.splitlines()
    assert told[:2] == [
        f"nothing to resume in {misspelt}: starting anew",
        f"warning: there are other runs on this corpus: {finished}, {home / 'another'}",
    ]


def test_the_corpus_is_no_longer_needed(finished: Path, cli) -> None:
    """The run folder holds the corpus as tokens: it goes on where the file has gone."""
    (finished.parent / "pairs.tsv").unlink()
    ended = cli(
        "train", finished.parent / "pairs.tsv", "--out", finished, "--resume", "--set", "training.max_steps=132"
    )
    assert ended.code == 0, ended.err
    assert [row["step"] for row in metrics(finished) if "loss" in row][-1] == 132


def test_the_model_of_a_run_is_fixed(finished: Path, cli) -> None:
    before = contents(finished)
    pairs = finished.parent / "pairs.tsv"
    ended = cli(
        "train", pairs, "--out", finished, "--resume", "--set", "model.d_ff=48", "--set", "training.max_steps=250"
    )
    assert ended.code == 2
    assert (
        ended.err
        == f"seq2see: {finished}: model.d_ff cannot be changed once a run has started, nor can other settings of data "
        "and model, the seed and training.batch_tokens. Train anew with --force\n"
    )
    assert contents(finished) == before


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_that_is_not_whole_is_passed_over(finished: Path, whole: Path, cli, file: str) -> None:
    """As after a copy that was cut short: the one before is gone on from, and the end is the same."""
    path = max((finished / "checkpoints").iterdir()) / file
    path.write_bytes(path.read_bytes()[:20])
    unfinish(finished)
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, "--resume", *SET)
    assert ended.code == 0, ended.err
    assert f"{path.parent} is damaged or incomplete (" in ended.err
    assert "resuming after step 120" in ended.err
    assert_same_end(finished, whole)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors"])
def test_a_checkpoint_with_a_wrong_bit(finished: Path, whole: Path, cli, name: str) -> None:
    """Of the right size, and still not whole: the one before it serves."""
    newest = max((finished / "checkpoints").iterdir())
    content = bytearray((newest / name).read_bytes())
    content[-1000] ^= 4
    (newest / name).write_bytes(content)
    unfinish(finished)
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, "--resume", *SET)
    assert ended.code == 0, ended.err
    assert "its checksum is wrong" in ended.err
    assert_same_end(finished, whole)


def test_an_older_checkpoint_whose_weights_are_gone_is_left_out_of_the_average(finished: Path, cli) -> None:
    older = min((finished / "checkpoints").iterdir())
    (older / "weights.safetensors").write_bytes(b"cut")
    unfinish(finished)
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, "--resume", *SET)
    assert ended.code == 0, ended.err


def test_settings_that_are_gone_cost_nothing_else(finished: Path, cli) -> None:
    (finished / "settings.toml").unlink()
    before = sorted(path.name for path in (finished / "checkpoints").iterdir())
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, "--resume", *SET)
    assert ended.code == 2
    assert "settings.toml: is missing" in ended.err
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == before


def test_links_and_files_in_the_place_of_checkpoints(finished: Path, whole: Path, cli) -> None:
    newest = max((finished / "checkpoints").iterdir())
    later = newest.with_name(f"step-{checkpoint.step_of(newest) + 10:08d}")
    later.symlink_to(newest.name)
    left_over = newest.with_name(".step-00000999.part")
    left_over.write_text("a file")
    unfinish(finished)
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, "--resume", *SET)
    assert ended.code == 0, ended.err
    later.unlink()
    left_over.unlink()
    assert_same_end(finished, whole)
