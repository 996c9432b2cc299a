"""Kernels are noted and compiled ahead, all at the same time; a stand-in takes the place of Triton's compiler."""

import contextlib
import sys
import threading
from types import ModuleType

import pytest
import torch

from seq2see.kernels import loading


class Kernel:
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.compiled: list[tuple[object, ...]] = []
        self.run: list[tuple[object, ...]] = []

    def __getitem__(self, grid):
        return lambda *given, **fixed: self.run.append((grid, given, fixed))

    def warmup(self, *given, grid, **fixed):
        self.compiled.append((grid, given, fixed, threading.current_thread().name))


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    triton = ModuleType("triton")
    triton.AsyncCompileMode = lambda pool, ignore_errors: contextlib.nullcontext()
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setattr(loading, "HAS_TRITON", True)


def test_inside_kernels_are_compiled_and_outside_they_run() -> None:
    kernel = Kernel()
    with loading.compiled_ahead():
        loading.launch(kernel, (1,), "a", BLOCK=32)
        with loading.compiled_ahead():  # part of the outer one
            loading.launch(kernel, (2,), "b", BLOCK=64)
        assert loading.is_collecting()
        assert not kernel.compiled
    assert not loading.is_collecting()
    assert [each[:3] for each in kernel.compiled] == [((1,), ("a",), {"BLOCK": 32}), ((2,), ("b",), {"BLOCK": 64})]
    assert not kernel.run
    loading.launch(kernel, (3,), "c")
    assert kernel.run == [((3,), ("c",), {})]


def test_a_thread_compiles_what_nobody_waits_for(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    kernel = Kernel()
    with loading.compiled_ahead(wait=False):
        loading.launch(kernel, (1,))
    for thread in threading.enumerate():
        if thread.name == "kernels":
            thread.join()
    assert [each[3] for each in kernel.compiled] == ["kernels"]


def test_a_trial_learns_nothing_while_kernels_are_only_noted() -> None:
    tries = []

    @loading.tried_once
    def works(name: str) -> bool:
        tries.append(name)
        return loading.is_collecting()

    with loading.compiled_ahead():
        assert works("a")
        assert works("a")
    assert not works("a")
    with loading.compiled_ahead():
        assert not works("a")  # known by now
    assert tries == ["a", "a", "a"]


def test_a_compiler_that_fails_is_a_warning(monkeypatch) -> None:
    kernel = Kernel()
    monkeypatch.setattr(kernel, "warmup", lambda *_, **__: 1 / 0)
    with pytest.warns(UserWarning, match="could not be compiled ahead"), loading.compiled_ahead():
        loading.launch(kernel, (1,))
    assert not loading.is_collecting()
