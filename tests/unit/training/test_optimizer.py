"""Adam: the paper's where nothing decays, and what decays where something does."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from seq2see.config import Training
from seq2see.training.optimizer import Adam

RATE = 0.1


def make() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def give_gradients(model: nn.Module, dice: torch.Generator) -> None:
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=dice)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_it_is_pytorchs_own(decay: float) -> None:
    """Without decay the paper's; with decay its groups are ours to make."""
    ours, theirs = make(), make()
    settings = Training(weight_decay=decay)
    optimizer = Adam(ours.parameters(), settings)
    matrices = [weight for weight in theirs.parameters() if weight.dim() > 1]
    others = [weight for weight in theirs.parameters() if weight.dim() == 1]
    reference = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}],
        lr=RATE,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=settings.adam_epsilon,
    )
    for step in range(4):
        for model in (ours, theirs):
            give_gradients(model, torch.Generator().manual_seed(step))
        optimizer.step(RATE)
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_matrices_decay_and_nothing_else(decay: float) -> None:
    model, before = make(), make()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    Adam(model.parameters(), Training(weight_decay=decay)).step(RATE)
    for weight, was in zip(model.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(weight, was * (1 - RATE * decay) if weight.dim() > 1 else was)


def test_frozen_weights_and_those_without_a_gradient_stay() -> None:
    model, before = make(), make()
    model[0].requires_grad_(False)
    optimizer = Adam(model.parameters(), Training(weight_decay=0.5))
    model[2].weight.grad = torch.ones_like(model[2].weight)
    optimizer.step(RATE)
    assert not torch.equal(model[2].weight, before[2].weight)
    for name in ("0.weight", "1.weight", "1.bias", "2.bias"):
        assert torch.equal(model.get_parameter(name), before.get_parameter(name))


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_what_is_kept_has_the_same_names_whatever_decays(decay: float) -> None:
    """A run may go on with another decay."""
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in Adam(make().parameters(), Training(weight_decay=decay)).tensors().items()
    }
    assert shapes["0.exp_avg"] == shapes["0.exp_avg_sq"] == (6, 4)
    assert shapes["4.exp_avg"] == (2,)
    assert {name for name, shape in shapes.items() if shape == ()} == {f"{number}.step" for number in range(5)}


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_are_forgotten(to_none: bool) -> None:
    model = make()
    optimizer = Adam(model.parameters(), Training())
    optimizer.zero_grad(set_to_none=to_none)  # before there are any, as after a first update that failed
    give_gradients(model, torch.Generator())
    kept = model[2].weight.grad
    optimizer.zero_grad(set_to_none=to_none)
    assert (model[2].weight.grad is None) == to_none
    assert to_none or (model[2].weight.grad is kept and not kept.any())


def test_no_compiler_is_imported() -> None:
    """Which would cost every training a second and 75 MB."""
    code = """
import sys, torch
from seq2see.config import Training
from seq2see.training.optimizer import Adam
model = torch.nn.Linear(2, 2)
optimizer = Adam(model.parameters(), Training())
model(torch.ones(1, 2)).sum().backward()
optimizer.step(0.1)
optimizer.zero_grad()
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
