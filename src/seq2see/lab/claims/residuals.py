"""Claim: residual connections and layer normalization make deep stacks trainable."""

import math
from functools import partial
from typing import Any

import torch

from seq2see import special
from seq2see.lab import learning, models
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.tasks import SymbolTask, pack
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer
from seq2see.training import loop

DEEP = 8
"""Number of layers of the encoder, and of the decoder, in the model whose gradients are judged; without norms, deeper
models overflow.
"""
TASK = SymbolTask("copy", symbols=10, shortest=2, longest=6)


def trials(plan: Plan) -> list[dict[str, Any]]:
    depths, deep, steps = ((1, 2, 4, DEEP), 4, 150) if plan.quick else ((1, 2, 4, DEEP, 16), DEEP, 300)
    conditions = grid(residuals=(True, False), norm=(True, False), weights=1, depth=depths, fresh=8)
    conditions += grid(residuals=True, norm=True, weights=2, depth=tuple(sorted({deep, DEEP})), fresh=8)  # the control
    return [each | {"steps": steps if each["depth"] == deep else 0} for each in conditions]


def measure(trial: Trial) -> Numbers:
    """Measure gradients and similarities in untrained models; if the trial has `steps`, also train one of them."""
    first = 100 * trial.seed + (trial["weights"] - 1) * models.OTHER_WEIGHTS
    fresh = [_model(trial, first + number) for number in range(trial["fresh"])]
    ratios = [_gradient_ratio(model, trial.seed) for model in fresh]
    numbers = {
        "gradient_digits": sum(math.log10(max(ratio, 1e-30)) for ratio in ratios) / len(ratios),
        "alike": sum(_alike(model) for model in fresh) / len(fresh),
    }
    if trial["steps"]:
        losses = learning.train(fresh[0], TASK.batches(trial.seed, pairs=32), trial["steps"])
        numbers["loss"] = learning.final_loss(losses, TASK.vocabularies)
    return numbers


def _model(trial: Trial, seed: int) -> Seq2Seq:
    depth = trial["depth"]
    changes = {"encoder_layers": depth, "decoder_layers": depth, "norm": "post", "d_model": 32, "d_ff": 64}
    model = models.small_model(seed, TASK.vocabularies, **changes)
    if not trial["residuals"]:
        models.without_residuals(model)
    if not trial["norm"]:
        models.without_norm(model)
    return model


def _gradient_ratio(model: Seq2Seq, seed: int) -> float:
    """Return the gradient norm of the first encoder layer divided by that of the last decoder layer (first feed-forward
    matrix).
    """
    assert isinstance(model, Transformer)
    loop.loss_of(model, pack(TASK.test(seed, 64))).total.backward()  # type: ignore[no-untyped-call]
    first, last = (
        layer.get_parameter("feed_forward.w_1.weight").grad for layer in (model.encoder[0], model.decoder[-1])
    )
    assert first is not None
    assert last is not None
    ratio = float(first.norm() / last.norm())
    model.zero_grad()
    return ratio


@torch.inference_mode()
def _alike(model: Seq2Seq) -> float:
    """Return the cosine similarity of the encoder states of two symbols, averaged over all pairs; 1: same direction."""
    symbols = torch.arange(special.COUNT, TASK.vocabularies[0])
    states_ND = model.encode(symbols, torch.tensor([0, len(symbols)])).states_ND
    unit_ND = torch.nn.functional.normalize(states_ND, dim=-1)
    return float((unit_ND @ unit_ND.T)[~torch.eye(len(symbols), dtype=torch.bool)].mean())


WHOLE = {"residuals": True, "norm": True, "weights": 1}


def _left(rows: Measurements, **other: Any) -> float:
    """Return (1 - `_alike`) of a model with changed conditions divided by (1 - `_alike`) of the `WHOLE` model: how much
    of the difference between symbols is left.
    """
    changed, whole = (1 - rows.get("alike", **each, depth=DEEP) for each in (WHOLE | other, WHOLE))
    return changed / whole


def _lost(rows: Measurements, **other: Any) -> float:
    return rows.get("loss", **(WHOLE | other)) - rows.get("loss", **WHOLE)


VALUES: dict[str, Value] = {
    "gradient": lambda rows: rows.get("gradient_digits", **WHOLE, depth=DEEP),
    "similarity": partial(_left, residuals=False),
    "residuals": partial(_lost, residuals=False),
    "norm": partial(_lost, norm=False),
}
CONTROLS: dict[str, Value] = {"similarity": partial(_left, weights=2), "residuals": partial(_lost, weights=2)}
