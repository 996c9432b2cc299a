"""kill -9 at any moment, saves included: resumed each time, the run ends to the bit like one that was never stopped."""

import multiprocessing
import os
import random
import shutil
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from test_resume import assert_same_end, corpus

SETTINGS = {
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "heads": 2, "d_ff": 12, "dropout": 0.1},
    "training": {
        "max_steps": 46,
        "warmup_steps": 10,
        "batch_tokens": 200,
        "micro_batch_tokens": 90,
        "validate_every": 4,
        "log_every": 3,
        "average": 3,
        "patience": 0,
    },
}


def train(folder: Path, die_at: int = 0) -> None:
    """Go on with the run in `folder`, to its end or to the `die_at`th time that something is made sure of on disk."""
    import torch

    from seq2see import api

    torch.set_num_threads(1)
    left = die_at

    def deadly(real: Any) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **more)

        return call

    if die_at:
        os.fsync, shutil.rmtree = deadly(os.fsync), deadly(shutil.rmtree)
        Path.rename, Path.replace = deadly(Path.rename), deadly(Path.replace)  # type: ignore[method-assign]
    api.train(folder / "pairs.tsv", folder / "run", settings=SETTINGS, resume=True)


@pytest.fixture(scope="module")
def whole(once) -> Path:
    def make(folder: Path) -> None:
        corpus(folder / "pairs.tsv")
        train(folder)

    return once("never-killed", make) / "run"


def start(folder: Path, die_at: int = 0) -> ForkServerProcess:
    """A process of its own, from a server that has imported everything once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["seq2see.api", "seq2see.pictures.translations", "torch.utils.tensorboard", "test_kill"]
    )
    process = context.Process(target=train, args=(folder, die_at))
    process.start()
    return process


def end(folder: Path, whole: Path) -> None:
    process = start(folder)
    process.join(timeout=600)
    assert process.exitcode == 0
    assert_same_end(folder / "run", whole)


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_while_something_is_saved(tmp_path: Path, whole: Path, kills: int) -> None:
    corpus(tmp_path / "pairs.tsv")
    dice = random.Random(kills)
    killed = 0
    while killed < kills:
        process = start(tmp_path, die_at=dice.randint(1, 60 if kills < 10 else 25))
        process.join(timeout=600)
        if process.exitcode == 0:  # done before its time: once more from the beginning
            assert_same_end(tmp_path / "run", whole)
            shutil.rmtree(tmp_path / "run")
            continue
        assert process.exitcode == -signal.SIGKILL
        killed += 1
    end(tmp_path, whole)


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_moment(tmp_path: Path, whole: Path, kills: int) -> None:
    corpus(tmp_path / "pairs.tsv")
    dice = random.Random(kills)
    killed, longest = 0, 1.0
    while killed < kills:
        process = start(tmp_path)
        began = time.monotonic()
        process.join(timeout=dice.uniform(0, longest))
        if process.exitcode is not None:
            assert process.exitcode == 0
            assert_same_end(tmp_path / "run", whole)
            longest = 1.2 * (time.monotonic() - began)
            shutil.rmtree(tmp_path / "run")
            continue
        process.kill()
        process.join(timeout=60)
        assert process.exitcode == -signal.SIGKILL
        killed += 1
    end(tmp_path, whole)
