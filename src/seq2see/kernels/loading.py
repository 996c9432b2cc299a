"""Import our Triton kernels on first use, compile them, and check whether this machine can run them."""

import contextlib
import importlib.util
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed, as it is by PyTorch's CUDA builds for Linux, but not by its CPU builds."""


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
"""Kernel launches that `launch` has collected, instead of making them, inside `compiled_ahead`; None outside of it."""


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **fixed: Any) -> None:
    """Launch a kernel; inside `compiled_ahead`, only record that it will be needed."""
    if _collected is None:
        kernel[grid](*given, **fixed)
    else:
        _collected.append((kernel, grid, given, fixed))


def tried_once(trial: Callable[..., bool]) -> Callable[..., bool]:
    """Cache the result of a function that tries out kernels, except inside `compiled_ahead`, where nothing is run."""
    known: dict[tuple[Any, ...], bool] = {}

    @wraps(trial)
    def tried(*given: Any) -> bool:
        if given in known:
            return known[given]
        works = trial(*given)
        if not is_collecting():
            known[given] = works
        return works

    return tried


def is_collecting() -> bool:
    """Return whether kernel calls are collected instead of run."""
    return _collected is not None


@contextlib.contextmanager
def compiled_ahead(wait: bool = True) -> Iterator[None]:
    """Compile the kernels that are called inside, in parallel, instead of running them.

    Their outputs are undefined. Compiling takes most of the first minute of the first training on a machine if each
    kernel is only compiled when it is first called.

    Args:
        wait: Return when all are compiled. Otherwise a thread compiles them in the background; a kernel that is called
            before it is ready is compiled by its caller.
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
    if not HAS_TRITON or not calls:
        return
    if wait:
        _compile(calls)
    else:
        device = torch.cuda.current_device()  # each thread has its own
        threading.Thread(target=_compile, args=(calls, device), name="kernels").start()


def _compile(calls: list[tuple[Any, ...]], device: int | None = None) -> None:
    try:
        from triton import AsyncCompileMode

        here = contextlib.nullcontext() if device is None else torch.cuda.device(device)
        with here, ThreadPoolExecutor(os.cpu_count()) as pool, AsyncCompileMode(pool, ignore_errors=True):
            for kernel, grid, given, fixed in calls:
                kernel.warmup(*given, grid=grid, **fixed)
    except ImportError:  # an older Triton: each is compiled when it is first called
        pass
    except Exception as problem:  # compilers fail in many ways; the first call of the kernel will tell
        warnings.warn(f"kernels could not be compiled ahead: {problem}", stacklevel=3)


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which a matrix multiplication with `x` is computed: that of autocast if it is on."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
