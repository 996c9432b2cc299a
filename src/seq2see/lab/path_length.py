"""How far a signal has to travel, and what that means for learning."""

from typing import Any

import torch
from torch import Tensor

from seq2see.lab import learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.rivals import RIVALS, rival
from seq2see.lab.tasks import NEEDLES, Haystack, Task, pack
from seq2see.model.interface import Seq2Seq
from seq2see.training import loop


def trials(plan: Plan) -> list[dict[str, Any]]:
    distances, steps = ((2, 8, 32), 250) if plan.quick else ((2, 4, 8, 16, 32, 64, 128), 2000)
    return [
        {"model": kind, "distance": n, "symbols": 16, "steps": steps, "rate": 5e-3}
        for kind in RIVALS
        for n in distances
    ]


def measure(trial: Trial) -> Numbers:
    """A needle in hay, n away from wherever an RNN begins or ends, or half as far again: nobody needs to count.

    Nor is it marked by the symbol before it: who stands beside whom an RNN has for free, attention must learn it first.
    """
    distance = trial["distance"]
    task = Haystack("needle", symbols=trial["symbols"], shortest=distance, longest=distance + distance // 2)
    model = rival(trial["model"], trial.seed, (task.vocabulary, task.vocabulary))
    reach = _reach(model, task, trial.seed)
    learning.train(model, task.batches(trial.seed, pairs=32), trial["steps"], learning_rate=trial["rate"])
    right, _ = learning.accuracy(model, task.test(trial.seed, 300))
    return {"right": right, "reach": reach}


def _reach(model: Seq2Seq, task: Task, seed: int) -> float:
    """In a fresh model: the gradient that the wanted token gets, as a share of what the best-served token gets."""
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


def _near(rows: Rows, model: str) -> float:
    return rows.get("right", model=model, distance=min(rows.values("distance")))


def _far(rows: Rows, model: str) -> float:
    return rows.get("right", model=model, distance=max(rows.values("distance")))


CLAIM = Claim(
    name="path-length",
    words="The shorter the path between two positions, the easier it is to learn what links them: one step in "
    "attention, as many as there are tokens between them in a recurrent layer.",
    source="Vaswani et al. 2017, section 4; Hochreiter et al. 2001",
    measured="which one of eight symbols stands among others, n to 1.5 n away from both ends of a row, a fresh model "
    "trained for each n, all of about equally many parameters: the share found (an RNN with attention can look at it "
    "in one step, too); and the gradient that the symbol gets before training, as a share of what the best-served gets",
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
            "so does the RNN with attention",
            "share found at the largest n, RNN with attention - RNN",
            lambda rows: _far(rows, "rnn-attention") - _far(rows, "rnn"),
            at_least=0.2,
        ),
        Expectation(
            "to the Transformer, distance makes no difference",
            "share found by the Transformer, smallest n - largest",
            lambda rows: _near(rows, "transformer") - _far(rows, "transformer"),
            at_most=0.1,
        ),
        Expectation(
            "to the RNN it does",
            "share found by the RNN, smallest n - largest",
            lambda rows: _near(rows, "rnn") - _far(rows, "rnn"),
            at_least=0.2,
        ),
    ),
    charts=(
        Chart("share found", "right", "distance", ("model",), log_x=True),
        Chart("gradient before training", "reach", "distance", ("model",), log_x=True, log_y=True),
    ),
)
