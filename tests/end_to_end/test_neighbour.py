"""A training beside a program that keeps one core busy: fewer threads while it is there, all of them afterwards."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL = ("encoder_layers=2", "decoder_layers=2", "d_model=256", "heads=4", "d_ff=1024")
TRAINING = ("batch_tokens=1024", "max_steps=1000000", "max_minutes=3", "validate_every=1000000")


@pytest.mark.slow
def test_threads_give_way_and_come_back(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    dice = random.Random(3)
    lines = (" ".join(dice.choices("abcdefghij", k=dice.randint(5, 20))) for _ in range(2000))
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    settings = [*(f"model.{each}" for each in MODEL), *(f"training.{each}" for each in TRAINING)]
    pinned = ["taskset", "-c", ",".join(map(str, cores)), sys.executable]
    neighbour = subprocess.Popen([*pinned, "-c", "while True: pass"])
    training = subprocess.Popen(
        [*pinned, "-m", "seq2see", "train", "pairs.tsv", *(word for each in settings for word in ("--set", each))],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert training.stderr is not None
        said = (line for line in training.stderr if "from now on" in line)
        assert "with 1 thread from now on" in first(said)
        neighbour.kill()
        assert "with 2 threads from now on" in first(said)
    finally:
        for process in (neighbour, training):
            process.kill()
            process.wait()
        training.stderr.close()


def first(lines: Iterator[str]) -> str:
    """The next line; none if the training has ended, which it does after three minutes."""
    return next(lines, "")
