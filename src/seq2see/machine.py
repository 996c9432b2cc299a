"""Devices, memory and processes of the machine: worker processes, signals that request a stop, and ranks.

Importing this module does not import torch, so that worker processes and `--help` start fast.
"""

import _thread
import contextlib
import ctypes
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from seq2see.errors import RunError, SettingError

if TYPE_CHECKING:
    import torch

Block = TypeVar("Block")
Result = TypeVar("Result")


# Devices


def has_torch() -> bool:
    """Return whether PyTorch is installed, without importing it; the distribution seq2see-slim does not need it."""
    return find_spec("torch") is not None


def pick_device() -> "torch.device":
    """Return the GPU if there is one, configured for batches whose shapes vary; else the CPU."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans each new shape anew
    return torch.device("cuda")


def name(device: "torch.device") -> str:
    """Return the name of a GPU, or a text with the number of threads of the CPU."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'' if threads == 1 else 's'}"


def micro_tokens(device: "torch.device") -> int:
    """Return the default number of tokens in a forward pass: one that fits the caches of a CPU, or keeps a GPU busy."""
    return 65_536 if device.type == "cuda" else 4096


@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """If `wanted`, make torch use only deterministic kernels in this context; an operation without one fails."""
    if not wanted:
        yield
        return
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as problem:
        operation, found, _ = str(problem).partition(" does not have a deterministic implementation")
        if not found:
            raise
        raise SettingError(
            f"training.deterministic: {operation} is not deterministic on this machine, and PyTorch has no "
            "deterministic version of it. Resume without: --resume --set training.deterministic=false"
        ) from None
    finally:
        torch.use_deterministic_algorithms(before)


# Memory


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameter numbers of `mallopt` in glibc's malloc.h."""
CONTAINERS = [
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
]
"""For cgroups version 2 and 1 of Linux: a folder, and the names of the files in it with the memory limit and the memory
use of a container, in bytes.
"""


def keep_freed_memory() -> None:
    """Ask glibc not to return freed memory to the system, which would have to zero it each time; do nothing with
    another C library.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def free_memory() -> int:
    """Return the number of bytes that this process can allocate without swapping, within the limit of its container;
    all memory of the machine where the system does not say what is free.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder, limit, used in CONTAINERS:
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such file here, or "max": no limit
            numbers = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = int(numbers["active_file"]) + int(numbers["inactive_file"])  # files, given back when asked for
            found = min(found, max(0, int((folder / limit).read_text()) - int((folder / used).read_text()) + cached))
    return found


def check_memory(weights: int, device: "torch.device", extra: int = 0) -> None:
    """Raise an error if this many weights in float32, their gradients, Adam's two moments and `extra` bytes do not fit
    into the free memory of `device`; activations are not counted.
    """
    import torch

    needed = 16 * weights + extra
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
    if needed > free:
        raise SettingError(
            f"a model of {weights:,} weights needs at least {needed / 2**30:,.1f} GiB to train, "
            f"{free / 2**30:,.1f} GiB are free: choose a smaller preset (small, tiny) or a smaller model.d_model"
        )


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an error says that memory ran out, on a GPU or in torch's allocator for the CPU."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError) and any(each in str(problem) for each in words)
    )


def in_smaller_batches(work: Callable[[int], Result], tokens: int) -> Result:
    """Return `work(tokens)`; while memory runs out, halve `tokens` and call it again.

    If memory runs out with fewer than 16 tokens, the error is raised.
    """
    import torch

    while True:
        try:
            return work(tokens)
        except (MemoryError, RuntimeError) as problem:
            if not is_out_of_memory(problem) or tokens < 16:
                raise
            traceback.clear_frames(problem.__traceback__)  # they hold on to all that memory
        torch.cuda.empty_cache()
        tokens //= 2


# Worker processes. Not by `multiprocessing`: its children import the user's own script again, which a bare
# `seq2see.train(...)` in one does not survive. Ours start empty and get their work through a pipe. When that is closed,
# for whatever reason, they end, even during a task: the files that it writes may soon be those of another training.

FEW: Final = 10
"""Default number of blocks up to which `parallel_map` starts no processes, since starting them takes half a second."""
SOON: Final = 0.5
"""Seconds of work that are not worth processes: with 16 cores, starting them takes longer."""
MOST: Final = 16
"""Maximum number of worker processes of `parallel_map`; the process that reads the blocks cannot supply more."""


