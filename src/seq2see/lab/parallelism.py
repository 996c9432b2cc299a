"""How many tokens a second the three learn from, on this machine."""

import statistics
import time
from typing import Any

import torch

from seq2see.config import Training
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.rivals import RIVALS, rival
from seq2see.lab.tasks import Task
from seq2see.machine import pick_device
from seq2see.training import loop
from seq2see.training.optimizer import Adam

TOKENS = 4096
"""Of both sides, in a batch."""
UNTIMED = 3
"""Rounds before the clock counts: a card meets the shape of a batch, records its passes, and plays them once."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    lengths, rounds = ((16, 64), 5) if plan.quick else ((16, 64, 256), 20)
    return [{"length": length, "width": 256, "rounds": rounds} for length in lengths]


def measure(trial: Trial) -> Numbers:
    """The three take turns, so that whatever else the machine does slows all of them; the median counts.

    Each by the passes that training has for it on this device; as there, a batch comes from the processor's memory.
    """
    device, length = pick_device(), trial["length"]
    task = Task("copy", symbols=1000, shortest=length, longest=length)
    batch = next(task.batches(trial.seed, pairs=TOKENS // (2 * length + 2)))
    how, times = Training(), {kind: list[float]() for kind in RIVALS}
    models = {}
    for kind in RIVALS:
        width = trial["width"]
        sizes = (task.vocabulary, task.vocabulary)
        models[kind] = rival(kind, trial.seed, sizes, d_model=width, d_ff=4 * width, dropout=0.1).to(device)
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
    return {f"speed@{kind}": tokens / statistics.median(times[kind]) for kind in RIVALS}


def _faster(rows: Rows, than: str) -> float:
    longest = rows.where(length=max(rows.values("length")))
    return longest.get("speed", model="transformer") / longest.get("speed", model=than)


CLAIM = Claim(
    name="parallelism",
    words="Recurrence precludes parallel work within a sequence; the Transformer allows for significantly more of it, "
    "and so is trained faster.",
    source="Vaswani et al. 2017, sections 1 and 7",
    measured="tokens a second in training, forward, backward and update, one layer each of about equally many "
    "parameters, the three in turns on this machine, with all its cores or its card, as training works there: on a "
    "processor in float32, on a card in bfloat16 except for the steps of the RNNs' cells, which are in float32",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "on long rows the Transformer is faster than the RNN with attention",
            "tokens a second at the largest length, Transformer / RNN with attention",
            lambda rows: _faster(rows, "rnn-attention"),
            at_least=1.0,
            tolerance=0.1,
        ),
        Expectation(
            "and faster than the RNN without",
            "tokens a second at the largest length, Transformer / RNN",
            lambda rows: _faster(rows, "rnn"),
            at_least=1.0,
            tolerance=0.1,
        ),
    ),
    charts=(Chart("tokens a second, by model", "speed", "model", ("length",)),),
    alone=True,
    places="model",
)
