"""Adam as in the paper (section 5.3), in PyTorch's fused form."""

from collections.abc import Iterable

import torch
from torch import nn

from seq2see.config import Training


def adam(weights: Iterable[nn.Parameter], settings: Training) -> torch.optim.Adam:
    """The rate is set by the loop before each update.

    Both moments are made here and not at the first update, where they would come to lie among the tensors of a step and
    leave gaps between them: on a CPU that costs 80 MB for the paper's base model (docs/log.md).
    """
    weights = [weight for weight in weights if weight.requires_grad]
    betas = (settings.adam_beta1, settings.adam_beta2)
    optimizer = torch.optim.Adam(weights, lr=0.0, betas=betas, eps=settings.adam_epsilon, fused=True)
    for weight in weights:
        moments = {name: torch.zeros_like(weight, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}
    return optimizer
