"""The machine: determinism, memory, worker processes and signals that ask for a stop."""

import functools
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2see import machine
from seq2see.errors import RunError, SettingError
from seq2see.machine import SIGNALS, Stop, Stopped


def test_what_has_no_deterministic_form_is_refused_and_not_only_warned_of() -> None:
    with (
        pytest.raises(SettingError, match=r"training\.deterministic: put_ is not deterministic"),
        machine.deterministic(True),
    ):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    assert not torch.are_deterministic_algorithms_enabled()
    with machine.deterministic(False):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), machine.deterministic(True):
        torch.ones(2, 3) @ torch.ones(2, 3)


def container(folder: Path, limit: str, used: int, cached: int) -> tuple[Path, str, str]:
    folder.mkdir()
    (folder / "limit").write_text(f"{limit}\n")
    (folder / "used").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\nactive_file {cached}\ninactive_file 1\n")
    return folder, "limit", "used"


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CONTAINERS", [])
    everything = machine.free_memory()
    assert everything > 2**20
    monkeypatch.setattr(machine, "CONTAINERS", [container(tmp_path / "small", "100000", 60_000, 9_999)])
    assert machine.free_memory() == 50_000
    monkeypatch.setattr(machine, "CONTAINERS", [container(tmp_path / "over", "1000", 60_000, 0)])
    assert machine.free_memory() == 0
    unlimited = [container(tmp_path / "unlimited", "max", 60_000, 0), (tmp_path / "none", "limit", "used")]
    monkeypatch.setattr(machine, "CONTAINERS", unlimited)
    assert machine.free_memory() > 2**20


BLOCKS = [f"{number} " * (1 + number % 7 * 3000) for number in range(50)]


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> list[machine.WorkerProcess]:
    """Three cores; and the workers that were started."""
    started = []

    class Listed(machine.WorkerProcess):
        def __init__(self, *words):
            super().__init__(*words)
            started.append(self)

    monkeypatch.setattr(machine, "cores", lambda: 3)
    monkeypatch.setattr(machine, "WorkerProcess", Listed)
    return started


def test_results_come_in_the_order_of_their_blocks(crew):
    found = list(machine.parallel_map(operator.methodcaller, ("split",), iter(BLOCKS)))
    assert found == [block.split() for block in BLOCKS]
    assert len(crew) == 3
    assert all(worker._process.poll() is not None for worker in crew)


@pytest.mark.parametrize("count", [0, 1, machine.FEW])
def test_a_few_blocks_need_no_process(crew, count):
    assert list(machine.parallel_map(operator.methodcaller, ("upper",), ["a"] * count)) == ["A"] * count
    assert not crew


def test_nor_does_work_that_is_soon_done(crew):
    many = ["a"] * 5 * machine.FEW
    assert list(machine.parallel_map(operator.methodcaller, ("upper",), many, seconds=60)) == ["A"] * len(many)
    assert not crew


def test_processes_are_started_for_what_is_left(crew):
    found = list(machine.parallel_map(operator.methodcaller, ("split",), iter(BLOCKS), seconds=1e-9))
    assert found == [block.split() for block in BLOCKS]
    assert len(crew) == 3


def test_nor_does_one_core(crew, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 1)
    assert list(machine.parallel_map(operator.methodcaller, ("upper",), ["a"] * 50)) == ["A"] * 50
    assert not crew


def test_no_more_blocks_are_read_than_processes_can_have(crew):
    read = []
    results = machine.parallel_map(operator.methodcaller, ("upper",), (read.append(n) or "a" for n in range(100)))
    next(results)
    assert len(read) <= machine.FEW + 1 + 3
    results.close()


def test_what_goes_wrong_there_is_raised_here(crew):
    with pytest.raises(ValueError, match="invalid literal"):
        list(machine.parallel_map(functools.partial, (int,), [*"123456789012345", "x", *"123"]))
    assert all(worker._process.poll() is not None for worker in crew)


