"""What a machine does to a training: signals, two in the same folder, a full disk, numbers that are no numbers.

Each leaves the last whole checkpoint, one line that says what to do, and an exit code that a scheduler understands.
"""

import contextlib
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from quick import QUICK
from test_resume import SET, assert_same_end, contents, corpus, uninterrupted

from seq2see import storage


@pytest.fixture(scope="module")
def whole(once) -> Path:
    return uninterrupted(once)


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    corpus(tmp_path / "pairs.tsv")
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)]
)
def test_a_scheduler_asks_for_the_end(tmp_path: Path, whole: Path, cli, number: signal.Signals, code: int) -> None:
    pairs = corpus(tmp_path / "pairs.tsv")
    words = ["train", str(pairs), "--out", str(tmp_path / "run"), *SET]
    training = subprocess.Popen(
        [sys.executable, "-m", "seq2see", *words],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert training.stderr is not None
    while "validation loss" not in training.stderr.readline():
        assert training.poll() is None
    training.send_signal(number)
    _, err = training.communicate(timeout=300)
    assert training.returncode == code, err
    assert "everything is saved" in err
    ended = cli(*words, "--resume")
    assert ended.code == 0, ended.err
    assert_same_end(tmp_path / "run", whole)


@pytest.mark.parametrize("how", ["--resume", "--force"])
def test_a_second_training_in_the_folder_is_refused(finished: Path, cli, how: str) -> None:
    before = contents(finished)
    with storage.sole_writer(finished):
        more = ["--set", "training.max_steps=140"]
        ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *SET, *more, how)
    assert ended.code == 2
    assert "another process is writing there (process " in ended.err
    assert contents(finished) | {storage.LOCK: b""} == before | {storage.LOCK: b""}


def test_a_second_training_that_makes_the_same_folder_is_refused(tmp_path: Path, cli) -> None:
    pairs = corpus(tmp_path / "pairs.tsv")
    with storage.held(tmp_path / "run"):
        ended = cli("train", pairs, "--out", tmp_path / "run", *QUICK)
        assert ended.code == 2
        assert "another process is writing there" in ended.err
    shutil.rmtree(tmp_path / ".run.part")
    assert cli("train", pairs, "--out", tmp_path / "run", *QUICK).code == 0


def test_who_is_refused_clears_nothing_away(tmp_path: Path, monkeypatch) -> None:
    """Both find no folder, one is first: what it has made is not the other's to throw away."""
    from seq2see.errors import RunError

    real = storage.sole_writer
    with contextlib.ExitStack() as first:

        def just_before(folder: Path, patience: int = 0):
            monkeypatch.setattr(storage, "sole_writer", real)
            first.enter_context(storage.held(tmp_path / "run"))
            (folder / "work").touch()
            return real(folder, patience)

        monkeypatch.setattr(storage, "sole_writer", just_before)
        with pytest.raises(RunError, match="another process is writing"), storage.held(tmp_path / "run"):
            pass
        assert (tmp_path / ".run.part" / "work").exists()


def test_a_disk_that_is_full(tmp_path: Path, whole: Path, cli) -> None:
    """By the limit that a shell can set: from the first optimizer on, a checkpoint is too large for it."""
    pairs = corpus(tmp_path / "pairs.tsv")
    words = ["train", pairs, "--out", tmp_path / "run", *SET]
    size = (whole / "checkpoints" / "step-00000130" / "weights.safetensors").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
    try:
        ended = cli(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ended.code == 2
    last = ended.err.rstrip("\n").split("\n")[-1]
    assert "optimizer.safetensors: the file is larger than may be written here (ulimit -f). Raise the limit" in last
    assert last.endswith("then resume with --resume (lab: repeat the command): what was saved before is intact")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert cli(*words, "--resume").code == 0
    assert_same_end(tmp_path / "run", whole)


def test_a_crash_while_an_earlier_run_is_thrown_away(finished: Path, whole: Path, cli, monkeypatch) -> None:
    """--force empties the folder only when the new run is whole, and whatever is left then can be gone on from."""

    real = storage.remove

    def crash(path: Path) -> None:
        real(path)
        if path.parent == finished and path.name != ".part":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(storage, "remove", crash)
        ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *SET, "--force")
        assert ended.code == 130
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *SET, "--resume")
    assert ended.code == 0, ended.err
    assert_same_end(finished, whole)


def test_numbers_that_are_not_finite_name_batch_lines_and_layer(tmp_path: Path, cli) -> None:
    pairs = corpus(tmp_path / "pairs.tsv")
    wild = ["training.learning_rate=1e30", "training.clip_norm=0", "training.log_every=1", "training.max_steps=50"]
    settings = [word for setting in wild for word in ("--set", setting)]
    ended = cli("train", pairs, "--out", tmp_path / "run", *QUICK, *settings)
    assert ended.code == 2
    last = ended.err.rstrip("\n").split("\n")[-1]
    assert "the loss or the gradient was not finite in 5 updates in a row (step 6, a batch of " in last
    assert f"{pairs}, line " in last
    assert "first in encoder.0." in last
    assert "try a lower learning rate: --set training.learning_rate=" in last
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["skipped"] for row in rows] == [0, 1, 1, 1, 1, 1]


