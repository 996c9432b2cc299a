"""Import our Triton kernels on first use, compile them, and check whether this machine can run them."""

import contextlib
import importlib.util
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import wraps
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed, as it is by PyTorch's CUDA builds for Linux, but not by its CPU builds."""

HEAD_WIDTHS = range(8, 129)
"""Widths of attention heads for which there are kernels."""


def packed_attention() -> ModuleType:
    """Return the module of kernels for attention over packed sentences."""
    return importlib.import_module("seq2see.kernels.packed_attention")


def rows() -> ModuleType:
    """Return the module of kernels for whole rows: residual sum with layer norm, rotary positions, gradient of the
    loss.
    """
    return importlib.import_module("seq2see.kernels.rows")


def linear() -> ModuleType:
    """Return the module of linear layers with kernels for the gradients of their biases."""
    return importlib.import_module("seq2see.kernels.linear")


def steps() -> ModuleType:
    """Return the module of kernels for one step of a search."""
    return importlib.import_module("seq2see.kernels.steps")


def are_available(x: Tensor) -> bool:
    """Return whether our kernels run on the CUDA device of `x`, found by trying one."""
    return HAS_TRITON and bool(rows().works(x.device))


@dataclass
class _Collection:
    """Kernel launches that `launch` has collected inside `compiled_ahead` instead of making them."""

    calls: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    """One launch (kernel, grid, arguments, constants) for each key of `_compiled_for`."""
    tried: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    """Results of functions with `tried_once` inside `compiled_ahead`; no kernel was run, so they hold only there."""


class _Local(threading.local):
    collection: _Collection | None = None


_local = _Local()
"""Its `collection` is separate in each thread, so that other threads launch kernels; None outside `compiled_ahead`."""


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **fixed: Any) -> None:
    """Launch a kernel; inside `compiled_ahead`, only collect it to be compiled."""
    if _local.collection is None:
        kernel[grid](*given, **fixed)
    else:
        _local.collection.calls.setdefault(_compiled_for(kernel, given, fixed), (kernel, grid, given, fixed))


def _compiled_for(kernel: Any, given: tuple[Any, ...], fixed: dict[str, Any]) -> tuple[Any, ...]:
    """Return a key that is equal for two launches only if Triton compiles one kernel for both.

    Of a tensor, Triton uses its type and whether its address is a multiple of 16. Of numbers it uses less than their
    value, so that some kernels have several keys.
    """
    kinds = [(x.dtype, x.data_ptr() % 16 == 0) if isinstance(x, Tensor) else (type(x), x) for x in given]
    return (id(kernel), *kinds, *sorted(fixed.items()))


def tried_once(trial: Callable[..., bool]) -> Callable[..., bool]:
    """Cache the results, by arguments, of a function that tries whether kernels work.

    Inside `compiled_ahead`, where kernels are not run, new results are forgotten at its end.
    """
    known: dict[tuple[Any, ...], bool] = {}

    @wraps(trial)
    def tried(*given: Any) -> bool:
        if given in known:
            return known[given]
        if _local.collection is None:
            known[given] = trial(*given)
            return known[given]
        key = (trial, *given)
        if key not in _local.collection.tried:
            _local.collection.tried[key] = trial(*given)
        return _local.collection.tried[key]

    return tried


def is_collecting() -> bool:
    """Return whether this thread is inside `compiled_ahead`: its kernel launches are collected, not made."""
    return _local.collection is not None


_in_background: set[tuple[Any, ...]] = set()
"""Devices and keys (`_compiled_for`) of all kernels ever given to background threads, so that each is given once."""


@contextlib.contextmanager
def compiled_ahead(wait: bool = True) -> Iterator[None]:
    """Compile the kernels that this thread launches inside, in parallel, instead of running them.

    The outputs of these kernels are undefined. Without this, each kernel is compiled when it is first launched, which
    takes most of the first minute of the first training on a machine; a Triton that cannot compile in parallel still
    does that. Inside another `compiled_ahead`, the kernels are left to the outer one.

    Args:
        wait: Return when all are compiled and loaded. Otherwise a thread compiles them in the background; a kernel that
            is launched before it is ready is compiled by its caller.
    """
    # Backward passes of a GPU have a thread of their own, which would run kernels instead of collecting them. This is
    # set again inside a trial, whose `torch.inference_mode(False)` has reset it.
    in_this_thread = torch.autograd.set_multithreading_enabled(False)
    if _local.collection is not None:  # a part of another trial
        with in_this_thread:
            yield
        return
    collection = _local.collection = _Collection()
    try:
        with in_this_thread:
            yield
    finally:
        _local.collection = None
    if not HAS_TRITON or not collection.calls:
        return
    device = torch.cuda.current_device()  # each thread has its own
    if wait:
        _compile([*collection.calls.values()], device, loads=True)
        return
    calls = [call for key, call in collection.calls.items() if (device, key) not in _in_background]
    _in_background.update((device, key) for key in collection.calls)
    if calls:
        # They are not loaded, so that the driver is left alone while the caller may be recording a graph.
        threading.Thread(target=_compile, args=(calls, device, False), name="kernels").start()


class _Compilers(ThreadPoolExecutor):
    """Threads that compile kernels and, with `loads`, load each onto the GPU before its first launch.

    Otherwise Triton loads a kernel when it is first launched, and some versions run a C compiler for that, for one
    kernel after the other.
    """

    def __init__(self, device: int, loads: bool) -> None:
        super().__init__(os.cpu_count(), initializer=torch.cuda.set_device, initargs=(device,))
        self._loads = loads
        self._loaded: list[Any] = []

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        def compiled() -> Any:
            kernel = work(*given, **named)
            if self._loads:
                with contextlib.suppress(Exception):  # the first launch will tell
                    _ = kernel.run  # a property that loads it
                    self._loaded.append(kernel)
            return kernel

        return super().submit(compiled)

    def make_launchers_again(self) -> None:
        """Make the launchers of all loaded kernels once more, one after the other, by one thread.

        Some versions of Triton compile a C extension for each launcher, all with the same name. If Python loads one of
        them a second time, because two kernels have the same types of arguments, it puts the functions of that
        extension into the module of this name that was loaded last. A thread that has just loaded another extension may
        then read the wrong function from its module, and a launch fails with "function takes exactly 30 arguments (31
        given)".
        """
        for kernel in self._loaded:
            with contextlib.suppress(Exception):  # of a Triton that keeps launchers elsewhere
                kernel._run = type(kernel._run)(kernel.src, kernel.metadata)


def _compile(calls: list[tuple[Any, ...]], device: int, loads: bool) -> None:
    try:
        from triton import AsyncCompileMode

        with torch.cuda.device(device), _Compilers(device, loads) as pool:
            with AsyncCompileMode(pool, ignore_errors=True):
                for kernel, grid, given, fixed in calls:
                    kernel.warmup(*given, grid=grid, **fixed)
            pool.make_launchers_again()
    except ImportError:  # an older Triton: each is compiled when it is first called
        pass
    except Exception as problem:  # compilers fail in many ways; the first call of the kernel will tell
        warn_unless_ending(problem)


def warn_unless_ending(problem: Exception) -> None:
    """Warn that kernels could not be compiled ahead; not if the program is ending, when threads can start no others."""
    if threading.main_thread().is_alive():
        warnings.warn(
            f"GPU kernels could not be compiled ahead of time, so each is compiled at its first use: {problem}",
            stacklevel=4,
        )


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which a matrix multiplication with `x` is computed: that of autocast if it is on."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
