"""Adam: the paper's where nothing decays, and what decays where something does."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from seq2see.config import Training
from seq2see.training.optimizer import adam

RATE = 0.1


def make() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def updates(optimizer: torch.optim.Optimizer, gradients: Iterator[torch.Tensor]) -> None:
    for group in optimizer.param_groups:
        group["lr"] = RATE
        for weight in group["params"]:
            weight.grad = next(gradients).expand_as(weight).clone()
    optimizer.step()


def test_without_decay_it_is_the_papers_adam() -> None:
    ours, theirs = make(), make()
    settings = Training()
    betas = (settings.adam_beta1, settings.adam_beta2)
    for model, optimizer in (
        (ours, adam(ours.parameters(), settings)),
        (theirs, torch.optim.Adam(theirs.parameters(), betas=betas, eps=settings.adam_epsilon)),
    ):
        dice = torch.Generator().manual_seed(5)
        for _ in range(4):
            updates(optimizer, (torch.randn((), generator=dice) for _ in model.parameters()))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_matrices_decay_and_nothing_else(decay: float) -> None:
    model, before = make(), make()
    updates(adam(model.parameters(), Training(weight_decay=decay)), (torch.zeros(()) for _ in model.parameters()))
    for weight, was in zip(model.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(weight, was * (1 - RATE * decay) if weight.dim() > 1 else was)


def test_frozen_weights_stay() -> None:
    model, before = make(), make()
    model[0].requires_grad_(False)
    updates(adam(model.parameters(), Training(weight_decay=0.5)), (torch.ones(()) for _ in model.parameters()))
    assert torch.equal(model[0].weight, before[0].weight)
    assert not torch.equal(model[2].weight, before[2].weight)
