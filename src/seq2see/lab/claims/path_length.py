"""Claim: a signal between two positions passes one step in attention, and many in a recurrent layer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import ARCHITECTURES, WITH_ATTENTION, WITHOUT_ATTENTION, small_model
from seq2see.lab.tasks import NEEDLES, Haystack, pack
from seq2see.model.interface import Seq2Seq
from seq2see.training import loop


def trials(plan: Plan) -> list[dict[str, Any]]:
    distances, steps = ((2, 24), 200) if plan.quick else ((2, 8, 32), 300)
    return grid(model=ARCHITECTURES, distance=distances, symbols=16, steps=steps, rate=5e-3)


def measure(trial: Trial) -> Numbers:
    """Train a model to find one symbol (the needle) that is n to 1.5 n positions away from both ends of the sequence.

    So counting positions does not help. No symbol before the needle marks it, either: an RNN would see that at once,
    while attention has to learn it first.
    """
    distance = trial["distance"]
    task = Haystack("needle", symbols=trial["symbols"], shortest=distance, longest=distance + distance // 2)
    positions = max(80, 3 * task.longest)
    model = small_model(trial.seed, task.vocabularies, trial["model"], max_positions=positions)
    reach = _reach(model, task, trial.seed)
    learning.train(model, task.batches(trial.seed, pairs=32), trial["steps"], learning_rate=trial["rate"])
    right, _ = learning.accuracy(model, task.test(trial.seed, 300))
    return {"right": right, "reach": reach}


def _reach(model: Seq2Seq, task: Haystack, seed: int) -> float:
    """Return the norm of the loss gradient at the embedding of the needle, divided by the largest such norm in its
    sequence; the mean over 50 sequences.
    """
    kept: list[Tensor] = []

    def keep(_: object, __: object, embedded_ND: Tensor) -> None:
        embedded_ND.retain_grad()
        kept.append(embedded_ND)

    handle = model.get_submodule("source_embedding").register_forward_hook(keep)
    batch = pack(task.test(seed, 50))
    loop.loss_of(model, batch).total.backward()  # type: ignore[no-untyped-call]
    handle.remove()
    model.zero_grad()
    gradient = kept[0].grad
    assert gradient is not None
    norms_N = torch.linalg.vector_norm(gradient, dim=-1)
    wanted_N = torch.isin(batch.source_N, torch.tensor(NEEDLES))
    best = torch.stack([torch.max(row) for row in norms_N.tensor_split(batch.source_offsets[1:-1])])
    return float((norms_N[wanted_N] / best).mean())


def _near(rows: Measurements, model: str) -> float:
    return rows.get("right", model=model, distance=min(rows.values("distance")))


def _far(rows: Measurements, model: str) -> float:
    return rows.get("right", model=model, distance=max(rows.values("distance")))


def _finds_more(rows: Measurements, model: str, at: Callable[[Measurements, str], float] = _far) -> float:
    return at(rows, model) - at(rows, "rnn")


def _lost(rows: Measurements, model: str) -> float:
    return _near(rows, model) - _far(rows, model)


VALUES: dict[str, Value] = {
    **{model: partial(_finds_more, model=model) for model in WITH_ATTENTION},
    "transformer-keeps": partial(_lost, model="transformer"),
    **{f"{model}-loses": partial(_lost, model=model) for model in WITHOUT_ATTENTION},
}
CONTROLS: dict[str, Value] = {
    model: partial(_finds_more, model=model, at=_near) for model in ("transformer", "rnn-attention")
}
