"""Choose the number of threads for computation on a CPU that is shared with other programs.

PyTorch splits every operation over its threads, and each waits for the slowest. If another program keeps a core busy,
one thread often has none, and the others spin, which also keeps the system from giving it their cores: two threads then
train up to nine times slower than one (docs/log.md). So threads sleep after a short wait (`GOMP_SPINCOUNT` in
`seq2see/__init__.py`), and while there are more threads than free cores, `Threads` reduces their number. The results do
not depend on the number of threads.
"""

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

PERIOD = 1.0
"""Seconds of computation after which the number of PyTorch's threads is reconsidered."""
CONTENDED = 0.15
"""Mean number of threads of this process that were runnable but had no core, above which fewer threads are tried."""
FREE = 0.7
"""Mean number of idle cores, of those that this process may use, above which more threads are tried."""
FIRST_PAUSE, LONGEST_PAUSE = 16.0, 256.0
"""Minimum and maximum seconds between two trials of more threads while no core is idle; the pause is doubled after each
trial that was not fast enough. The maximum also limits the pauses between other trials.
"""


@dataclass(frozen=True)
class Counters:
    """Counters of the operating system, in seconds; only differences between two readings are meaningful."""

    clock: float = 0.0
    waited: float = 0.0
    """Seconds that threads of this process were runnable but had no core, summed over the threads."""
    computed: float = 0.0
    """Seconds that threads of this process ran on a core, summed over the threads."""
    idle: float = 0.0
    """Seconds that the cores which this process may use were idle, summed over the cores."""

    def plus(self, after: "Counters", before: "Counters") -> "Counters":
        """Return the counters plus the differences of two readings; a negative difference, as when threads have ended
        in between, counts as 0.
        """
        names = vars(self)
        return Counters(**{each: names[each] + max(0.0, vars(after)[each] - vars(before)[each]) for each in names})


def read_counters() -> Counters:
    """Return the current counters of Linux.

    Raises:
        OSError, AttributeError: This system does not have them.
    """
    cores = os.sched_getaffinity(0)
    idle = waited = 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            idle += int(ticks[3]) + int(ticks[4])  # doing nothing, and waiting for a disk
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            waited += int((task / "schedstat").read_text(encoding="ascii").split()[1])
    return Counters(time.monotonic(), waited / 1e9, time.process_time(), idle / os.sysconf("SC_CLK_TCK"))


class _Pause:
    """Seconds until the next trial: doubled after each failure up to `LONGEST_PAUSE`, and reset by a success."""

    def __init__(self, first: float) -> None:
        self._first, self._failures, self._until = first, 0, 0.0

    def is_over(self, now: float) -> bool:
        return now >= self._until

    def begin(self, now: float, was_in_vain: bool) -> None:
        self._failures = self._failures + 1 if was_in_vain else 0
        self._until = now + min(LONGEST_PAUSE, self._first * 2**self._failures)


@dataclass(frozen=True)
class _Trial:
    """A trial of another number of threads: the number and speed before it, the ratio of speeds that it needs to be
    kept, the pause after it, and its reason as text.
    """

    before: int
    speed: float
    needed: float
    pause: _Pause
    reason: str


