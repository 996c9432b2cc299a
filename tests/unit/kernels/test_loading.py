"""Kernels are noted and compiled ahead, all at the same time; a stand-in takes the place of Triton's compiler."""

import contextlib
import importlib
import sys
import threading
from types import ModuleType

import pytest
import torch

from seq2see.kernels import loading


class Kernel:
    """Notes what happens to it."""

    def __init__(self, code=None) -> None:
        self.name = getattr(code, "__name__", "")
        self.compiled: list[tuple[object, ...]] = []
        self.run: list[tuple[object, ...]] = []

    def __getitem__(self, grid):
        return lambda *given, **fixed: self.run.append((grid, given, fixed))

    def warmup(self, *given, grid, **fixed):
        self.compiled.append((grid, given, fixed, threading.current_thread().name))


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    triton, triton.language = ModuleType("triton"), ModuleType("triton.language")
    triton.AsyncCompileMode = lambda pool, ignore_errors: contextlib.nullcontext()
    triton.jit = lambda code=None, **_: Kernel if code is None else Kernel(code)
    triton.next_power_of_2 = lambda number: 1 << (number - 1).bit_length()
    triton.cdiv = lambda number, by: -(-number // by)
    triton.language.constexpr = int
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", triton.language)
    for name in ("packed_attention", "rows"):
        monkeypatch.delitem(sys.modules, f"seq2see.kernels.{name}", raising=False)
    monkeypatch.setattr(loading, "HAS_TRITON", True)
    monkeypatch.setattr(loading, "_in_background", set())  # it has addresses of kernels, which later ones may get
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    yield triton
    for name in ("packed_attention", "rows"):
        sys.modules.pop(f"seq2see.kernels.{name}", None)


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


def test_a_thread_compiles_once_what_nobody_waits_for() -> None:
    kernel = Kernel()
    for _ in range(2):
        with loading.compiled_ahead(wait=False):
            loading.launch(kernel, (1,))
    for thread in threading.enumerate():
        if thread.name == "kernels":
            thread.join()
    assert [each[3] for each in kernel.compiled] == ["kernels"]


def test_a_kernel_that_is_called_often_is_compiled_once() -> None:
    kernel, rows = Kernel(), torch.zeros(8)
    with loading.compiled_ahead():
        for grid in (1, 2, 3):
            loading.launch(kernel, (grid,), rows, 5, BLOCK=32)
        loading.launch(kernel, (1,), rows.clone(), 5, BLOCK=32)
        assert not kernel.compiled
        loading.launch(kernel, (1,), rows[1:], 5, BLOCK=32)  # not aligned to 16 bytes
        loading.launch(kernel, (1,), rows.long(), 5, BLOCK=32)
        loading.launch(kernel, (1,), rows, 6, BLOCK=32)
        loading.launch(kernel, (1,), rows, 5, BLOCK=64)
    assert len(kernel.compiled) == 5


def test_another_thread_runs_its_kernels_meanwhile() -> None:
    kernel = Kernel()
    with loading.compiled_ahead():
        other = threading.Thread(target=loading.launch, args=(kernel, (1,)))
        other.start()
        other.join()
        assert kernel.run == [((1,), (), {})]
    assert not kernel.compiled


def test_backward_passes_are_noted_too() -> None:
    """Even inside a trial, where inference mode is left and with it what `compiled_ahead` had set."""
    with torch.inference_mode(), loading.compiled_ahead():
        assert not torch._C._is_multithreading_enabled()
        with torch.inference_mode(False):
            assert torch._C._is_multithreading_enabled()
            with loading.compiled_ahead():
                assert not torch._C._is_multithreading_enabled()
            assert torch._C._is_multithreading_enabled()
    assert torch._C._is_multithreading_enabled()


@pytest.mark.parametrize("wait", [True, False])
def test_who_waits_for_kernels_gets_them_loaded(compiler, wait: bool) -> None:
    """In the thread that compiles them, before Triton has them."""
    events: list[str] = []

    class Compiled:
        @property
        def run(self) -> None:
            events.append("loaded")
            raise RuntimeError("too little shared memory")

    class Compiling:
        def __init__(self, pool, ignore_errors):
            self.pool, self.futures = pool, []

        def __enter__(self):
            compilers.append(self)

        def __exit__(self, *_):
            for future in self.futures:
                assert isinstance(future.result(), Compiled)
                events.append("usable")

    class Compilable(Kernel):
        def warmup(self, *given, grid, **fixed):
            compilers[-1].futures.append(compilers[-1].pool.submit(Compiled))

    compilers: list[Compiling] = []
    compiler.AsyncCompileMode = Compiling
    with loading.compiled_ahead(wait):
        loading.launch(Compilable(), (1,))
    for thread in threading.enumerate():
        if thread.name == "kernels":
            thread.join()
    assert events == ["loaded", "usable"][not wait :]


@pytest.mark.parametrize("learning", [False, True])
def test_a_trial_of_attention_without_gradients_needs_no_backward_kernels(learning: bool) -> None:
    attention = importlib.import_module("seq2see.kernels.packed_attention")
    kernels = [kernel for kernel in vars(attention).values() if isinstance(kernel, Kernel)]
    with torch.inference_mode(), loading.compiled_ahead():
        assert attention.can_attend(16, torch.float32, torch.device("cpu"), learning)
    assert not any(kernel.run for kernel in kernels)
    expected = ["_forward", *["_backward_queries", "_backward_keys"] * learning]
    assert [kernel.name for kernel in kernels if kernel.compiled] == expected


def test_noting_kernels_draws_no_random_numbers() -> None:
    rows = importlib.import_module("seq2see.kernels.rows")
    x, norm = torch.ones(3, 8, requires_grad=True), torch.nn.LayerNorm(8)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with loading.compiled_ahead():
        assert rows.works(torch.device("cpu"))
        rows.norm_of_sum(x, x, norm, 0.3, torch.float32).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)
    kernels = [kernel for kernel in vars(rows).values() if isinstance(kernel, Kernel)]
    found = {kernel.name: len(kernel.compiled) for kernel in kernels if kernel.compiled}
    assert found == {"_sum_and_norm": 2, "_sum_and_norm_backward": 1}  # the trial is of the forward pass alone


