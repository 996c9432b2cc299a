"""`docs/benchmarks.md` and its picture, from what was measured last; tables that were not measured stay as they are."""

import datetime
import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import torch

from bench import work
from seq2see.lab.circumstances import processor

matplotlib.use("agg")

import matplotlib.pyplot as plt

PACKAGES = ("torch", "transformers", "x-transformers", "joeynmt", "ctranslate2")


def write(results: dict[str, Any], docs: Path) -> None:
    """Replace the tables that `results` has, and the picture if it has the training of all sizes.

    Args:
        results: What was measured, by part and size; `circumstances` has the date and machine of each.
    """
    file = docs / "benchmarks.md"
    present = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m bench`, whole or in parts (`--only`, `--sizes`). All systems of a table are measured",
        "in one run, each in its own process, in rounds that go through all of them: medians, with the slowest and",
        "the fastest round in brackets. Numbers of different tables cannot be compared.",
        "",
        "![Training throughput beside peers](benchmarks.png)",
        "",
    ]
    for part, told in PARTS.items():
        for size in work.SIZES:
            heading = f"## {TITLES[part]}, {size}"
            if size in results.get(part, {}):
                measured = results["circumstances"][part][size]
                lines += [heading, "", measured, "", *told(size, results[part][size])]
            elif kept := re.search(rf"^{re.escape(heading)}\b.*?(?=^## |\Z)", present, re.DOTALL | re.MULTILINE):
                lines.append(kept[0].rstrip() + "\n")
    file.write_text("\n".join(lines), encoding="utf-8")
    if set(results.get("training", {})) == set(work.SIZES):
        _draw(results["training"], docs / "benchmarks.png")


def circumstances(ceilings: dict[str, float], peers: Path) -> str:
    """Return a sentence about the date, the machine, its measured ceilings, and the versions of all systems."""
    return (
        f"Measured on {datetime.date.today()}: {processor()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {_versions(peers)}; ceilings {ceilings['gflops']:.0f} GFLOP/s (float32 matrix "
        f"multiplication, PyTorch) and {ceilings['gigabytes_per_second']:.0f} GB/s (reading memory)."
    )


def _training(size: str, found: dict[str, Any]) -> list[str]:
    shape = work.SIZES[size]
    ours = median(found["rows"][0]["rates"])
    lines = [
        f"{shape.layers} + {shape.layers} layers, d_model {shape.d_model}, {shape.heads} heads, d_ff {shape.d_ff}, "
        f"{shape.vocabulary:,} tokens; float32, the same batches of {work.BATCH_TOKENS:,} tokens (source and target) "
        "with sentences of similar length, dropout 0.1, label smoothing 0.1, forward + backward + AdamW (seq2see: "
        'Adam, and the gradient norm). "As its Trainer": fused AdamW and the same pairs in random batches, as '
        'Seq2SeqTrainer does unless told otherwise. "Tuned": fused AdamW, and `malloc` set to keep freed memory. '
        "nn.Transformer (unless tuned) and JoeyNMT also apply dropout to attention weights and feed-forward "
        "activations. Share of ceiling: 6 x weights x target tokens operations per second (attention and padding not "
        "counted), relative to "
        f"{found['gflops']:.0f} GFLOP/s, the speed of matrix multiplication measured between the turns.",
        "",
        "| | target tokens/s | seq2see relative to it | share of ceiling | peak memory |",
        "|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        rate = median(row["rates"])
        share = 6 * shape.weights_per_pair * rate / 1e9 / found["gflops"]
        lines.append(
            f"| {row['name']} | {_spread(row['rates'])} | {ours / rate:.2f}x | {share:.0%} "
            f"| {row['gigabytes']:.2f} GB |"
        )
    losses = ", ".join(f"{name} {loss:.6f}" for name, loss in found["losses"].items())
    return [*lines, "", f"The same loss on the same weights and batch, dropout off: {losses}.", ""]


def _decoding(size: str, found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "25 tokens in, 25 out. Random weights, the same for all systems; the end token is forbidden. Output tokens/s.",
        "",
        "| batch | beam | | tokens/s | relative to Hugging Face | same output as seq2see in float32 |",
        "|---|---|---|---|---|---|",
    ]
    for table in found:
        theirs = median(table["rows"][-1]["rates"])
        for row in table["rows"]:
            times = median(row["rates"]) / theirs
            lines.append(
                f"| {table['batch']} | {table['beam']} | {row['name']} | {_spread(row['rates'])} | {times:.2f}x "
                f"| {row['same']:.0%} |"
            )
    return [*lines, ""]


def _mixed(size: str, rows: list[dict[str, Any]]) -> list[str]:
    theirs = max(median(row["rates"]) for row in rows if row["name"].startswith("Hugging Face"))
    lines = [
        "Sentences to their natural end, 2 to 100 tokens, beam 5; all systems have the same handmade weights,",
        "which copy the source. Hugging Face: batches of 32 sentences in the given order; tuned: sorted by length,",
        "with `early_stopping` (a search ends when five hypotheses are finished).",
        "",
        "| | tokens/s | relative to the fastest Hugging Face | right |",
        "|---|---|---|---|",
    ]
    for row in rows:
        times = median(row["rates"]) / theirs
        lines.append(f"| {row['name']} | {_spread(row['rates'])} | {times:.2f}x | {row['right']:.1%} |")
    return [*lines, ""]


def _translate(size: str, found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['lines']:,} lines of mixed length. The whole command with the default engine (CTranslate2, int8) and",
        "beam 5, including start-up, reading, sorting, batching and writing, and a script that calls CTranslate2",
        "directly with the fastest of six batch sizes and one worker thread for each core. Every line of both outputs",
        "is right.",
        "",
        "| | seconds |",
        "|---|---|",
    ]
    lines += [f"| {row['name']} | {_spread(row['seconds'], 2)} |" for row in found["rows"]]
    return [*lines, ""]


def _spread(numbers: list[float], digits: int = 0) -> str:
    return f"{median(numbers):,.{digits}f} ({min(numbers):,.{digits}f}-{max(numbers):,.{digits}f})"


def _versions(peers: Path) -> str:
    asked = f"import importlib.metadata as m; print(*(n + ' ' + m.version(n) for n in {PACKAGES}), sep=', ')"
    found = subprocess.run([str(peers), "-c", asked], capture_output=True, text=True, check=True)
    return f"{found.stdout.strip()}; ours: torch {torch.__version__}"


def _draw(training: dict[str, Any], path: Path) -> None:
    """Draw the training throughput: a bar for each candidate, with its rounds as dots."""
    figure, axes = plt.subplots(1, len(training), figsize=(12, 3.6), layout="constrained")
    for axis, (size, found) in zip(axes.flat, training.items(), strict=True):
        names = [row["name"] for row in found["rows"]]
        colours = ["#2563eb" if name.startswith("seq2see") else "#b8bec9" for name in names]
        axis.barh(names, [median(row["rates"]) for row in found["rows"]], color=colours, height=0.7)
        for place, row in enumerate(found["rows"]):
            axis.plot(row["rates"], [place] * len(row["rates"]), ".", color="#1f2937", markersize=3)
        axis.invert_yaxis()
        axis.set_title(f"training, {size}", loc="left", fontsize=11)
        axis.set_xlabel("target tokens per second")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


PARTS: dict[str, Callable[[str, Any], list[str]]] = {
    "training": _training,
    "decoding": _decoding,
    "mixed": _mixed,
    "translate": _translate,
}
"""The page, part by part: functions (size, what was measured) that return the lines below a heading."""
TITLES = {
    "training": "Training",
    "decoding": "Decoding, fixed length",
    "mixed": "Decoding, mixed lengths",
    "translate": "`seq2see translate`",
}
"""The heading of each part, without the size."""
