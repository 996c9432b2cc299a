"""Import our Triton kernels on first use, compile them, and check whether this machine can run them."""

import contextlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

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


_collected: list[tuple[Any, ...]] | None = None
"""Calls of kernels inside `compiled_ahead`; None elsewhere."""


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **fixed: Any) -> None:
    """Start a kernel; inside `compiled_ahead`, only note that it will be needed."""
    if _collected is None:
        kernel[grid](*given, **fixed)
    else:
        _collected.append((kernel, grid, given, fixed))


@contextlib.contextmanager
def compiled_ahead() -> Iterator[None]:
    """Compile the kernels that are called inside, all at the same time, instead of running them.

    What they should have computed is undefined. Compiling takes most of the first minute of a training on a machine
    that has never run it, if each kernel is only compiled when it is first called.
    """
    global _collected
    if _collected is not None:  # a part of another trial
        yield
        return
    calls = _collected = []
    try:
        yield
    finally:
        _collected = None
    try:
        from triton import AsyncCompileMode

        with ThreadPoolExecutor(os.cpu_count()) as pool, AsyncCompileMode(pool, ignore_errors=True):
            for kernel, grid, given, fixed in calls:
                kernel.warmup(*given, grid=grid, **fixed)
    except ImportError:  # an older Triton: each is compiled when it is first called
        pass
    except Exception as problem:  # compilers fail in many ways; the first call of the kernel will tell
        warnings.warn(f"kernels could not be compiled ahead: {problem}", stacklevel=3)


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which a matrix multiplication with `x` is computed: autocast's, where that is on."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
