"""How far a signal has to travel, and what that means for learning."""

from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.rivals import RIVALS, rival
from seq2see.lab.tasks import Task, pack
from seq2see.model.interface import Seq2Seq
from seq2see.training import loop


def trials(plan: Plan) -> list[dict[str, Any]]:
    distances, steps = ((2, 8, 32), 250) if plan.quick else ((2, 4, 8, 16, 32, 64, 128), 2000)
    return [{"model": kind, "distance": n, "steps": steps} for kind in RIVALS for n in distances]


def measure(trial: Trial) -> Numbers:
    """Rows of 2n + 1 symbols, of which the middle one is asked for: n away from wherever an RNN begins or ends."""
    length = 2 * trial["distance"] + 1
    task = Task("middle", symbols=8, shortest=length, longest=length)
    model = rival(trial["model"], trial.seed, (task.vocabulary, task.vocabulary))
    reach = _reach(model, task, trial.seed)
    learning.train(model, task.batches(trial.seed, pairs=32), trial["steps"], learning_rate=3e-3)
    right, _ = learning.accuracy(model, task.test(trial.seed, 300))
    return {"right": right, "reach": reach}


def _reach(model: Seq2Seq, task: Task, seed: int) -> float:
    """In a fresh model: the gradient that the middle token gets, as a share of what the best-served token gets."""
    kept: list[Tensor] = []

    def keep(_: object, __: object, embedded_ND: Tensor) -> None:
        embedded_ND.retain_grad()
        kept.append(embedded_ND)

    handle = model.get_submodule("source_embedding").register_forward_hook(keep)
    loop.loss_of(model, pack(task.test(seed, 50))).total.backward()  # type: ignore[no-untyped-call]
    handle.remove()
    model.zero_grad()
    gradient = kept[0].grad
    assert gradient is not None
    norms_L = gradient.unflatten(0, (50, -1)).norm(dim=-1).mean(0)  # type: ignore[no-untyped-call]
    return float(norms_L[task.longest // 2] / torch.max(norms_L))


def _far(rows: Rows, model: str, number: str = "right") -> float:
    return rows.get(number, model=model, distance=max(rows.values("distance")))


CLAIM = Claim(
    name="path-length",
    words="The shorter the path between two positions, the easier it is to learn what links them: one step in "
    "attention, as many as there are tokens between them in a recurrent layer.",
    source="Vaswani et al. 2017, section 4; Hochreiter et al. 2001",
    measured="a symbol to be found n symbols away from both ends of a row, a fresh model trained for each n, all of "
    "about equally many parameters: the share found; and the gradient that the symbol gets before training, as a share "
    "of what the best-served one gets",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "far away, the Transformer finds what the RNN does not",
            "share found at the largest n, Transformer - RNN",
            lambda rows: _far(rows, "transformer") - _far(rows, "rnn"),
            at_least=0.2,
        ),
        Expectation(
            "before training, hardly any gradient gets that far in the RNN, and much of it in the Transformer",
            "gradient at the largest n, RNN / Transformer",
            lambda rows: _far(rows, "rnn", "reach") / _far(rows, "transformer", "reach"),
            at_most=0.1,
        ),
    ),
    charts=(
        Chart("share found", "right", "distance", ("model",), log_x=True),
        Chart("gradient before training", "reach", "distance", ("model",), log_x=True, log_y=True),
    ),
)
