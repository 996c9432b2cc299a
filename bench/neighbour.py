"""Training beside other programs: `python -m bench.neighbour [--rounds 5]`; writes docs/benchmarks-neighbour.md.

Everything is pinned to two cores, so that a larger machine gives the same table. Each candidate trains in a process of
its own, which is stopped (SIGSTOP) while others have their turn. Rounds go through all situations and candidates. With
`--explore`, other ways of waiting are candidates, too, and no page is written.
"""

import argparse
import contextlib
import datetime
import hashlib
import importlib
import mmap
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from unittest.mock import MagicMock

HERE = Path(__file__).parent
SETTLE = 4.0
"""Seconds of each turn that are not measured: within them ours is to notice who came and who went."""
BUSY = "while True: pass"


@dataclass(frozen=True)
class Candidate:
    """A way to choose threads, as the environment of a process that trains."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)


PYTORCH_WAITS = {"GOMP_SPINCOUNT": "300000"}
CANDIDATES = [
    Candidate("1 thread", {"OMP_NUM_THREADS": "1"}),
    Candidate("2 threads, PyTorch's waiting", {"OMP_NUM_THREADS": "2", **PYTORCH_WAITS}),
    Candidate("2 threads, short waiting", {"OMP_NUM_THREADS": "2"}),
    Candidate("seq2see (default settings)"),
]
EXPLORED = [
    Candidate(f"2 threads, {spins} spins", {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": str(spins)})
    for spins in (0, 300, 1000, 3000, 10_000, 30_000, 300_000)
]
SITUATIONS = {
    "alone": "alone",
    "busy": "beside a process that keeps one core busy",
    "niced": "beside such a process at the lowest priority (nice 19)",
    "second": "beside a second training of the same kind (the slower of the two)",
}
SIZES = {"small": (3, 256, 4, 1024), "dates": (2, 128, 4, 512)}
"""Layers of each stack, d_model, heads and d_ff."""


def stand_in() -> None:
    """Replace packages that write files of a run and change nothing of its speed, on a machine without them."""
    for name in ("babel", "babel.core", "babel.dates", "jinja2", "tomli_w", "torch.utils.tensorboard"):
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = MagicMock(dumps=lambda settings: "", get_global=lambda table: {"src": "sc"})


def work(folder: Path, size: str) -> None:
    """Train without end, and count the updates in a file that the parent reads."""
    stand_in()
    import seq2see
    from seq2see.training.events import Stepped, ThreadsChanged

    layers, d_model, heads, d_ff = SIZES[size]
    counter = mmap.mmap(os.open(folder / "count", os.O_RDWR), 16)
    done = 0

    def watch(event: object) -> None:
        nonlocal done
        if isinstance(event, Stepped):
            done += 1
            struct.pack_into("qq", counter, 0, done, os.getpid())
        elif isinstance(event, ThreadsChanged):
            print(f"{time.monotonic():.1f} step {event.step}: {event.threads} threads, {event.reason}", flush=True)

    model = {"encoder_layers": layers, "decoder_layers": layers, "d_model": d_model, "heads": heads, "d_ff": d_ff}
    training = {"batch_tokens": 1024, "max_steps": 10**6, "validate_every": 10**6, "schedule": "noam"}
    seq2see.train(folder / "pairs.tsv", folder / "run", settings={"model": model, "training": training}, watch=watch)


def write_pairs(path: Path) -> None:
    """Write pairs of sentences and the same with every word reversed, with a vocabulary of 3,000 words."""
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(3000)]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(6000):
            line = [words[int(len(words) * dice.random() ** 2)] for _ in range(dice.randint(3, 25))]
            file.write(f"{' '.join(line)}\t{' '.join(word[::-1] for word in line)}\n")


class Training:
    """A process that trains, stopped unless it is its turn."""

    def __init__(self, candidate: Candidate, folder: Path, size: str) -> None:
        folder.mkdir()
        write_pairs(folder / "pairs.tsv")
        (folder / "count").write_bytes(bytes(16))
        self._counter = mmap.mmap(os.open(folder / "count", os.O_RDWR), 16)
        chosen = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
        inherited = {name: value for name, value in os.environ.items() if name not in chosen}
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.neighbour", "--work", str(folder), "--size", size],
            cwd=HERE.parent,
            env=inherited | candidate.environment,
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
        )
        while self.updates() < 3:
            if self.process.poll() is not None:
                sys.exit(f"{candidate.name}: the training ended.\n{self.log.read_text()}")
            time.sleep(0.1)
        self.process.send_signal(signal.SIGSTOP)

    def updates(self) -> int:
        return int(struct.unpack_from("q", self._counter)[0])

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def busy(priority: int) -> Iterator[None]:
    """Keep one core busy, with this priority (19 is the lowest)."""
    process = subprocess.Popen(["nice", "-n", str(priority), sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def turn(situation: str, both: list[Training], seconds: float) -> float:
    """Return the updates in a second of a candidate in a situation; of two trainings those of the slower one."""
    with contextlib.ExitStack() as stack:
        if situation in ("busy", "niced"):
            stack.enter_context(busy(19 if situation == "niced" else 0))
        measured = both if situation == "second" else both[:1]
        for training in measured:
            stack.enter_context(training.running())
        time.sleep(SETTLE)
        before, began = [training.updates() for training in measured], time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        return min((training.updates() - count) / passed for training, count in zip(measured, before, strict=True))


def same_bits(counts: list[int]) -> dict[int, str]:
    """Return a digest of the weights after a few updates of a small Transformer, by the number of threads."""
    sys.path.insert(0, str(HERE))  # candidates are programs of their own elsewhere
    import torch
    from candidates.ours import packed

    from bench import work as given
    from seq2see.config import Model, Training
    from seq2see.kernels import threads
    from seq2see.model.build import build
    from seq2see.training import loop
    from seq2see.training.optimizer import Adam

    found = {}
    for count in counts:
        with threads.using(count):
            torch.manual_seed(1)
            size = given.SIZES["small"]
            shape = Model(encoder_layers=2, decoder_layers=2, d_model=size.d_model, heads=size.heads, d_ff=size.d_ff)
            model, settings = build(shape, size.vocabulary, size.vocabulary), Training()
            optimizer = Adam(model.parameters(), settings)
            for batch in given.batches(size, 3):
                loop.update(model, optimizer, [packed(batch)], settings, 1e-4)
            numbers = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
            found[count] = hashlib.sha256(numbers).hexdigest()[:12]
    return found


def measure(
    candidates: list[Candidate], situations: list[str], rounds: int, seconds: float, size: str, folder: Path
) -> dict[str, dict[str, list[float]]]:
    """Return the updates in a second by candidate and situation, one for each round."""
    found: dict[str, dict[str, list[float]]] = {each.name: {which: [] for which in situations} for each in candidates}
    pairs: list[list[Training]] = []
    try:
        for number, candidate in enumerate(candidates):
            many = 2 if "second" in situations else 1
            pairs.append([Training(candidate, folder / f"{number}-{which}", size) for which in range(many)])
        for number in range(rounds):
            for situation in situations:
                for place in range(len(candidates)):
                    which = (place + number) % len(candidates)  # nobody is always first
                    rate = turn(situation, pairs[which], seconds)
                    found[candidates[which].name][situation].append(rate)
                    print(f"round {number + 1} {situation:<7} {candidates[which].name:<30} {rate:7.2f}/s", flush=True)
    finally:
        for training in (each for pair in pairs for each in pair):
            training.end()
            if changes := [line for line in training.log.read_text().splitlines() if " threads, " in line]:
                print(f"{training.log.parent.name}: {len(changes)} changes; the last: {changes[-1]}")
    return found


def page(found: dict[str, dict[str, list[float]]], bits: dict[int, str], options: argparse.Namespace) -> str:
    """Return the page with the table of medians, and how ours compares with the best fixed number of threads."""
    import torch

    from seq2see.lab.circumstances import processor

    names = list(found)
    situations = [each for each in SITUATIONS if each in found[names[0]]]
    layers, d_model, _, _ = SIZES[options.size]
    lines = [
        "# Training beside other programs",
        "",
        f"Written by `python -m bench.neighbour`, {datetime.date.today()}: {processor()}, two of {os.cpu_count()}",
        f"cores, Python {platform.python_version()}, PyTorch {torch.__version__}. Updates per second, medians of",
        f"{options.rounds} interleaved rounds of {options.seconds:g} s, with the smallest and the largest.",
        f"{layers} + {layers} layers, d_model {d_model}, 1,024 tokens in an update. The other program starts or ends",
        f"{SETTLE:g} s before a measurement begins. The last row is the throughput of seq2see with its default",
        "settings, divided by that of the best fixed number of threads.",
        "",
        f"| | {' | '.join(SITUATIONS[each] for each in situations)} |",
        f"|---|{'---|' * len(situations)}",
    ]
    for name, by_situation in found.items():
        cells = [f"{median(r):.2f} ({min(r):.2f}-{max(r):.2f})" for r in (by_situation[each] for each in situations)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if CANDIDATES[-1].name in found:
        ours, fixed = found[names[-1]], [found[name] for name in names[:-1]]
        shares = [median(ours[each]) / max(median(other[each]) for other in fixed) for each in situations]
        lines.append(f"| share of the best | {' | '.join(f'{share:.2f}' for share in shares)} |")
    same = "the same" if len(set(bits.values())) == 1 else f"DIFFERENT ({bits})"
    counts = ", ".join(map(str, bits))
    return "\n".join([*lines, "", f"Weights after three updates with {counts} threads: {same} to the last bit.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured in each turn")
    parser.add_argument("--cores", default="0,1", help="the two cores that everything is pinned to")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", nargs="*", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--explore", action="store_true", help="compare ways of waiting; writes no page")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.size)
        return
    everywhere = len(os.sched_getaffinity(0))
    bits = same_bits(sorted({1, 2, 3, 4, everywhere}))
    print(f"digests of the weights by the number of threads: {bits}", flush=True)
    os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    candidates = EXPLORED if options.explore else CANDIDATES
    with tempfile.TemporaryDirectory() as folder:
        found = measure(candidates, options.only, options.rounds, options.seconds, options.size, Path(folder))
    text = page(found, bits, options)
    print(text)
    if not options.explore and len(options.only) == len(SITUATIONS):
        (HERE.parent / "docs" / "benchmarks-neighbour.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
