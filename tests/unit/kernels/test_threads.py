"""The number of threads beside other programs, by injected counters and clocks; and whose word counts."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2see.kernels import threads
from seq2see.kernels.threads import CONTENDED, FIRST_PAUSE, LONGEST_PAUSE, PERIOD, Counters, Threads


class Machine:
    """A machine of some cores with other programs on it, whose time passes with the work that `Threads` is told.

    Args:
        others: Number of cores that other programs keep busy.
        speed: Work in a second by the number of threads and of cores that are free.
    """

    def __init__(self, cores: int, others: float = 0.0, speed: Callable[[int, float], float] | None = None) -> None:
        self.cores, self.others = cores, others
        self.speed = speed or (lambda count, free: count if count <= free else count / 9)
        self.now = Counters()
        self.used: list[int] = []
        self.threads = Threads(cores, cores, lambda: self.now, self.used.append, lambda: self.now.clock)
        self.threads.begin("training")

    def work(self, seconds: float) -> list[tuple[int, int]]:
        """Do work for some time; return when, in whole seconds, the number of threads was changed, and to which."""
        changes, end = [], self.now.clock + seconds
        while self.now.clock < end - 1e-9:
            count, free = self.threads.count, self.cores - self.others
            past = Counters(clock=0.125, waited=0.125 * max(0.0, count - free), computed=0.125 * min(count, free))
            idle = 0.125 * max(0.0, free - count)
            past = Counters(past.clock, past.waited, past.computed, idle)
            self.now = self.now.plus(past, Counters())
            if self.threads.after(0.125 * self.speed(count, free)):
                changes.append((round(self.now.clock), self.threads.count))
        return changes


def test_nothing_changes_without_neighbours():
    quiet = Machine(cores=2)
    assert quiet.work(1000) == []
    assert quiet.used == []


def test_one_thread_is_left_alone():
    assert Machine(cores=1, others=1.0).work(60) == []


def test_fewer_threads_beside_a_busy_program_and_more_when_it_has_gone():
    shared = Machine(cores=2, others=1.0)
    assert shared.work(30) == [(2, 1)]
    assert "1.0 of 2 cores" in shared.threads.reason
    shared.others = 0.0
    assert shared.work(30) == [(32, 2)]
    assert "idle" in shared.threads.reason
    shared.others = 1.0
    assert shared.work(5) == [(62, 1)]  # as soon as the first time


def test_as_many_threads_as_cores_are_left():
    shared = Machine(cores=16, others=1.0)
    assert shared.work(30) == [(2, 15)]
    shared.others = 8.0
    assert [count for _, count in shared.work(30)][-1] == 8
    shared.others = 3.0
    assert [count for _, count in shared.work(30)][-1] == 13


def test_a_number_that_is_slower_is_not_kept_and_tried_ever_less_often():
    """A program that disturbs only little: with one thread the work would be slower than beside it."""
    shared = Machine(cores=2, others=1.0, speed=lambda count, free: count / 1.5)
    assert shared.work(1000) == []
    trials = shared.used.count(1)
    assert 4 < trials < 20
    assert shared.used[-1] == 2
    assert shared.used.count(2) == trials  # each of them ended


def test_beside_a_program_of_low_priority_more_threads_are_tried_though_no_core_is_idle():
    """Two threads suffer at first, then no longer: only a trial can tell."""
    slow = [True]
    shared = Machine(cores=2, others=1.0, speed=lambda count, free: 0.2 if slow[0] and count == 2 else 0.9 * count)
    assert shared.work(6) == [(2, 1)]
    slow[0] = False
    changes = shared.work(2 * FIRST_PAUSE)
    assert [count for _, count in changes] == [2]


def test_trials_of_more_threads_take_little_of_the_time():
    shared = Machine(cores=2, others=1.0)
    shared.work(4)
    before = len(shared.used)
    assert shared.work(1000) == []
    assert (len(shared.used) - before) / 2 <= 4 + 1000 / LONGEST_PAUSE


def test_short_disturbances_are_ignored():
    shared = Machine(cores=2, others=0.9 * CONTENDED)
    assert shared.work(100) == []
    assert shared.used == []


def test_speeds_of_different_kinds_of_work_are_not_compared():
    shared = Machine(cores=2, others=1.0)
    shared.work(PERIOD)
    assert shared.used == [1]  # a trial
    shared.threads.begin("search")
    assert shared.used == [1, 2]  # which is given up
    assert shared.threads.count == 2


def test_the_time_between_two_works_does_not_count():
    shared = Machine(cores=2)
    for _ in range(20):
        shared.work(0.5)
        shared.now = shared.now.plus(Counters(clock=100, waited=200), Counters())
        shared.threads.begin("training")
    assert shared.used == []


def test_a_computer_that_was_suspended_does_not_count():
    shared = Machine(cores=2, others=1.0)
    assert shared.work(30) == [(2, 1)]
    for _ in range(3):
        shared.now = shared.now.plus(Counters(clock=600, idle=1200), Counters())
        assert shared.work(4) == []  # neither its idle cores nor the work that was not done


def test_the_counters_of_this_system():
    before = threads.read_counters()
    assert sum(number * number for number in range(200_000))
    after = threads.read_counters()
    assert after.clock > before.clock
    assert after.computed > before.computed
    assert after.waited >= before.waited
    assert after.idle >= before.idle


@pytest.fixture
def _two_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threads.using(2):
        pass
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
class TestSharing:
    def test_inside_another_work_the_number_stays(self):
        with threads.sharing("training") as ours, threads.sharing("search") as inner:
            assert ours is not inner
            assert not any(inner.after(1) for _ in range(5))
        with threads.sharing("training") as again:
            assert again is ours  # what it has learned is kept

    def test_the_number_is_as_before_afterwards(self):
        with threads.sharing("training"):
            torch.set_num_threads(1)
        assert torch.get_num_threads() == 2

    def test_the_word_of_the_user_counts(self, monkeypatch: pytest.MonkeyPatch):
        with threads.sharing("training") as ours:
            pass
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        with threads.sharing("training") as theirs:
            assert theirs is not ours
            assert not any(theirs.after(1) for _ in range(5))

    @pytest.mark.parametrize(
        ("ranks", "given", "count"), [("2", None, 1), ("1", None, 2), ("2", "2", 2), ("?", None, 2)]
    )
    def test_ranks_share_the_cores(self, monkeypatch: pytest.MonkeyPatch, ranks: str, given: str | None, count: int):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        if given:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        with threads.fixed():
            assert torch.get_num_threads() == count
        assert torch.get_num_threads() == 2


def spins(**environment: str) -> str | None:
    """How long threads wait in a new process that imports seq2see."""
    program = "import os, seq2see; print(os.environ.get('GOMP_SPINCOUNT'))"
    inherited = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    inherited["PYTHONPATH"] = str(Path(threads.__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-c", program], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def test_threads_sleep_soon_unless_the_user_says_how_they_wait():
    assert spins() == "10000"
    assert spins(OMP_WAIT_POLICY="active") == "None"
    assert spins(GOMP_SPINCOUNT="77") == "77"


@pytest.mark.parametrize("is_bundled", [True, False])
def test_one_thread_for_one_operation(is_bundled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if PyTorch comes without an OpenMP library of its own, and if the operation fails."""
    if not is_bundled:
        monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    threads._openmp.cache_clear()
    before = torch.get_num_threads()
    try:
        with threads.using(3):
            with contextlib.suppress(ZeroDivisionError), threads.in_one_thread():
                assert torch.get_num_threads() == 1
                raise ZeroDivisionError
            assert torch.get_num_threads() == 3
            is_here = any(Path(torch.__file__).parent.glob("lib/libgomp*"))
            assert (threads._openmp() is not torch.set_num_threads) == is_here
        assert torch.get_num_threads() == before
    finally:
        threads._openmp.cache_clear()