def test_a_trial_learns_nothing_while_kernels_are_only_noted() -> None:
    tries: list[str] = []

    @loading.tried_once
    def works(name: str) -> bool:
        tries.append(name)
        return loading.is_collecting()

    with loading.compiled_ahead():
        assert works("a")
        assert works("a")
    with loading.compiled_ahead():
        assert works("a")  # noted again: another round
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


def test_kernels_that_threads_load_at_once_get_their_own_launchers(compiler, monkeypatch) -> None:
    """Python may return the same module for extensions of one name, so that a thread reads what another has loaded."""
    last = {}
    meeting = threading.Barrier(2, timeout=20)

    class Launcher:
        def __init__(self, src, metadata) -> None:
            last["launch"] = src
            if threading.current_thread() is not threading.main_thread():
                meeting.wait()  # both threads have loaded theirs, and now read what was loaded last
            self.launch = last["launch"]

    class Compiled:
        metadata = None

        def __init__(self, src) -> None:
            self.src, self._run = src, None

        @property
        def run(self):
            if self._run is None:
                self._run = Launcher(self.src, self.metadata)
            return self._run

    class Mode:
        """Stands for Triton's `AsyncCompileMode`: waits for all kernels at its end."""

        def __init__(self, pool, ignore_errors) -> None:
            self.pool, self.futures = pool, []

        def __enter__(self):
            modes.append(self)
            return self

        def __exit__(self, *_) -> None:
            found.extend(future.result() for future in self.futures)

    class Compiling(Kernel):
        def warmup(self, *given, grid, **fixed) -> None:
            modes[-1].futures.append(modes[-1].pool.submit(Compiled, self.name))

    modes, found = [], []
    monkeypatch.setattr(loading.os, "cpu_count", lambda: 2)
    compiler.AsyncCompileMode = Mode
    kernels = [Compiling(), Compiling()]
    kernels[0].name, kernels[1].name = "first", "second"
    with loading.compiled_ahead():
        for kernel in kernels:
            loading.launch(kernel, (1,))
    assert [kernel.run.launch for kernel in found] == ["first", "second"]
