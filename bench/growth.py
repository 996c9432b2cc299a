"""Measure how time and memory grow: `python -m bench.growth measure`, then `python -m bench.growth page FILE...`.

`measure` takes training steps (the functions that `seq2see train` uses) on this machine's GPU, or on its CPU
with `--cpu`, while one thing grows and all else stays:

length       one pair of sentences, both so long
batch        pairs of 32 tokens
vocabulary   words, for 64 pairs of 32 tokens
depth        layers of each stack, for 64 pairs of 32 tokens
corpus       pairs in a file, from `seq2see train FILE` to its second step; processor only

Seconds are medians; memory is the peak beyond weights and Adam's moments (of `corpus`: of all processes together).
`page` writes docs/growth.md and its picture from what was measured, with an exponent fitted to the upper half.
"""

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from seq2see.config import Training
from seq2see.lab.circumstances import processor
from seq2see.machine import keep_freed_memory
from seq2see.model.transformer import Transformer
from seq2see.tokens.batches import Batch
from seq2see.training import loop
from seq2see.training.optimizer import Adam

VALUES = {
    "length": [128, 256, 512, 1024, 2048, 4096, 8192],
    "batch": [16, 32, 64, 128, 256, 512, 1024],
    "vocabulary": [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000],
    "depth": [1, 2, 4, 8, 16, 32],
    "corpus": [10_000, 100_000, 1_000_000],
}
USUAL = {"length": 32, "batch": 64, "vocabulary": 8_000, "depth": 3}
SIZES = {
    "cpu": {"d_model": 128, "heads": 4, "d_ff": 512},
    "cuda": {"d_model": 512, "heads": 8, "d_ff": 2048},
}
SMALLEST = (
    "training.max_steps=2", "training.batch_tokens=256", "data.validation_pairs=2", "decoding.beam=1",
    "decoding.max_extra=1", "model.d_model=16", "model.heads=2", "model.d_ff=32", "model.encoder_layers=1",
    "model.decoder_layers=1",
)  # fmt: skip
STEPS = {"cpu": 3, "cuda": 9}
SECONDS = 20.0
"""Seconds after which no further steps of a size are measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("--axes", nargs="*", default=list(VALUES), choices=list(VALUES))
    measuring.add_argument("--cpu", action="store_true")
    measuring.add_argument("--pairs", nargs="*", type=int, default=VALUES["corpus"], help="sizes of the corpus")
    measuring.add_argument("--out", type=Path, required=True)
    one = verbs.add_parser("one", help="one value, on the processor; for `measure`")
    one.add_argument("axis")
    one.add_argument("value", type=int)
    writing = verbs.add_parser("page")
    writing.add_argument("files", nargs="+", type=Path)
    asked = parser.parse_args()
    if asked.verb == "page":
        write_page([json.loads(file.read_text()) for file in asked.files], Path("docs"))
    elif asked.verb == "one":
        print(json.dumps(measure_one(asked.axis, asked.value, "cpu")))
    else:
        measure(asked.axes, "cpu" if asked.cpu or not torch.cuda.is_available() else "cuda", asked.pairs, asked.out)


def measure(axes: list[str], device: str, pairs: list[int], out: Path) -> None:
    found: dict[str, Any] = {"device": device, "machine": _machine(device), "torch": torch.__version__, "axes": {}}
    out.parent.mkdir(parents=True, exist_ok=True)
    for axis in axes:
        rows: list[dict[str, float]] = []
        for value in pairs if axis == "corpus" else VALUES[axis]:
            if axis == "corpus" and device == "cuda":
                continue
            try:
                rows.append(_measured(axis, value, device))
            except (torch.OutOfMemoryError, subprocess.CalledProcessError):  # one on a processor is killed
                break
            row = rows[-1]
            print(f"{axis:10} {value:10,} {row['seconds']:10.4f} s {row['bytes'] / 2**20:10.1f} MB", flush=True)
        found["axes"][axis] = rows
        out.write_text(json.dumps(found, indent=1))


def _measured(axis: str, value: int, device: str) -> dict[str, float]:
    if axis == "corpus":
        return _corpus(value)
    if device == "cuda":
        return measure_one(axis, value, device)
    # In a process of its own: what is freed on a processor is not given back.
    words = [sys.executable, "-m", "bench.growth", "one", axis, str(value)]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(said)  # type: ignore[no-any-return]


def measure_one(axis: str, value: int, device: str) -> dict[str, float]:
    """Return the seconds of a step, and the bytes beyond weights and Adam's moments."""
    sizes = USUAL | {axis: value} | ({"batch": 1} if axis == "length" else {})
    seconds, more = _step(sizes, device)
    return {"value": value, "seconds": seconds, "bytes": more}


