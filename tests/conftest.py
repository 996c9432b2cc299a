"""Fixtures that many tests share: a tiny run, trained once, and the program called without a new process."""

import io
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

os.environ["SEQ2SEE_LANG"] = "en"  # messages are compared with English ones, whatever the locale
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of this process and of the programs that tests start
LETTERS = "abcdefgh"
TINY = {
    "model": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "d_model": 32,
        "heads": 2,
        "d_ff": 64,
        "positions": "sinusoid",
        "dropout": 0.0,
    },
    "training": {
        "max_steps": 150,
        "warmup_steps": 30,
        "batch_tokens": 1000,
        "learning_rate": 5e-3,
        "validate_every": 50,
        "alignment_weight": 0.0,
        "average": 2,
        "log_every": 10,
    },
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for `-n auto`: one more than there are cores, and no more than fit into 8 GiB.

    Tests of servers and of several processes wait for a quarter of their time.
    """
    from seq2see.machine import cores

    return min(cores() + 1, 8)


def pytest_configure(config: pytest.Config) -> None:
    """Try 30 examples of a property in the default run and 100 with the slow tests, however busy the machine is."""
    from hypothesis import settings

    examples = 30 if config.option.markexpr == "not slow" else 100
    settings.register_profile("seq2see", settings.default, max_examples=examples, deadline=None)
    settings.load_profile("seq2see")


@pytest.fixture(scope="session", autouse=True)
def _default_signals() -> Iterator[None]:
    """Give programs that tests start the default signals, also where a script in the background or nohup ignores some.

    A child inherits what is ignored, but not a handler.
    """
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the engines of temporary runs out of the user's cache; matplotlib's list of fonts may stay there."""
    users = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  there may be no home
    with pytest.MonkeyPatch.context() as patch:
        if "MPLCONFIGDIR" not in os.environ:
            patch.setenv("MPLCONFIGDIR", f"{users}/matplotlib")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread: with tiny models, threads only wait for each other, all the more in tests in parallel."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    """Let no test wait until its files are on the disk: they need not outlast a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _reports_without_curves() -> Iterator[None]:
    """Draw curves in the report of the run `trained` only: they take a fifth of the time, and no test reads others."""
    from seq2see.session import finish

    write_report = finish.write_report

    def without_curves(run: Any, prepared: Any) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            if run.folder.parent.name != "trained":
                patch.setattr("seq2see.pictures.curves.curves", lambda rows: "")
            return write_report(run, prepared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "write_report", without_curves)
        yield


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test with English messages, also after one that called the program with `--lang ko`."""
    monkeypatch.setenv("SEQ2SEE_LANG", "en")


def random_words(count: int, seed: int, longest: int = 6) -> list[str]:
    """Return distinct words over a few letters, the same for the same seed."""
    dice = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(dice.choices(LETTERS, k=dice.randint(1, longest)))] = None
    return list(words)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return `once(name, make)`, which returns a folder that `make(folder)` has filled.

    `make` is called in one of the processes of pytest-xdist; each of the others gets a copy, so that none sees
    temporary files of another.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        original, copy = shared / f"once-{name}", own / f"copy-{name}"
        if not copy.exists():
            with FileLock(f"{original}.lock"):
                if not (original / "made").exists():
                    shutil.rmtree(original, ignore_errors=True)  # of a process in which it failed
                    (original / name).mkdir(parents=True)
                    make(original / name)
                    (original / "made").touch()
            shutil.copytree(original / name, copy, symlinks=True)
        return copy

    return folder


@pytest.fixture(scope="session")
def trained(once: Callable[..., Path]) -> Path:
    """Return the folder of a finished run that writes small letters large; copy it before changing anything."""
    from seq2see import api

    def make(folder: Path) -> None:
        pairs = folder / "upper.tsv"
        pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(500, 1)), encoding="utf-8")
        settings = {**TINY, "training": {**TINY["training"], "seed": 3}}  # learns 95 % of the task; others learn less
        api.train(pairs, folder / "run", settings=settings)

    return once("trained", make) / "run"


@pytest.fixture(scope="session")
def server(trained: Path) -> Iterator[Any]:
    """`seq2see serve` for this run with no option, for all tests that neither change nor end it."""
    from serving import Server

    with Server(trained) as started:
        yield started


@dataclass(frozen=True)
class Ended:
    """What a call of the program left."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ended]:
    """`cli("translate", run, stdin=b"abc\\n")`: the real entry point in this process, which spares importing torch."""
    from seq2see.cli.program import main

    def call(*words: object, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "argv", ["seq2see", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsysbinary.readouterr()
        code = exited.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, out.decode(), err.decode())

    return call
