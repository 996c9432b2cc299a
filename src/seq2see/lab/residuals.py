"""What residual sums and layer norms are for."""

import math
from typing import Any

import torch

from seq2see import special
from seq2see.lab import ablations, learning
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.tasks import Task, pack
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer
from seq2see.training import loop

DEEP = 8
"""Layers of each stack in the model whose gradients are judged; without norms, deeper ones overflow."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    depths, deep, steps = ((1, 2, 4, DEEP), 4, 150) if plan.quick else ((1, 2, 4, DEEP, 16, 32), DEEP, 1500)
    return [
        {"residuals": residuals, "norm": norm, "depth": depth, "fresh": 8, "steps": steps if depth == deep else 0}
        for residuals in (True, False)
        for norm in (True, False)
        for depth in depths
    ]


def measure(trial: Trial) -> Numbers:
    """Gradients in some fresh models, how alike they make symbols, and what one depth has learned after some steps."""
    task = Task("copy", symbols=10, shortest=2, longest=6)
    models = [_model(trial, 100 * trial.seed + number, task) for number in range(trial["fresh"])]
    ratios = [_gradient_ratio(model, task, trial.seed) for model in models]
    numbers = {
        "gradient_digits": sum(math.log10(max(ratio, 1e-30)) for ratio in ratios) / len(ratios),
        "alike": sum(_alike(model, task) for model in models) / len(models),
    }
    if trial["steps"]:
        course = learning.train(models[0], task.batches(trial.seed, pairs=32), trial["steps"])
        numbers["loss"] = course.final_loss(task.vocabulary)
    return numbers


def _model(trial: Trial, seed: int, task: Task) -> Seq2Seq:
    depth = trial["depth"]
    changes = {"encoder_layers": depth, "decoder_layers": depth, "norm": "post", "d_model": 32, "d_ff": 64}
    model = learning.small_model(seed, (task.vocabulary, task.vocabulary), **changes)
    if not trial["residuals"]:
        ablations.without_residuals(model)
    if not trial["norm"]:
        ablations.without_norm(model)
    return model


def _gradient_ratio(model: Seq2Seq, task: Task, seed: int) -> float:
    """Of the loss by the feed-forward weights: the first encoder layer's norm over the last decoder layer's."""
    assert isinstance(model, Transformer)
    loop.loss_of(model, pack(task.test(seed, 64))).total.backward()  # type: ignore[no-untyped-call]
    first, last = (
        layer.get_parameter("feed_forward.w_1.weight").grad for layer in (model.encoder[0], model.decoder[-1])
    )
    assert first is not None
    assert last is not None
    ratio = float(first.norm() / last.norm())
    model.zero_grad()
    return ratio


@torch.inference_mode()
def _alike(model: Seq2Seq, task: Task) -> float:
    """Cosine of the encoder's vectors of two different symbols, the mean: at 1 nothing tells one from another."""
    symbols = torch.arange(special.COUNT, task.vocabulary)
    states_ND = model.encode(symbols, torch.tensor([0, len(symbols)])).states_ND
    unit_ND = torch.nn.functional.normalize(states_ND, dim=-1)
    return float((unit_ND @ unit_ND.T)[~torch.eye(len(symbols), dtype=torch.bool)].mean())


def _lost(rows: Rows, **without: bool) -> float:
    whole = {"residuals": True, "norm": True}
    return rows.get("loss", **(whole | without)) - rows.get("loss", **whole)


CLAIM = Claim(
    name="residuals",
    words="Around each sub-layer there is a residual connection and layer normalisation; they are what lets deep "
    "stacks be trained.",
    source="Vaswani et al. 2017, section 3.1; He et al. 2016; Ba et al. 2016; symbols made alike: Dong et al. 2021",
    measured="gradient of the first encoder layer / of the last decoder layer in fresh post-norm models of growing "
    "depth (its decimal logarithm, the mean of 8), how alike their encoders make different symbols, and the loss of "
    "one of them after some training on copying rows of symbols",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "with both, the first layer of a deep model gets a gradient of the same order as the last",
            "gradient, first layer / last, with both, digits",
            lambda rows: rows.get("gradient_digits", residuals=True, norm=True, depth=DEEP),
            at_least=-1,
            at_most=1,
        ),
        Expectation(
            "without residuals, deep encoders confuse all symbols",
            "1 - cosine of two symbols' vectors, without residuals / with",
            lambda rows: (
                (1 - rows.get("alike", residuals=False, norm=True, depth=DEEP))
                / (1 - rows.get("alike", residuals=True, norm=True, depth=DEEP))
            ),
            at_most=0.1,
        ),
        Expectation(
            "without residuals, less is learned",
            "loss, without residuals - with",
            lambda rows: _lost(rows, residuals=False),
            at_least=0.1,
        ),
        Expectation(
            "without norms, less is learned",
            "loss, without norms - with",
            lambda rows: _lost(rows, norm=False),
            at_least=0.1,
        ),
    ),
    charts=(
        Chart("gradient, first layer / last, digits", "gradient_digits", "depth", ("residuals", "norm"), log_x=True),
        Chart("alikeness of symbols (cosine)", "alike", "depth", ("residuals", "norm"), log_x=True),
        Chart("loss after training", "loss", "residuals", ("norm",)),
    ),
)
