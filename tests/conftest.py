"""What many tests share: a tiny run, trained once, and the program called without a new process."""

import io
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
        "validate_every": 50,
        "average": 2,
        "log_every": 10,
    },
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads over a few numbers only wait for each other, all the more where tests run side by side."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_words(count: int, seed: int, longest: int = 6) -> list[str]:
    """Distinct words over a few letters, the same for the same seed."""
    dice = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(dice.choices(LETTERS, k=dice.randint(1, longest)))] = None
    return list(words)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run that writes small letters large. Shared: copy it before changing anything."""
    from seq2see import api

    folder = tmp_path_factory.mktemp("trained")
    pairs = folder / "upper.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(500, 1)), encoding="utf-8")
    settings = {**TINY, "training": {**TINY["training"], "seed": 3}}  # learns 95 % of the task; others learn less
    return api.train(pairs, folder / "run", settings=settings).folder


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
