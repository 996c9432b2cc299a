"""Adam as in the paper (section 5.3), in PyTorch's fused form."""

from collections.abc import Iterable

import torch
from torch import nn

from seq2see.config import Training


def adam(weights: Iterable[nn.Parameter], settings: Training) -> torch.optim.Adam:
    """The rate is set by the loop before each update."""
    betas = (settings.adam_beta1, settings.adam_beta2)
    return torch.optim.Adam(weights, lr=0.0, betas=betas, eps=settings.adam_epsilon, fused=True)
