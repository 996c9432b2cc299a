"""Import our Triton kernels on first use, and check whether this machine can run them."""

import importlib.util
from types import ModuleType

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""PyTorch's CUDA builds for Linux install Triton; its CPU builds do not."""


def packed_attention() -> ModuleType:
    """Return the kernels for attention over packed sentences."""
    return importlib.import_module("seq2see.kernels.packed_attention")


def rows() -> ModuleType:
    """Return the kernels that process whole rows: residual sum and layer norm, and the gradient of the loss."""
    return importlib.import_module("seq2see.kernels.rows")


def steps() -> ModuleType:
    """Return the kernels for one step of a search."""
    return importlib.import_module("seq2see.kernels.steps")


def are_available(x: Tensor) -> bool:
    """Return whether our kernels run on the CUDA device of `x`."""
    return HAS_TRITON and bool(rows().works(x.device))


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which a matrix multiplication with `x` is computed: autocast's, where that is on."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
