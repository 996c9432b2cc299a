"""Run the benchmarks: `python -m bench [--quick] [--only training decoding translate]`; writes docs/benchmarks.md.

Every candidate lives in a process of its own and waits there; rounds go through all of them in turn, so that whatever
else the machine does falls on all alike. Medians over rounds count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import ceilings, page, prepare, translate, work

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-bench" / "bin" / "python"
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2147483647"}
"""The allocator kept from returning memory, as anyone can set it from outside. We set it ourselves."""


@dataclass(frozen=True)
class Entrant:
    """Entry of the comparison: a candidate with its name, plain or tuned, and how its batches are made."""

    name: str
    module: str
    tuned: bool = False
    ours: bool = False
    shuffled: bool = False
    checkout: Path = HERE.parent
    """The checkout that the candidate comes from; an earlier version of seq2see has one of its own."""


OURS = Entrant("seq2see", "ours", ours=True)
HUGGING_FACE = Entrant("Hugging Face Marian", "huggingface")
HUGGING_FACE_TRAINER = Entrant("Hugging Face Marian, as its Trainer", "huggingface", tuned=True, shuffled=True)
"""Hugging Face with fused AdamW and random batches, which are the defaults of Seq2SeqTrainer."""
HUGGING_FACE_TUNED = Entrant("Hugging Face Marian, tuned", "huggingface", tuned=True)
TRAINING = {
    True: [OURS, HUGGING_FACE_TRAINER, HUGGING_FACE, HUGGING_FACE_TUNED],
    False: [
        OURS,
        HUGGING_FACE_TRAINER,
        HUGGING_FACE,
        HUGGING_FACE_TUNED,
        Entrant("nn.Transformer", "torch_transformer"),
        Entrant("nn.Transformer, tuned", "torch_transformer", tuned=True),
        Entrant("x-transformers", "xtransformers"),
        Entrant("x-transformers, tuned", "xtransformers", tuned=True),
        Entrant("JoeyNMT", "joey"),
        Entrant("JoeyNMT, tuned", "joey", tuned=True),
    ],
}
DECODING = [OURS, Entrant("seq2see, int8", "ours", tuned=True, ours=True), HUGGING_FACE]
DECODINGS = [(1, 1), (32, 1), (32, 5)]
"""Batch and beam."""
LENGTH = 25


class Process:
    """A candidate in its process."""

    def __init__(self, entrant: Entrant, size: str, weights: Path) -> None:
        python = sys.executable if entrant.ours else str(PEERS)
        environment = dict(os.environ)
        if entrant.tuned and not entrant.ours and not entrant.shuffled:
            environment |= KEEP_MEMORY
        if entrant.checkout != HERE.parent:
            environment["PYTHONPATH"] = str(entrant.checkout / "src")
        options = ["tuned"] * entrant.tuned + ["shuffled"] * entrant.shuffled
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (not a pipe: one that nobody reads would fill up)
        self._process = subprocess.Popen(
            [python, str(entrant.checkout / "bench" / "worker.py"), entrant.module, size, str(weights), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._read()

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            sys.exit(f"a candidate died: {' '.join(map(str, self._process.args))}\n{self._errors.read()}")
        return dict(json.loads(line))

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def interleaved(
    entrants: list[Entrant], size: str, weights: Path, rounds: int, deed: Callable[[Process], dict[str, Any]]
) -> Iterator[tuple[Entrant, Process, list[float]]]:
    """Rates in tokens a second of each entrant, in rounds that go through all of them; the first round warms up."""
    with ExitStack() as stack:
        processes = [stack.enter_context(Process(entrant, size, weights)) for entrant in entrants]
        rates: list[list[float]] = [[] for _ in entrants]
        for number in range(rounds + 1):
            for place in range(len(processes)):
                turn = (place + number) % len(processes)  # nobody is always first, or always after the same one
                answer = deed(processes[turn])
                if number:
                    rates[turn].append(answer["tokens"] / answer["seconds"])
        yield from zip(entrants, processes, rates, strict=True)


def training(size: str, weights: Path, quick: bool, earlier: list[Entrant]) -> dict[str, Any]:
    """Measure the training of one size.

    Args:
        earlier: Earlier versions of seq2see, which must be able to read `weights`.
    """
    steps, rounds = 3, (2 if size == "base" and quick else 3 if size == "base" or quick else 7)
    rows = []
    entrants = [OURS, *earlier, *TRAINING[quick][1:]]
    if size == "base":  # all nine at once would need 37 GB
        entrants = [each for each in entrants if not each.tuned or each.module == "huggingface"]
    gflops: list[float] = []

    def deed(process: Process) -> dict[str, Any]:
        gflops.append(ceilings.products())  # between the turns: the machine's own rate drifts, too
        return process.ask("train", count=steps)

    for entrant, process, rates in interleaved(entrants, size, weights, rounds, deed):
        row = {"name": entrant.name, "rates": rates, "gigabytes": process.ask("memory")["gigabytes"]}
        say(f"training {size:<6} {entrant.name:<28} {median(rates):8.0f} target tokens/s  {row['gigabytes']:.2f} GB")
        rows.append(row)
    losses = {}
    for entrant in [each for each in entrants if each.module in ("ours", "huggingface", "torch_transformer")]:
        if not entrant.tuned and entrant not in earlier:
            with Process(entrant, size, weights) as process:
                losses[entrant.name] = process.ask("loss")["loss"]
    say(f"losses on the same weights, dropout off: {losses}")
    return {"rows": rows, "losses": losses, "gflops": median(gflops)}


def decoding(size: str, weights: Path) -> list[dict[str, Any]]:
    found = []
    for batch, beam in DECODINGS:
        rows = []
        asked = {"batch": batch, "beam": beam, "length": LENGTH}
        deed = partial(Process.ask, do="decode", **asked)
        for entrant, process, rates in interleaved(DECODING, size, weights, 3, deed):
            rows.append({"name": entrant.name, "rates": rates, "outputs": process.ask("decode", **asked)["outputs"]})
        first = rows[0]["outputs"]
        for row in rows:
            row["same"] = sum(a == b for a, b in zip(first, row.pop("outputs"), strict=True)) / len(first)
            say(
                f"decoding {size:<6} batch {batch:<3} beam {beam}  {row['name']:<28} {median(row['rates']):8.0f}"
                f" tokens/s  {row['same']:.0%} like ours in float32"
            )
        found.append({"batch": batch, "beam": beam, "rows": rows})
    return found


def mixed(size: str, weights: Path, quick: bool) -> list[dict[str, Any]]:
    """Sentences of mixed length to their natural end, through our own engine and through Hugging Face's."""
    count = 64 if quick or size == "base" else 128
    rows = []
    entrants = [*DECODING, HUGGING_FACE_TUNED]
    deed = partial(Process.ask, do="translate", count=count, beam=5)
    for entrant, process, rates in interleaved(entrants, size, weights, 2 if quick else 3, deed):
        right = process.ask("translate", count=count, beam=5)["right"]
        say(f"mixed {size:<6} beam 5  {entrant.name:<28} {median(rates):8.0f} tokens/s  {right:.0%} right")
        rows.append({"name": entrant.name, "rates": rates, "right": right})
    return rows


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer peers and rounds, no page: under ten minutes")
    parser.add_argument("--only", nargs="*", default=["training", "decoding", "translate"])
    parser.add_argument("--sizes", nargs="*", default=list(work.SIZES))
    parser.add_argument(
        "--before",
        action="append",
        default=[],
        type=lambda text: text.partition("=")[::2],
        metavar="NAME=CHECKOUT",
        help="An earlier version of seq2see, to be measured beside this one; it also makes the models with random "
        "weights, because this version reads its run folders.",
    )
    options = parser.parse_args()
    earlier = [
        Entrant(f"seq2see, {name}", "ours", ours=True, checkout=Path(path).absolute()) for name, path in options.before
    ]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # programs are compiled once, as they are for their users
    folder = HERE.parent / ".bench"
    saved = folder / "results.json"
    # Parts that are not asked for stay as they were measured last.
    results: dict[str, Any] = json.loads(saved.read_text()) if saved.exists() and not options.quick else {}

    def keep(part: str, size: str, found: Any) -> None:
        results.setdefault(part, {})[size] = found
        results.setdefault("circumstances", {}).setdefault(part, {})[size] = here
        if not options.quick:
            saved.write_text(json.dumps(results, indent=1))

    here = page.circumstances({"gflops": ceilings.products(), "gigabytes_per_second": ceilings.reads()}, PEERS)
    say(here)
    for size in options.sizes:
        weights = random_run(folder, size, earlier)
        copying = prepare.copying_run(folder / f"{size}-copying", work.SIZES[size])
        if "training" in options.only:
            keep("training", size, training(size, weights, options.quick, earlier))
        if options.quick and size == "base":
            continue  # training alone: the rest of it takes a quarter of an hour
        if "decoding" in options.only:
            keep("decoding", size, decoding(size, weights))
            keep("mixed", size, mixed(size, copying, options.quick))
        if "translate" in options.only:
            rounds, lines = (2, 300) if options.quick else (5, 1000 if size == "small" else 200)
            keep("translate", size, translate.compare(copying, work.SIZES[size], PEERS, rounds, lines, say))
    if not options.quick:
        page.write(results, HERE.parent / "docs")


def random_run(folder: Path, size: str, earlier: list[Entrant]) -> Path:
    """Return a run folder with random weights that this version and the earlier ones can read.

    The first of the earlier versions makes it.
    """
    if not earlier:
        return prepare.random_run(folder / size, work.SIZES[size])
    path, checkout = folder / f"{size} by {earlier[0].name}", earlier[0].checkout
    make = (
        "import sys, pathlib; from bench import prepare, work; "
        "prepare.random_run(pathlib.Path(sys.argv[1]), work.SIZES[sys.argv[2]])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "src")])}
    subprocess.run([sys.executable, "-c", make, str(path), size], cwd=checkout, env=environment, check=True)
    return path


if __name__ == "__main__":
    main()
