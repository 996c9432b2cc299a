"""Settings for trainings whose result does not matter (the smallest model, two steps), and one cut short by Ctrl-C."""

import os
import signal
import subprocess
import sys

import torch

SETTINGS = [
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=8",
    "model.heads=2",
    "model.d_ff=12",
    "training.max_steps=2",
    "training.warmup_steps=1",
    "training.batch_tokens=200",
    "training.alignment_weight=0",
]
QUICK = [word for assignment in SETTINGS for word in ("--set", assignment)]


def interrupted(*words: str) -> tuple[str, str]:
    """What `seq2see` prints (standard output, errors) when Ctrl-C comes after its first validation."""
    training = subprocess.Popen(
        [sys.executable, "-m", "seq2see", *words],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert training.stderr is not None
    seen = ""
    while "validation loss" not in seen:
        line = training.stderr.readline()
        assert line, seen
        seen += line
    training.send_signal(signal.SIGINT)
    out, err = training.communicate(timeout=300)
    assert training.returncode == 130, seen + err
    return out, err