def test_lines_are_found_though_tags_and_normalisation_changed_their_text(tmp_path: Path, cli) -> None:
    for name in ("de", "fr"):
        (tmp_path / f"a.{name}").write_text("".join(f"\ufb01n {name} {number}\n" for number in range(60)))
    (tmp_path / "a.en").write_text("".join(f"\ufb01re {number}\n" for number in range(60)))
    wild = ["training.learning_rate=1e30", "training.clip_norm=0", "training.log_every=1", "training.max_steps=50"]
    settings = [word for setting in [*wild, "data.normalization=nfkc"] for word in ("--set", setting)]
    files = [f"{tmp_path}/a.en,{tmp_path}/a.{name}" for name in ("de", "fr")]
    ended = cli("train", *files, "--tag", "--out", tmp_path / "run", *QUICK, *settings)
    assert ended.code == 2
    found = re.findall(r"a\.(de|fr), line (\d+) \('fire (\d+)' -> 'fin (de|fr) (\d+)'\)", ended.err)
    assert len(found) == 3, ended.err
    for file, line, source, language, target in found:
        assert (file, source, target) == (language, str(int(line) - 1), str(int(line) - 1))


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoints/step-00000130/optimizer.safetensors"])
def test_a_file_that_wants_to_run_is_refused(finished: Path, cli, name: str) -> None:
    size = (finished / name).stat().st_size
    (finished / name).write_bytes(pickle.dumps(Bomb(finished / "ran")).ljust(size, b"."))
    longer = ["--set", "training.max_steps=140", "--resume"]
    words = ["translate", finished] if name.startswith("model") else ["train", "pairs.tsv", "--out", finished, *longer]
    ended = cli(*words, stdin=b"1\n")
    assert (
        ended.code == 2 if name.startswith("model") else "is damaged or incomplete" in ended.err
    )  # the checkpoint before it serves
    assert "a pickle, as torch.save writes: reading it could execute code. Refused" in ended.err
    assert not (finished / "ran").exists()


def test_a_run_that_leads_out_of_its_folder_is_refused(finished: Path, cli, tmp_path: Path) -> None:
    """Pruning checkpoints would throw away what lies elsewhere."""
    (finished / "checkpoints").rename(tmp_path / "elsewhere")
    (finished / "checkpoints").symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    for words in (["train", finished.parent / "pairs.tsv", "--out", finished, "--resume"], ["translate", finished]):
        ended = cli(*words, stdin=b"1\n")
        assert ended.code == 2
        assert "a link to a place outside of" in ended.err
    assert contents(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("width", [4096, 1_000_000, 10**12])
def test_settings_that_ask_for_more_than_the_file_has(finished: Path, cli, width: int) -> None:
    path = finished / "settings.toml"
    path.write_text(path.read_text().replace("d_ff = 32", f"d_ff = {width}"))
    ended = cli("translate", finished, "--engine", "torch", stdin=b"1\n")
    assert ended.code == 2
    told = {4096: "the settings require [4096", 1_000_000: "Copy the run again", 10**12: "expected at most 1,048,576"}
    assert told[width] in ended.err


LONGER = ["--set", "training.max_steps=132", "--resume"]


def test_a_resumed_run_asks_for_more_memory_than_there_is(finished: Path, cli) -> None:
    path = finished / "settings.toml"
    wide = path.read_text().replace("d_ff = 32", "d_ff = 1_000_000")
    path.write_text(re.sub("(encoder|decoder)_layers = [0-9]+", r"\1_layers = 1000", wide))
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *LONGER)
    assert ended.code == 2
    assert "GiB are free" in ended.err


def test_a_manifest_without_its_counts(finished: Path, cli) -> None:
    facts = json.loads((finished / "manifest.json").read_text())
    del facts["dropped_empty"]
    (finished / "manifest.json").write_text(json.dumps(facts))
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *LONGER)
    assert ended.code == 2
    assert "'dropped_empty' is missing or no integer; the file is damaged. Copy the run again" in ended.err


def test_a_damaged_last_checkpoint_costs_only_itself(finished: Path, cli) -> None:
    (finished / "checkpoints" / "step-00000130" / "weights.safetensors").write_bytes(b"")
    words = ["--set", "training.keep=1", "--set", "training.validate_every=6", *LONGER]
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *words)
    assert ended.code == 0, ended.err
    assert "step-00000130 is damaged or incomplete (weights.safetensors has 0 bytes of " in ended.err
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == [
        "step-00000120",
        "step-00000126",
        "step-00000132",
    ]


def test_a_run_that_moves_to_another_kind_of_device(finished: Path, cli) -> None:
    """The micro-batch size of a GPU does not suit a CPU, so the checkpoint records which device it was found for."""
    path = finished / "checkpoints" / "step-00000130" / "state.json"
    state = json.loads(path.read_text())
    assert (state.pop("crc32"), state["micro_tokens"], state["device"])[1:] == (4096, "cpu")
    path.write_text(json.dumps(state | {"micro_tokens": 65_536, "device": "cuda"}))
    ended = cli("train", finished.parent / "pairs.tsv", "--out", finished, *LONGER)
    assert ended.code == 0, ended.err
    assert "4,096 tokens per forward pass from now on, 65,536 before" in ended.err


def test_a_corpus_that_changed_inside_the_run(finished: Path, cli) -> None:
    path = finished / "corpus" / "train" / "source.tokens"
    path.write_bytes(b"\xff" * path.stat().st_size)
    ended = cli(
        "train", finished.parent / "pairs.tsv", "--out", finished, "--resume", "--set", "training.max_steps=140"
    )
    assert ended.code == 2
    assert "source.tokens or target.tokens is damaged. Copy the run again, or train again with --force" in ended.err