class Threads:
    """The number of threads of this process: reduced while other programs compute, and restored afterwards.

    Too many threads show in the time that they wait for a core, too few in idle cores. Either leads to a trial of
    another number for one period. Fewer threads are kept if the trial has at least 0.9 times the speed before it, more
    threads if it has 1.03 times that speed. If no core is idle, the largest number is still tried from time to time, as
    other programs may have a low priority; since that slows them down, it must give 1.15 times the speed.

    Args:
        most: Number of threads if no other program runs; with 1 there is nothing to do.
        cores: Number of cores that this process may use.
        read: Returns the counters of the system.
        use: Sets the number of threads.
        clock: Returns the same seconds as `Counters.clock`, faster than `read`.
    """

    def __init__(
        self,
        most: int,
        cores: int,
        read: Callable[[], Counters] = read_counters,
        use: Callable[[int], None] = lambda count: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = self._most = most
        self.reason = ""
        """Reason for the last change of the number that was kept, as text."""
        self._cores, self._read, self._use, self._clock = cores, read, use, clock
        self._trial: _Trial | None = None
        self._contended, self._hopeful, self._idle = _Pause(PERIOD), _Pause(FIRST_PAUSE), _Pause(PERIOD)
        self._kind = ""
        self._sum, self._work = Counters(), 0.0

    def begin(self, kind: str) -> None:
        """Begin to measure; earlier measurements are kept if they are of the same `kind` of work ("training",
        "search"), otherwise a trial is ended and its number of threads undone.
        """
        if self._most == 1:
            return
        if kind != self._kind:  # speeds of different kinds cannot be compared
            if self._trial is not None:
                self._set(self._trial.before)
                self._trial = None
            self._forget()
            self._kind = kind
        self._last = self._read()
        self._called, self._usual = self._last.clock, math.inf

    def after(self, work: float, is_last: bool = False) -> bool:
        """Count work done since the last call; return whether a trial ended and its number of threads is kept.

        Args:
            work: Amount of work, in a unit that is the same for all work of this kind, such as updates.
            is_last: Whether this may be the last call of the work, so that the counters are read now, even if they were
                just read.
        """
        if self._most == 1:
            return False
        if self._was_suspended():
            self._forget()
            self._last = self._read()
            return False
        self._work += work
        if not is_last and self._called - self._last.clock < PERIOD / 4:
            return False
        now = self._read()
        self._sum, self._last = self._sum.plus(now, self._last), now
        seconds = self._sum.clock
        if seconds < PERIOD:
            return False
        seen, speed = self._sum, self._work / seconds
        self._forget()
        if self._trial is not None:
            return self._judge(self._trial, speed, now.clock)
        others = self._cores - (seen.idle + seen.computed) / seconds
        self._consider(speed, seen.waited / seconds, seen.idle / seconds, others, now.clock)
        return False

    def _was_suspended(self) -> bool:
        """Return whether the process seems to have been suspended, as the last call was far longer ago than usual."""
        now = self._clock()
        gap, usual = now - self._called, self._usual
        self._called, self._usual = now, gap if usual == math.inf else (usual + min(gap, 2 * usual)) / 2
        return gap > 4 * PERIOD and gap > 8 * usual

    def _forget(self) -> None:
        self._sum, self._work = Counters(), 0.0

    def _consider(self, speed: float, waiting: float, idle: float, others: float, now: float) -> None:
        """Begin a trial of another number of threads if that may help.

        Args:
            speed: Work per second with the present number.
            waiting: Mean number of our threads that waited for a core.
            idle: Mean number of idle cores.
            others: Mean number of cores that other programs used.
            now: Present time by `Counters.clock`, in seconds.
        """
        if self.count > 1 and waiting > CONTENDED and self._contended.is_over(now):
            fewer = max(1, self.count - max(1, math.ceil(others - 0.1)))
            why = f"other programs keep {max(others, waiting):.1f} of {self._cores} cores busy"
            self._try(fewer, _Trial(self.count, speed, 0.9, self._contended, why))
        elif self.count < self._most and idle > FREE and self._idle.is_over(now):
            more = min(self._most, self.count + max(1, math.floor(idle + 1 - FREE)))
            self._try(more, _Trial(self.count, speed, 1.03, self._idle, f"{idle:.1f} cores were idle"))
        elif self.count < self._most and self._hopeful.is_over(now):
            why = "other programs leave enough cores free"
            self._try(self._most, _Trial(self.count, speed, 1.15, self._hopeful, why))

    def _try(self, count: int, trial: _Trial) -> None:
        self._trial = trial
        self._set(count)

    def _judge(self, trial: _Trial, speed: float, now: float) -> bool:
        """End a trial of another number of threads; return whether it was fast enough for the number to be kept."""
        self._trial = None
        is_kept = speed >= trial.needed * trial.speed
        trial.pause.begin(now, not is_kept)
        if not is_kept:
            self._set(trial.before)
            return False
        self.reason = trial.reason
        if self.count < trial.before:
            self._hopeful.begin(now, was_in_vain=False)
        return True

    def _set(self, count: int) -> None:
        self.count = count
        self._use(count)


_own = threading.Lock()
"""Lock that is held while `sharing` or `using` controls the number of threads."""
_known: dict[int, Threads] = {}
"""Objects that `sharing` made for earlier work, by PyTorch's number of threads at its beginning, so that the numbers of
threads that they found are used again.
"""


@contextlib.contextmanager
def sharing(kind: str) -> Iterator[Threads]:
    """Adapt the number of PyTorch's threads to the load of other programs; the work must call `after` on the object
    that this yields.

    The number is not changed if the user set it (OMP_NUM_THREADS, MKL_NUM_THREADS), inside other work that controls it,
    or if the system does not report its load. Afterwards it is restored.

    Args:
        kind: Kind of the work; speeds are compared only within a kind.
    """
    most = torch.get_num_threads()
    if most == 1 or _user_decides() or not _can_read() or not _own.acquire(blocking=False):
        yield Threads(1, 1)
        return
    try:
        if most not in _known:
            _known[most] = Threads(most, len(os.sched_getaffinity(0)), read_counters, torch.set_num_threads)
        torch.set_num_threads(_known[most].count)
        _known[most].begin(kind)
        yield _known[most]
    finally:
        torch.set_num_threads(most)
        _own.release()


@contextlib.contextmanager
def fixed() -> Iterator[Threads]:
    """Keep the number of PyTorch's threads constant. Unless the user set it (OMP_NUM_THREADS, MKL_NUM_THREADS), it is
    divided by the number of processes that torchrun started on this machine.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")  # torchrun sets it, and OMP_NUM_THREADS=1 where there are several
    count = torch.get_num_threads()
    if not _user_decides() and ranks.isdecimal():
        count = max(1, count // max(1, int(ranks)))
    with using(count):
        yield Threads(1, 1)


@contextlib.contextmanager
def using(count: int) -> Iterator[None]:
    """Compute with this number of PyTorch's threads, whatever the load of other programs."""
    before, is_first = torch.get_num_threads(), _own.acquire(blocking=False)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if is_first:
            _own.release()


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Run PyTorch's own operations (not matrix multiplications) in one thread, for an operation that is often repeated.

    `torch.set_num_threads` would also replace the threads of a pool that nothing here uses. New threads of that pool
    wait actively, on the cores of the others: two calls in each backward pass of a layer norm slow down a training of a
    small model by 2 % (docs/log.md).
    """
    count = torch.get_num_threads()
    if count == 1:
        yield
        return
    use = _openmp()
    use(1)
    try:
        yield
    finally:
        use(count)


@cache
def _openmp() -> Callable[[int], object]:
    """Return the function that sets the number of threads of the OpenMP library that comes with PyTorch.

    If PyTorch uses another one, return `torch.set_num_threads`.
    """
    count = torch.get_num_threads()
    for path in Path(torch.__file__).parent.glob("lib/libgomp*"):
        with contextlib.suppress(OSError, AttributeError):
            use: Callable[[int], object] = ctypes.CDLL(str(path)).omp_set_num_threads
            use(count + 1)
            is_used = torch.get_num_threads() == count + 1
            use(count)
            if is_used:
                return use
    return torch.set_num_threads


def _user_decides() -> bool:
    return bool(os.environ.keys() & {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})


@cache
def _can_read() -> bool:
    """Return whether this system reports how long threads wait for a core."""
    try:
        read_counters()
    except (OSError, AttributeError, ValueError, IndexError):
        return False
    return True
