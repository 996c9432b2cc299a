"""Blocks shared by processes: the same results in the same order, and an end that is clean however it comes."""

import functools
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from seq2see import processes
from seq2see.errors import RunError

BLOCKS = [f"{number} " * (1 + number % 7 * 3000) for number in range(50)]


@pytest.fixture(autouse=True)
def crew(monkeypatch: pytest.MonkeyPatch) -> list[processes._Worker]:
    """Three cores; and the workers that were started."""
    started = []

    class Listed(processes._Worker):
        def __init__(self, *words):
            super().__init__(*words)
            started.append(self)

    monkeypatch.setattr(processes, "cores", lambda: 3)
    monkeypatch.setattr(processes, "_Worker", Listed)
    return started


def test_results_come_in_the_order_of_their_blocks(crew):
    found = list(processes.in_order(operator.methodcaller, ("split",), iter(BLOCKS)))
    assert found == [block.split() for block in BLOCKS]
    assert len(crew) == 3
    assert all(worker._process.poll() is not None for worker in crew)


@pytest.mark.parametrize("count", [0, 1, processes.FEW])
def test_a_few_blocks_need_no_process(crew, count):
    assert list(processes.in_order(operator.methodcaller, ("upper",), ["a"] * count)) == ["A"] * count
    assert not crew


def test_nor_does_one_core(crew, monkeypatch):
    monkeypatch.setattr(processes, "cores", lambda: 1)
    assert list(processes.in_order(operator.methodcaller, ("upper",), ["a"] * 50)) == ["A"] * 50
    assert not crew


def test_no_more_blocks_are_read_than_processes_can_have():
    read = []
    results = processes.in_order(operator.methodcaller, ("upper",), (read.append(n) or "a" for n in range(100)))
    next(results)
    assert len(read) <= processes.FEW + 1 + 3
    results.close()


def test_what_goes_wrong_there_is_raised_here(crew):
    with pytest.raises(ValueError, match="invalid literal"):
        list(processes.in_order(functools.partial, (int,), [*"123456789012345", "x", *"123"]))
    assert all(worker._process.poll() is not None for worker in crew)


def test_what_goes_wrong_here_ends_them(crew):
    def blocks():
        yield from "123456789012345"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(processes.in_order(functools.partial, (int,), blocks()))
    assert len(crew) == 3
    assert all(worker._process.poll() is not None for worker in crew)


@pytest.mark.parametrize(
    ("work", "block", "said"),
    [
        (os._exit, 3, "ended with code 3"),
        (signal.raise_signal, signal.SIGKILL, "ended by signal 9; is memory used up?"),
    ],
)
def test_a_process_that_dies_is_one_line(work, block, said):
    with pytest.raises(RunError, match=said) as told:
        list(processes.in_order(functools.partial, (work,), [block] * 20))
    assert "\n" not in str(told.value)


def test_nothing_is_lost_when_they_are_stopped_and_go_on(crew, monkeypatch):
    """As by Ctrl-Z and fg. A write may then end early, and whoever does not write the rest has the reader wait."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    ended = threading.Event()

    def stop_and_go():
        while not ended.wait(0.01):
            for sign in (signal.SIGSTOP, signal.SIGCONT):
                for worker in crew:
                    worker._process.send_signal(sign)

    def give_up(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(120)
    disturber = threading.Thread(target=stop_and_go)
    disturber.start()
    try:
        large = [bytes([number]) * 3_000_000 for number in range(60)]
        assert list(processes.in_order(operator.methodcaller, ("upper",), large)) == [each.upper() for each in large]
    finally:
        ended.set()
        disturber.join()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_torch_stays_out():
    look = "[__import__('seq2see.session.suggest'), __import__('seq2see.tokens.encoding')"
    look += ", 'torch' in __import__('sys').modules][2]"
    assert list(processes.in_order(functools.partial, (eval,), [look] * 20)) == [False] * 20


SCRIPT = """
import operator, os, sys, time
from seq2see import processes
print("once")
processes.cores = lambda: 2
def blocks():
    yield from ["a"] * 20
    if sys.argv[1:]:
        print(*(worker._process.pid for worker in workers), flush=True)
        time.sleep(60)
workers = []
before = processes._Worker.__init__
processes._Worker.__init__ = lambda self, *words: (before(self, *words), workers.append(self))[0]
print(len(list(processes.in_order(operator.methodcaller, ("upper",), blocks()))), flush=True)
"""


def test_a_script_without_a_main_of_its_own_runs_once(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    path = os.pathsep.join(sys.path)
    words = [sys.executable, str(tmp_path / "script.py")]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path})
    assert ended.stdout.split() == ["once", "20"]


def test_who_loses_its_parent_ends(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    words = [sys.executable, str(tmp_path / "script.py"), "wait"]
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}) as parent:
        assert parent.stdout.readline() == "once\n"
        workers = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 2
    for _ in range(600):
        if not any(map(is_there, workers)):
            return
        time.sleep(0.1)
    raise AssertionError("they are still there")


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
