"""Measure the training throughput of all architectures on this machine."""

import time
from functools import partial
from typing import Any

import torch

from seq2see.config import Training
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import ARCHITECTURES, OTHER_WEIGHTS, RECURRENT, small_model
from seq2see.lab.tasks import SymbolTask
from seq2see.machine import pick_device
from seq2see.training import loop
from seq2see.training.optimizer import Adam

ALONE, PLACES = True, "model"
TOKENS = 4096
"""Approximate number of tokens, source and target together, in the batch whose training step is timed."""
SECOND = "transformer, again"
"""Name of the control: a second Transformer with other initial weights, timed in turn with the first."""
UNTIMED = 3
"""Number of rounds (one update of each model) before timing; on a GPU they capture passes as CUDA graphs."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    lengths, rounds = ((64,), 5) if plan.quick else ((16, 64, 256), 5)
    return grid(length=lengths, width=256, rounds=rounds)


def measure(trial: Trial) -> Numbers:
    """Measure the training throughput of the models: they run in turn, so that other load slows all of them, and the
    fastest round of each counts.

    Each model is trained as `seq2see train` would on this device, with batches copied from the CPU's memory.
    """
    device, length, width = pick_device(), trial["length"], trial["width"]
    task = SymbolTask("copy", symbols=1000, shortest=length, longest=length)
    batch = next(task.batches(trial.seed, pairs=TOKENS // (2 * length + 2)))
    how, sizes = Training(), {"d_model": width, "d_ff": 4 * width, "dropout": 0.1, "max_positions": length + 16}
    models = {kind: small_model(trial.seed, task.vocabularies, kind, **sizes).to(device) for kind in ARCHITECTURES}
    models[SECOND] = small_model(trial.seed + OTHER_WEIGHTS, task.vocabularies, **sizes).to(device)
    times = {kind: list[float]() for kind in models}
    optimizers = {kind: Adam(model.parameters(), how) for kind, model in models.items()}
    passes = {kind: loop.fastest_passes(model, how) for kind, model in models.items()}
    for number in range(UNTIMED + trial["rounds"]):
        for kind, model in models.items():
            began = time.perf_counter()
            loop.update(model, optimizers[kind], [batch], how, 1e-4, passes[kind])
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number >= UNTIMED:
                times[kind].append(time.perf_counter() - began)
    tokens = batch.source_tokens + batch.target_tokens
    return {f"speed@{kind}": tokens / min(spent) for kind, spent in times.items()}


def _faster(rows: Measurements, than: str) -> float:
    longest = rows.where(length=max(rows.values("length")))
    return longest.get("speed", model="transformer") / longest.get("speed", model=than)


VALUES: dict[str, Value] = {kind: partial(_faster, than=kind) for kind in RECURRENT}
CONTROLS: dict[str, Value] = {"rnn": partial(_faster, than=SECOND)}