def _step(sizes: dict[str, int], device: str) -> tuple[float, float]:
    torch.manual_seed(1)
    keep_freed_memory()
    before = _memory(device)
    V, L, B, layers = sizes["vocabulary"], sizes["length"], sizes["batch"], sizes["depth"]
    model = Transformer(V, V, encoder_layers=layers, decoder_layers=layers, **SIZES[device]).to(device).train()
    settings = Training(precision="bfloat16" if device == "cuda" else "float32")
    optimizer = Adam(model.parameters(), settings)
    learn = loop.fastest_passes(model, settings)
    offsets = torch.arange(0, (B + 1) * L, L)
    batch = Batch(torch.randint(4, V, (B * L,)), offsets, torch.randint(4, V, (B * L,)), offsets)
    times: list[float] = []
    begun = time.perf_counter()
    # A GPU's step is recorded when its shape comes a second time.
    while len(times) < STEPS[device] + 3 and (len(times) < 4 or time.perf_counter() - begun < SECONDS):
        began = time.perf_counter()
        loop.update(model, optimizer, [batch], settings, 1e-5, learn)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    kept = 3 * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    more = _peak(device) - before - kept
    del model, optimizer, learn
    gc.collect()
    return median(times[3:]), float(max(more, 1))


def _memory(device: str) -> int:
    """Return the bytes in use, and reset the peak counter."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    return _status("VmRSS")


def _peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def _corpus(pairs: int) -> dict[str, float]:
    """Return the seconds of `seq2see train`, and the peak memory of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.tsv"
        subprocess.run([sys.executable, "-m", "bench.corpus", str(pairs), str(file)], check=True)
        words = [sys.executable, "-m", "seq2see", "train", str(file), "--out", f"{folder}/run", "--json"]
        for setting in SMALLEST:  # so that the figures are those of the data
            words += ["--set", setting]
        most, began = 0, time.perf_counter()
        training = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
        while training.poll() is None:
            most = max(most, _held_by(training.pid))
            time.sleep(0.3)
        assert training.returncode == 0
        return {"value": pairs, "seconds": time.perf_counter() - began, "bytes": most}


def _held_by(session: int) -> int:
    """Anonymous memory of all processes of a session."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(") ")[2].split()[3]) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
        except (OSError, IndexError):  # it ended meanwhile
            continue
    return total


def _machine(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"{processor()}, {os.cpu_count()} cores"


def exponent(rows: list[dict[str, float]], what: str) -> float:
    """b of what ~ value^b, fitted to the larger half of the values."""
    upper = rows[-max(2, math.ceil(len(rows) / 2)) :]
    values, found = (np.log([row[name] for row in upper]) for name in ("value", what))
    return float(np.polyfit(values, found, 1)[0])


def write_page(measured: list[dict[str, Any]], docs: Path) -> None:
    axes = [axis for axis in VALUES if any(each["axes"].get(axis) for each in measured)]
    lines = [
        "# How cost grows",
        "",
        "Written by `python -m bench.growth page` from `python -m bench.growth measure` on each machine.",
        "In each row one size of a training step grows: the tokens of both sentences of a single pair (length), the",
        "number of pairs of 32 tokens (batch), or the vocabulary or the layers of each stack with 64 such pairs.",
        "The row corpus is the time from `seq2see train` to its second step, by the number of pairs. Memory is the",
        "peak beyond weights and Adam's moments. The exponent b of *cost ~ size^b* is fitted to the larger half of",
        "the sizes.",
        "",
        "![Time and memory against what grows](growth.png)",
        "",
    ]
    for each in measured:
        sizes = ", ".join(f"{name} {value}" for name, value in SIZES[each["device"]].items())
        lines += [f"## {each['machine']}", "", f"torch {each['torch']}; {sizes}.", ""]
        lines += ["| | from | to | seconds | exponent | memory, MB | exponent |", "|---|---|---|---|---|---|---|"]
        for axis in axes:
            if not (rows := each["axes"].get(axis)):
                continue
            cells = [axis, f"{rows[0]['value']:,}", f"{rows[-1]['value']:,}"]
            for what, scale in (("seconds", 1.0), ("bytes", 2**20)):
                cells.append(f"{rows[0][what] / scale:.3g} to {rows[-1][what] / scale:.4g}")
                cells.append(f"{exponent(rows, what):.2f}")
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    docs.joinpath("growth.md").write_text("\n".join(lines), encoding="utf-8")
    _draw(measured, axes, docs / "growth.png")


def _draw(measured: list[dict[str, Any]], axes: list[str], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, len(axes), figsize=(3.1 * len(axes), 5.6), layout="constrained", squeeze=False)
    for column, axis in enumerate(axes):
        for row, (what, scale, unit) in enumerate((("seconds", 1.0, "seconds"), ("bytes", 2**20, "MB"))):
            place = grid[row][column]
            for each, colour in zip(measured, ("#0072b2", "#d55e00"), strict=False):
                if rows := each["axes"].get(axis):
                    values, found = [r["value"] for r in rows], [r[what] / scale for r in rows]
                    name = f"{'GPU' if each['device'] == 'cuda' else 'CPU'}: {exponent(rows, what):.2f}"
                    place.plot(values, found, "o-", color=colour, label=name, markersize=4)
            place.set(
                xscale="log", yscale="log", title=axis if row == 0 else None, ylabel=unit if column == 0 else None
            )
            place.grid(alpha=0.3)
            place.legend(title="exponent", fontsize=8, title_fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