def test_what_goes_wrong_here_ends_them(crew):
    def blocks():
        yield from "123456789012345"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(machine.parallel_map(functools.partial, (int,), blocks()))
    assert len(crew) == 3
    assert all(worker._process.poll() is not None for worker in crew)


@pytest.mark.parametrize(
    ("work", "block", "said"),
    [
        (os._exit, 3, "ended with code 3"),
        (signal.raise_signal, signal.SIGKILL, "ended by signal 9; is memory used up?"),
    ],
)
def test_a_process_that_dies_is_one_line(crew, work, block, said):
    with pytest.raises(RunError, match=said) as told:
        list(machine.parallel_map(functools.partial, (work,), [block] * 20))
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
        assert list(machine.parallel_map(operator.methodcaller, ("upper",), large)) == [each.upper() for each in large]
    finally:
        ended.set()
        disturber.join()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_torch_stays_out(crew):
    look = "[__import__('seq2see.session.suggest'), __import__('seq2see.tokens.store')"
    look += ", 'torch' in __import__('sys').modules][2]"
    assert list(machine.parallel_map(functools.partial, (eval,), [look] * 20)) == [False] * 20


SCRIPT = """
import operator, os, sys, time
from seq2see import machine
print("once")
machine.cores = lambda: 2
def blocks():
    yield from ["a"] * 20
    if sys.argv[1:]:
        print(*(worker._process.pid for worker in workers), flush=True)
        time.sleep(60)
workers = []
before = machine.WorkerProcess.__init__
machine.WorkerProcess.__init__ = lambda self, *words: (before(self, *words), workers.append(self))[0]
print(len(list(machine.parallel_map(operator.methodcaller, ("upper",), blocks()))), flush=True)
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
    wait_until(lambda: not any(map(is_there, workers)))


AT_WORK = """
import sys
from seq2see.machine import WorkerProcess
worker = WorkerProcess(eval, ("lambda task: exec(task)",))
worker.send(f"import time\\nwhile True: open({sys.argv[1]!r}, 'a').write('x'); time.sleep(0.01)")
print(worker._process.pid, flush=True)
worker.receive()
"""


def test_who_loses_its_parent_ends_even_during_a_task(tmp_path: Path):
    """As an aligner that would go on to write into the hidden folder of a training that was killed."""
    written = tmp_path / "written"
    words = [sys.executable, "-c", AT_WORK, str(written)]
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}) as parent:
        worker = int(parent.stdout.readline())
        wait_until(written.exists)
        parent.kill()
    try:
        wait_until(lambda: not is_there(worker))
    finally:
        if is_there(worker):
            os.kill(worker, signal.SIGKILL)


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it took more than a minute")


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_and_what_was_there_before_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = Stop()
    with stop.listening():
        assert not stop.asked()
        os.kill(os.getpid(), number)
        assert stop.asked()
        assert stop.signal == number
    assert signal.getsignal(number) == before


def test_a_second_signal_does_not_wait() -> None:
    stop = Stop()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_changes_nothing_is_left_at_once() -> None:
    stop = Stop()
    with stop.listening(), pytest.raises(Stopped), stop.at_once():
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Stopped), stop.at_once():
        pytest.fail("it began, although a stop was asked for before")


def test_a_stop_that_another_process_passes_on() -> None:
    stop = Stop()
    stop.pass_on(signal.SIGTERM)  # nobody listens: the signal would end the program
    with stop.listening():
        thread = threading.Thread(target=stop.pass_on, args=(signal.SIGTERM,))
        with pytest.raises(Stopped), stop.at_once():
            _ = thread.start(), thread.join()
        assert stop.signal == signal.SIGTERM
        stop.pass_on(signal.SIGINT)  # it is known already: no second signal
    assert stop.signal == signal.SIGTERM


def test_what_somebody_ignores_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.listening():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_nothing_is_heard() -> None:
    heard: list[bool] = []

    def work() -> None:
        stop = Stop()
        with stop.listening():
            heard.append(stop.asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [False]