def cores() -> int:
    """Return the number of cores that this process may run on (its CPU affinity); if unknown, all of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    make: Callable[..., Callable[[Block], Result]],
    given: tuple[Any, ...],
    blocks: Iterable[Block],
    few: int = FEW,
    seconds: float = 0.0,
) -> Iterator[Result]:
    """Yield the results of `map(make(*given), blocks)` in order, computed by one process per core, up to `MOST`.

    Each process has at most one block at a time. With one core, or few blocks, all is computed in this process.

    Args:
        make: a function or class of a module that does not import torch; the processes import it by its name.
        given: arguments of `make`; they should be small, as each process gets a copy.
        few: number of blocks up to which no processes are started.
        seconds: duration of the work in this process, such as `SOON`, before these blocks are counted.
    """
    rest, here = iter(blocks), None
    if seconds:
        here = make(*given)
        yield from _for_a_while(here, rest, seconds)
    first = list(islice(rest, few + 1))
    count = min(cores(), MOST)
    if len(first) <= few or count < 2 or not sys.executable:
        yield from map(here or make(*given), chain(first, rest))
        return
    crew: list[WorkerProcess] = []
    try:
        crew += (WorkerProcess(make, given) for _ in range(count))
        number = 0
        for block in chain(first, rest):
            # The next block is at hand before a worker is asked for its result, so that it need not wait.
            worker = crew[number % count]
            done = [worker.receive()] if number >= count else []
            worker.send(block)
            number += 1
            yield from done
        for last in range(max(0, number - count), number):
            yield crew[last % count].receive()
    finally:
        for worker in crew:
            worker.end()


def _for_a_while(work: Callable[[Block], Result], blocks: Iterator[Block], seconds: float) -> Iterator[Result]:
    """Yield the results of `map(work, blocks)` until computing them has taken this long."""
    for block in blocks:
        began = time.perf_counter()
        result = work(block)
        seconds -= time.perf_counter() - began
        yield result
        if seconds <= 0:
            return


class WorkerProcess:
    """A process that applies `make(*given)` to one task at a time; it ignores Ctrl-C, which its parent handles."""

    def __init__(self, make: Callable[..., Any], given: tuple[Any, ...]) -> None:
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # errors come as results
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks, self._results = self._process.stdin, self._process.stdout
        self.send((make, given))

    def send(self, task: object) -> None:
        try:
            self._tasks.write(framed(task))
            self._tasks.flush()
        except OSError:
            raise self._death() from None

    def receive(self) -> Any:
        """Wait for the result of a task; raise its error if it failed, or a RunError if the process has died."""
        try:
            well, result = pickle.loads(read(self._results))
        except (OSError, EOFError):
            raise self._death() from None
        if not well:
            raise result
        return result

    def _death(self) -> RunError:
        self._process.kill()
        code = self._process.wait()
        how = f"by signal {-code}; is memory used up?" if code < 0 else f"with code {code}."
        return RunError(f"a worker process ended {how} Try again, or on one core: taskset -c 0 COMMAND")

    def ask_to_stop(self) -> None:
        """Send SIGTERM, which a task may handle; otherwise it ends the process."""
        self._process.terminate()

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._tasks, self._results):
            with contextlib.suppress(OSError):  # what was not sent yet has nowhere to go
                pipe.close()
        self._process.wait()


def serve() -> None:
    """Be a worker process: read tasks from standard input and write results to standard output, until input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(arrived,), daemon=True).start()
    # Not sys.stdout.buffer: under PYTHONUNBUFFERED that has no buffer, and leaves out the rest of a large write when
    # the process is stopped in the middle of it (Ctrl-Z) and continued.
    with contextlib.suppress(BrokenPipeError), open(1, "wb") as results:
        make, given = pickle.loads(arrived.get())
        work = None
        while True:
            task = pickle.loads(arrived.get())
            try:
                work = work or make(*given)
                answer = True, work(task)
            except Exception as problem:
                answer = False, problem
            results.write(framed(answer))
            results.flush()


def _receive(arrived: "queue.SimpleQueue[bytes]") -> None:
    """Put each message from standard input into a queue; when the input ends, end the process, even during a task."""
    with contextlib.suppress(EOFError), open(0, "rb") as tasks:
        while True:
            arrived.put(read(tasks))
    os._exit(0)


def framed(message: object) -> bytes:
    """Return a pickled message, preceded by its length in 8 bytes."""
    packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(packed).to_bytes(8, "little") + packed


