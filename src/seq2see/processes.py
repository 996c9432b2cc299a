"""Work spread over all cores: blocks in, results out, in the order of the blocks.

Not by `multiprocessing`: its children import the user's own script again, which a bare `seq2see.train(...)` in one does
not survive. Ours start empty and hear of their work through a pipe; when that is closed, for whatever reason, they end.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import IO, Any, Final, TypeVar

from seq2see.errors import RunError

Block = TypeVar("Block")
Result = TypeVar("Result")

FEW: Final = 10
"""Blocks that are not worth starting processes for, which takes about half a second."""
MOST: Final = 16
"""Processes: whoever reads the blocks cannot feed more."""


def cores() -> int:
    """Return how many cores this process may use: in a container often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    make: Callable[..., Callable[[Block], Result]], given: tuple[Any, ...], blocks: Iterable[Block], few: int = FEW
) -> Iterator[Result]:
    """`map(make(*given), blocks)`, by all cores; the same results, and never more than a block for each core in flight.

    Args:
        make: by whose name the other processes find it, so of a module, and one that does not import torch.
        given: what it takes; small, as everybody gets a copy.
        few: blocks that are not worth starting processes for.
    """
    rest = iter(blocks)
    first = list(islice(rest, few + 1))
    count = min(cores(), MOST)
    if len(first) <= few or count < 2 or not sys.executable:
        yield from map(make(*given), chain(first, rest))
        return
    crew: list[_Worker] = []
    try:
        crew += (_Worker(make, given) for _ in range(count))
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


class _Worker:
    """A process with one block at a time; it need not hear of Ctrl-C, which is for us to act on."""

    def __init__(self, make: Callable[..., Any], given: tuple[Any, ...]) -> None:
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what goes wrong comes as a result
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks, self._results = self._process.stdin, self._process.stdout
        self.send((make, given))

    def send(self, task: object) -> None:
        try:
            _write(self._tasks, task)
        except OSError:
            raise self._death() from None

    def receive(self) -> Any:
        try:
            well, result = read(self._results)
        except (OSError, EOFError):
            raise self._death() from None
        if not well:
            raise result
        return result

    def _death(self) -> RunError:
        self._process.kill()
        code = self._process.wait()
        how = f"by signal {-code}; is memory used up?" if code < 0 else f"with code {code}."
        return RunError(
            f"one of the processes that share the work ended {how} Try again, or on fewer cores: taskset -c 0"
        )

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._tasks, self._results):
            with contextlib.suppress(OSError):  # what was not sent yet has nowhere to go
                pipe.close()
        self._process.wait()


def serve() -> None:
    """What such a process does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not sys.stdout.buffer: under PYTHONUNBUFFERED that has no buffer, and leaves out the rest of a large write when
    # the process is stopped in the middle of it (Ctrl-Z) and goes on.
    with contextlib.suppress(EOFError, BrokenPipeError), open(0, "rb") as tasks, open(1, "wb") as results:
        make, given = read(tasks)
        work = None
        while True:
            task = read(tasks)
            try:
                work = work or make(*given)
                answer = True, work(task)
            except Exception as problem:
                answer = False, problem
            _write(results, answer)


def _write(pipe: IO[bytes], message: object) -> None:
    pipe.write(framed(message))
    pipe.flush()


def framed(message: object) -> bytes:
    """A message after its length."""
    packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(packed).to_bytes(8, "little") + packed


def read(pipe: IO[bytes]) -> Any:
    """The next message of a pipe."""
    size = int.from_bytes(pipe.read(8), "little")
    packed = pipe.read(size)
    if not size or len(packed) < size:
        raise EOFError
    return pickle.loads(packed)


class Group:
    """The processes that train one model together. This class is the group of one; `distributed.ranks` has others."""

    rank = 0
    world = 1
    """The number of processes, which are called ranks."""
    patience = 0
    """Seconds to wait for a run folder that another process holds."""

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there are no other processes."""
        return self.world == 1

    def first_does(self, work: Callable[[], Any]) -> Any:
        """Return on every rank what `work` returns on the first one (JSON); the others wait as long as it takes."""
        return work()

    def after_first(self, work: Callable[[], Result]) -> Result:
        """Do `work` on every rank, on the first one first: the others find what it has left on the disk."""
        found = [work()] if self.is_first else []
        self.first_does(lambda: None)
        return found[0] if found else work()

    def from_all(self, value: Any) -> list[Any]:
        """Return the values (JSON) of all ranks on every rank."""
        return [value]

    def largest(self, number: float) -> float:
        """Return the largest of the numbers that the ranks bring."""
        return number

    def all_or_none(self, stop: Any = None) -> AbstractContextManager[None]:
        """Surround work without collectives that changes nothing yet: if one rank gives it up, all do.

        A stop that was asked for on one rank, or memory that ran out on one, is raised on all.

        Args:
            stop: The `Stop` of work that may take one rank much longer than another: a rank that is asked to stop
                leaves it at once, and the others soon after.
        """
        return contextlib.nullcontext() if stop is None else stop.at_once()

    def no_way_back(self) -> AbstractContextManager[None]:
        """Surround work that all ranks do or the training ends: nobody may leave the others waiting in it."""
        return contextlib.nullcontext()

    def sum_gradients(self, weights: Iterable[Any]) -> None:
        """Give every rank the sum of the gradients of all ranks, equal to the bit."""

    def sum_up(self, numbers: Any) -> None:
        """Replace a tensor by the sum of the tensors of all ranks."""

    def take_from_first(self, tensors: Iterable[Any]) -> None:
        """Replace tensors by those of the first rank."""

    def throw_dice(self, seed: int, step: int) -> None:
        """Give each rank its own random numbers for a step: they are not kept, so a resume may have other ranks."""


ALONE: Final = Group()
