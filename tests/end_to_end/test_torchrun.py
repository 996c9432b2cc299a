"""Several processes train like one, go on with each other's checkpoints, stop together, and never wait for the dead."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_resume import assert_same_end, metrics

from conftest import random_words
from side_by_side import WAIT, finish, start

MODEL = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2, "d_ff": 24, "dropout": 0.2}
TRAINING = {
    "max_steps": 40,
    "warmup_steps": 20,
    "batch_tokens": 600,
    "micro_batch_tokens": 150,
    "validate_every": 20,
    "log_every": 1,
    "average": 2,
    "patience": 0,
    "metric": "exact",
}


def corpus(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(300, 1, longest=20)))
    return path


def train(folder: Path, name: str, training: dict[str, Any]) -> None:
    from seq2see import api

    settings = {"model": MODEL, "training": TRAINING | training}
    try:
        api.train(folder / "pairs.tsv", folder / name, settings=settings, resume=True)
    except api.Interrupted as stopped:
        sys.exit(128 + stopped.signal)


def step_of(run: Path) -> int:
    """The last step that the log tells of."""
    path = run / "metrics.jsonl"
    steps = re.findall(r'"step": (\d+)', path.read_text()) if path.exists() else []
    return int(steps[-1]) if steps else 0


def wait_until(run: Path, step: int) -> None:
    until = time.monotonic() + WAIT
    while step_of(run) < step:
        assert time.monotonic() < until, "no such step"
        time.sleep(0.005)


def test_a_stop_of_one_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """And resumed, they end to the bit like two that were never stopped, dropout and all."""
    corpus(tmp_path)
    assert finish(start(train, tmp_path, "whole", {})) == [0, 0]
    processes = start(train, tmp_path, "run", {})
    wait_until(tmp_path / "run", 15)
    os.kill(processes[1].pid or 0, signal.SIGTERM)
    assert finish(processes) == [128 + signal.SIGTERM] * 2
    assert 15 <= step_of(tmp_path / "run") < 40
    assert finish(start(train, tmp_path, "run", {})) == [0, 0]
    assert_same_end(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("rank", [0, 1])
def test_who_is_left_alone_does_not_wait(tmp_path: Path, rank: int) -> None:
    corpus(tmp_path)
    processes = start(train, tmp_path, "run", {"max_steps": 100_000})
    wait_until(tmp_path / "run", 25)
    processes[rank].kill()
    codes = finish(processes)
    assert codes[rank] == -signal.SIGKILL
    assert codes[1 - rank] not in (None, 0, -signal.SIGKILL)


def torchrun(*words: object, restarts: int = 0) -> list[str]:
    """The command that a user would type."""
    options = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    program = [sys.executable, "-m", "torch.distributed.run", *options, "--max-restarts", str(restarts)]
    return [*program, "-m", "seq2see", *map(str, words)]


def test_two_processes_translate_and_evaluate_like_one(trained: Path, tmp_path: Path, cli) -> None:
    lines = "\n".join([*random_words(50, 7), "", "abc" * 400]).encode()  # the last is too long, and cut
    ended = subprocess.run(torchrun("translate", trained), input=lines, capture_output=True, timeout=WAIT, check=False)
    alone = cli("translate", trained, stdin=lines)
    assert ended.stdout.decode() == alone.out
    assert [line for line in ended.stderr.decode().splitlines() if line.startswith("line ")] == alone.err.splitlines()
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(31, 9)))
    words = ["evaluate", trained, pairs, "--json", "--output", tmp_path / "two"]
    ended = subprocess.run(torchrun(*words), capture_output=True, timeout=WAIT, check=False)
    words[-1] = tmp_path / "one"
    assert json.loads(ended.stdout) == json.loads(cli(*words).out)
    assert (tmp_path / "two").read_text() == (tmp_path / "one").read_text()


def test_a_killed_process_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    """And nothing that was trained is thrown away, even if --force stands in the command."""
    pairs = corpus(tmp_path)
    settings = [f"model.{key}={value}" for key, value in MODEL.items()]
    settings += [f"training.{key}={value}" for key, value in (TRAINING | {"max_steps": 400}).items()]
    words = ["train", pairs, "--out", tmp_path / "run", "--force"]
    words += [word for each in settings for word in ("--set", each)]
    job = subprocess.Popen(torchrun(*words, restarts=1), stderr=subprocess.PIPE, text=True)
    wait_until(tmp_path / "run", 25)
    os.kill(worker(job.pid, rank=1), signal.SIGKILL)
    _, err = job.communicate(timeout=WAIT)
    assert job.returncode == 0, err
    assert re.search(r"resuming  after step \d\d", err)
    assert err.count("done: all 400 steps done") == 1
    steps = [row["step"] for row in metrics(tmp_path / "run") if "loss" in row]
    assert steps == list(range(1, 401))


def worker(job: int, rank: int) -> int:
    """The process of a rank that torchrun has started."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == job and f"\0RANK={rank}\0" in (path / "environ").read_text():
                return int(path.name)
        except (OSError, ValueError):  # it has ended meanwhile
            continue
    raise AssertionError("no such process")