def read(pipe: IO[bytes]) -> bytes:
    """Return the next message of `framed` from a pipe, still pickled; raise EOFError if the pipe ends first."""
    size = int.from_bytes(pipe.read(8), "little")
    packed = pipe.read(size)
    if not size or len(packed) < size:
        raise EOFError
    return packed


# Signals that ask for a stop: Ctrl-C, a scheduler's SIGTERM, a terminal that is closed

SIGNALS = [getattr(signal, each) for each in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, each)]


class Stopped(Exception):  # noqa: N818
    """Raised when work without side effects was abandoned because a stop was requested."""


class Stop:
    """Records whether a stop was requested, and by which signal; a second signal raises KeyboardInterrupt.

    Args:
        echo: seconds within which a repeated signal does not count as a second one: a scheduler may send it to all
            processes, and torchrun may forward it as well.
    """

    def __init__(self, echo: float = 0.0) -> None:
        self.signal = 0
        self._echo = echo
        self._heard_at = 0.0
        self._at_once = False
        self._listens = False

    def asked(self) -> bool:
        return self.signal != 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGINT, SIGTERM and SIGHUP in this context, if this is the main thread; signals that are already
        ignored (nohup) stay ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in heard}
        self._listens = True
        try:
            yield
        finally:
            self._listens = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self, number: int) -> None:
        """Behave as if this process had received a signal that another process got; called from another thread. Nothing
        happens outside of `listening`, or if a stop was already requested.
        """
        if self._listens and not self.signal:
            _thread.interrupt_main(signal.Signals(number))

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise `Stopped` in this context as soon as a stop is requested, or on entering it if one already was; for
        work without side effects, such as a validation.
        """
        self._at_once = True
        try:
            if self.asked():
                raise Stopped
            yield
        finally:
            self._at_once = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            if time.monotonic() - self._heard_at < self._echo:
                return
            raise KeyboardInterrupt
        self.signal, self._heard_at = number, time.monotonic()
        if self._at_once:
            raise Stopped


# Several processes that train one model


class Group:
    """The processes that train one model together, called ranks. This class is a group of one; `distributed.ranks` has
    larger ones.
    """

    rank = 0
    world = 1
    """Number of ranks."""
    patience = 0
    """Seconds to wait for the lock of a run folder if another process holds it."""
    echo = 0.0
    """Seconds within which a repeated signal counts as the same one, because several processes may forward it."""

    @property
    def is_first(self) -> bool:
        """Return whether this is the rank that writes files and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Return whether there are no other processes."""
        return self.world == 1

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        """Call `work` on the first rank, and return its result, which must be JSON, on all ranks; the others wait."""
        return work()

    def barrier(self) -> None:
        """Wait until all ranks have reached this call, however long that takes; raise errors of other ranks here."""
        self.run_on_first(lambda: None)

    def after_first(self, work: Callable[[], Result]) -> Result:
        """Call `work` on the first rank, then on the other ranks, which find the files that the first has written."""
        found = [work()] if self.is_first else []
        self.barrier()
        return found[0] if found else work()

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values that the ranks pass, which must be JSON, in the order of the ranks; on every rank."""
        return [value]

    def largest(self, number: float) -> float:
        """Return the largest of the numbers that the ranks pass, on every rank."""
        return number

    def all_or_none(self, stop: Stop | None = None) -> AbstractContextManager[None]:
        """Context for work without collectives and without side effects: if one rank abandons it, all do.

        If a stop was requested on one rank, or memory ran out on one, the error is raised on all.

        Args:
            stop: The `Stop` of work that may take one rank much longer than another: a rank that is asked to stop
                leaves it at once, and the others soon after.
        """
        return contextlib.nullcontext() if stop is None else stop.at_once()

    def all_must_finish(self) -> AbstractContextManager[None]:
        """Context for work that all ranks must finish: if one rank fails, the training ends on all of them."""
        return contextlib.nullcontext()

    def sum_gradients(self, weights: Iterable[Any]) -> None:
        """Replace the gradients of `weights` on every rank by their sum over all ranks, bit-identical on all of
        them.
        """

    def all_reduce(self, numbers: Any) -> None:
        """Replace a tensor by the sum over all ranks of the tensors that they pass."""

    def broadcast(self, tensors: Iterable[Any]) -> None:
        """Replace tensors by those of the first rank."""

    def throw_dice(self, seed: int, step: int) -> None:
        """Seed torch's random numbers from seed, step and rank: no state is stored, so the number of ranks may change
        on resume. A group of one does nothing.
        """


ALONE: Final = Group()
