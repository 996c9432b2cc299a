"""Several processes train like one, go on with each other's checkpoints, stop together, and never wait for the dead."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_resume import assert_same_end, metrics

from conftest import random_words
from side_by_side import finish, start, wait_until

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


def long(*values: Any) -> Any:
    """Return parameters whose test takes ten seconds or more, and another like it is in the default run."""
    return pytest.param(*values, marks=pytest.mark.slow)


def corpus(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(300, 1, longest=20)))
    return path


def train(
    folder: Path, name: str, training: dict[str, Any], change: Callable[[Path], None] = lambda folder: None
) -> None:
    from seq2see import api
    from seq2see.errors import SeqError

    settings = {"model": MODEL, "training": TRAINING | training}
    try:
        change(folder)
        api.train(folder / "pairs.tsv", folder / name, settings=settings, resume=True)
    except api.Interrupted as stopped:
        sys.exit(128 + stopped.signal)
    except SeqError as problem:
        (folder / f"said by {os.environ['RANK']}").write_text(str(problem))
        sys.exit(problem.exit_code)


def step_of(run: Path) -> int:
    """The last step that the log tells of."""
    path = run / "metrics.jsonl"
    steps = re.findall(r'"step": (\d+)', path.read_text()) if path.exists() else []
    return int(steps[-1]) if steps else 0


def wait_for(run: Path, step: int) -> None:
    assert wait_until(lambda: step_of(run) >= step)


def test_a_stop_of_one_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """And resumed, they end to the bit like two that were never stopped, dropout and all."""
    corpus(tmp_path)
    assert finish(start(train, tmp_path, "whole", {})) == [0, 0]
    processes = start(train, tmp_path, "run", {})
    wait_for(tmp_path / "run", 15)
    os.kill(processes[1].pid or 0, signal.SIGTERM)
    assert finish(processes) == [128 + signal.SIGTERM] * 2
    assert 15 <= step_of(tmp_path / "run") < 40
    assert finish(start(train, tmp_path, "run", {})) == [0, 0]
    assert_same_end(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("rank", [0, 1])
def test_who_is_left_alone_does_not_wait(tmp_path: Path, rank: int) -> None:
    corpus(tmp_path)
    processes = start(train, tmp_path, "run", {"max_steps": 100_000})
    wait_for(tmp_path / "run", 25)
    processes[rank].kill()
    codes = finish(processes)
    assert codes[rank] == -signal.SIGKILL
    assert codes[1 - rank] == 75


def impatient(folder: Path) -> None:
    from seq2see.distributed import board

    board.TIMEOUT = timedelta(seconds=5)


def slow(name: str, rank: int, seconds: float) -> Callable[[Path], None]:
    """Have a rank take its time when it first comes to a part of the training; all leave a file there."""
    return partial(_slow, name=name, rank=rank, seconds=seconds)


def _slow(folder: Path, name: str, rank: int, seconds: float) -> None:
    from seq2see.evaluation import validation
    from seq2see.session import train as session
    from seq2see.training import checkpoint

    impatient(folder)
    sign = folder / f"{os.environ['RANK']} is there"
    module: Any = {"make_folder": session, "save": checkpoint, "restore": checkpoint, "measure": validation}[name]
    real = getattr(module, name)

    def late(*words: Any, **more: Any) -> Any:
        if not sign.exists():
            sign.touch()
            for _ in range(int(seconds * 20) if os.environ["RANK"] == str(rank) else 0):
                time.sleep(0.05)
        return real(*words, **more)

    setattr(module, name, late)


@pytest.mark.parametrize("rank", [0, long(1)])
def test_who_hangs_ends_all(tmp_path: Path, rank: int) -> None:
    """A process that is stopped keeps its connections, the first one the board as well."""
    corpus(tmp_path)
    processes = start(train, tmp_path, "run", {"max_steps": 100_000}, impatient)
    wait_for(tmp_path / "run", 25)
    os.kill(processes[rank].pid or 0, signal.SIGSTOP)
    assert wait_until(lambda: processes[1 - rank].exitcode is not None)
    assert finish(processes, wait=False)[1 - rank] == 75
    assert "another process was lost" in (tmp_path / f"said by {1 - rank}").read_text()


@pytest.mark.parametrize("how", [signal.SIGKILL, long(signal.SIGSTOP)])
@pytest.mark.parametrize("work", ["make_folder", long("save")])
def test_the_first_lost_in_work_of_its_own(tmp_path: Path, work: str, how: int) -> None:
    """And the run goes on afterwards."""
    corpus(tmp_path)
    processes = start(train, tmp_path, "run", {}, slow(work, 0, 1000))
    assert wait_until((tmp_path / "0 is there").exists)
    os.kill(processes[0].pid or 0, how)
    assert wait_until(lambda: processes[1].exitcode is not None)
    assert finish(processes, wait=False)[1] == 75
    assert finish(start(train, tmp_path, "run", {"max_steps": 20})) == [0, 0]


@pytest.mark.parametrize("how", [signal.SIGKILL, long(signal.SIGSTOP)])
def test_another_lost_while_the_first_saves(tmp_path: Path, how: int) -> None:
    corpus(tmp_path)
    processes = start(train, tmp_path, "run", {}, slow("save", 0, 2))
    assert wait_until((tmp_path / "0 is there").exists)
    os.kill(processes[1].pid or 0, how)
    assert wait_until(lambda: processes[0].exitcode is not None)
    assert finish(processes, wait=False)[0] == 75
    assert (tmp_path / "run/checkpoints/step-00000020/state.json").exists()


@pytest.mark.parametrize(("work", "rank"), [long("restore", 1), long("measure", 0)])
def test_who_only_takes_long_is_waited_for(tmp_path: Path, work: str, rank: int) -> None:
    corpus(tmp_path)
    assert finish(start(train, tmp_path, "run", {"max_steps": 20})) == [0, 0]
    assert finish(start(train, tmp_path, "run", {"max_steps": 21}, slow(work, rank, 8))) == [0, 0]
    assert (tmp_path / f"{rank} is there").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stop_of_one_ends_the_validation_of_all(tmp_path: Path, rank: int) -> None:
    corpus(tmp_path)
    processes = start(train, tmp_path, "run", {}, slow("measure", 1, 1000))
    assert wait_until(lambda: all((tmp_path / f"{each} is there").exists() for each in (0, 1)))
    os.kill(processes[rank].pid or 0, signal.SIGTERM)
    assert finish(processes) == [128 + signal.SIGTERM] * 2
    assert (tmp_path / "run/checkpoints/pause-00000020/state.json").exists()


def call(folder: Path, *words: str) -> None:
    """The program in a process of several, its standard streams in files of its rank."""
    from seq2see.cli.program import main

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = folder / (name if name == "stdin" else f"{name} {os.environ['RANK']}")
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.argv = ["seq2see", *words]
    main()


def test_two_processes_translate_and_evaluate_like_one(trained: Path, tmp_path: Path, cli) -> None:
    lines = "\n".join([*random_words(50, 7), "", "abc" * 400]).encode()  # the last is too long, and cut
    (tmp_path / "stdin").write_bytes(lines)
    alone = cli("translate", trained, stdin=lines)
    assert "was cut" in alone.err
    assert finish(start(call, tmp_path, "translate", str(trained))) == [0, 0]
    assert (tmp_path / "stdout 0").read_text() == alone.out
    assert alone.err in (tmp_path / "stderr 0").read_text()
    assert (tmp_path / "stdout 1").read_text() == ""

    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(31, 9)))
    words = ["evaluate", str(trained), str(pairs), "--json", "--output"]
    (tmp_path / "stdout 0").unlink()
    assert finish(start(call, tmp_path, *words, str(tmp_path / "two"))) == [0, 0]
    assert json.loads((tmp_path / "stdout 0").read_text()) == json.loads(cli(*words, tmp_path / "one").out)
    assert (tmp_path / "two").read_text() == (tmp_path / "one").read_text()
    assert (tmp_path / "stdout 1").read_text() == ""


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    """And nothing that was trained is thrown away."""
    pairs = corpus(tmp_path)
    settings = [f"model.{key}={value}" for key, value in MODEL.items()]
    settings += [f"training.{key}={value}" for key, value in (TRAINING | {"max_steps": 50}).items()]
    words = ["train", pairs, "--out", tmp_path / "run", "--resume"]
    words += [word for each in settings for word in ("--set", each)]
    options = [
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
        "--max-restarts",
        "1",
    ]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "seq2see", *map(str, words)]
    with (tmp_path / "stderr").open("wb") as said:
        job = subprocess.Popen(command, stderr=said)
    wait_for(tmp_path / "run", 25)
    os.kill(worker(job.pid, rank=1), signal.SIGKILL)
    wait_until(lambda: job.poll() is not None)
    code = job.poll()
    job.terminate()  # and its processes with it
    job.wait()
    err = (tmp_path / "stderr").read_text()
    assert code == 0, err
    assert re.search(r"resuming after step \d\d", err)
    assert err.count("done: all 50 steps done") == 1
    steps = [row["step"] for row in metrics(tmp_path / "run") if "loss" in row]
    assert steps == list(range(1, 51))


@pytest.mark.parametrize(
    ("option", "restarts", "said"),
    [
        ("--force", "0", "Remove the run folder yourself, and use --resume"),
        ("--force", "3", "Remove the run folder yourself, and use --resume"),
        (None, "3", "Add --resume"),
    ],
)
def test_a_command_that_torchrun_may_repeat(
    trained: Path, tmp_path: Path, cli, monkeypatch: pytest.MonkeyPatch, option: str | None, restarts: str, said: str
) -> None:
    """It must neither throw away what it has trained, nor take an older run for its own."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", restarts)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1" if restarts != "0" else "0")
    run = shutil.copytree(trained, tmp_path / "run")
    before = {path.name for path in run.iterdir()}
    ended = cli("train", trained.parent / "upper.tsv", "--out", run, *([option] if option else []))
    assert ended.code == 2
    assert said in ended.err
    assert {path.name for path in run.iterdir()} == before


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
