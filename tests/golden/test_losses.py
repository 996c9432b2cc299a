"""The first losses of a tiny run, kept in `losses.txt`: a refactor must leave every bit of them alone.

Compared with `==` where the file's header is that of this machine, else to 1 part in 10,000. The header has the torch
version, the CPU capability, and a fingerprint of some products of PyTorch's own: its library picks kernels by the maker
of the processor too, and two with the same capability may round differently.
After a change that is meant to move them, write them anew and say why in the commit:

    python tests/golden/test_losses.py
"""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import numpy as np
import torch

import stores
from seq2see import config
from seq2see.model.build import build
from seq2see.training import events as training_events
from seq2see.training import loop

FILE = Path(__file__).with_name("losses.txt")
STEPS = 100
SETTINGS = config.resolve(
    {
        "model": {"encoder_layers": 2, "decoder_layers": 1, "d_model": 16, "heads": 2, "d_ff": 24, "dropout": 0.1},
        "training": {
            "batch_tokens": 150,
            "max_steps": STEPS,
            "warmup_steps": 8,
            "learning_rate": 1e-2,
            "log_every": 1,
            "validate_every": STEPS,
        },
    }
)
VOCABULARY = 13


def header() -> str:
    return f"# torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, products {fingerprint():08x}"


def fingerprint() -> int:
    """Changes where this processor rounds differently; nothing of seq2see is asked."""
    dice = torch.Generator().manual_seed(0)
    found = b""
    for rows in range(1, 60):
        for width, inner in ((16, 48), (16, 24), (24, 16), (VOCABULARY, 16), (16, rows)):
            left, right = torch.randn(rows, inner, generator=dice), torch.randn(width, inner, generator=dice)
            found += torch.nn.functional.linear(left, right, right[:, 0]).numpy().tobytes()
    return crc32(found)


def losses(folder: Path) -> list[float]:
    """Train on strings of numbers and their reverse."""
    dice = np.random.default_rng(1)
    sources = [dice.integers(4, VOCABULARY, length).tolist() for length in dice.integers(1, 9, 120)]
    pairs = stores.write(folder / "corpus", ((source, source[::-1]) for source in sources), VOCABULARY)
    torch.manual_seed(SETTINGS.training.seed)
    events = loop.train(
        build(SETTINGS.model, VOCABULARY, VOCABULARY),
        pairs,
        SETTINGS.training,
        window_pairs=50,
        d_model=SETTINGS.model.d_model,
        run=folder,
        validate=lambda: {"loss": 1.0},
        lower_is_better=True,
        micro_tokens=100,
    )
    return [event.loss for event in events if isinstance(event, training_events.Trained)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums are split over threads; what was set before is set again."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_the_first_losses(tmp_path: Path) -> None:
    first, *lines = FILE.read_text(encoding="ascii").splitlines()
    expected = [float(line) for line in lines]
    with one_thread():
        found, here = losses(tmp_path), header()
    assert len(found) == len(expected) == STEPS
    if first == here:
        assert found == expected
    else:
        assert all(math.isclose(one, other, rel_tol=1e-4) for one, other in zip(found, expected, strict=True)), found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, one_thread():
        FILE.write_text("\n".join([header(), *map(repr, losses(Path(folder)))]) + "\n", encoding="ascii")
