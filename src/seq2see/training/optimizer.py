"""Adam as in the paper (section 5.3), in PyTorch's fused form; with weight decay, if asked for (AdamW)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from seq2see.config import Training


def adam(weights: Iterable[nn.Parameter], settings: Training) -> torch.optim.Optimizer:
    """The rate is set by the loop before each update. Matrices decay; norms and biases, which are few, do not.

    Both moments are made here and not at the first update, where they would come to lie among the tensors of a step and
    leave gaps between them: on a CPU that costs 80 MB for the paper's base model (docs/log.md).
    """
    weights = [weight for weight in weights if weight.requires_grad]
    betas = (settings.adam_beta1, settings.adam_beta2)
    groups: list[dict[str, Any]] = [{"params": weights}]
    if settings.weight_decay:  # else in one group, in whose order earlier runs keep their moments
        matrices = [weight for weight in weights if weight.dim() > 1]
        groups = [{"params": matrices, "weight_decay": settings.weight_decay}]
        groups += [{"params": [weight for weight in weights if weight.dim() <= 1]}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=settings.adam_epsilon, weight_decay=0.0, fused=True)
    for weight in weights:
        moments = {name: torch.zeros_like(weight, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}
    return optimizer
