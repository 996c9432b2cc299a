"""`python -m bench.gpu_page FILE...` writes docs/benchmarks-gpu.md from the results of `python -m bench.gpu`.

Several files may hold different sizes or parts; where two hold the same, the first counts. The cost of the paper's
trainings is computed from the measured throughput.
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

STEPS = {"base": 100_000, "big": 300_000}
STEP_TOKENS = 25_000
"""Source tokens and target tokens of one step, each (paper, sections 5.1 and 5.3)."""
HOURS_THEN = {"base": 12, "big": 84}
"""Hours of training on eight P100 GPUs (paper, section 5.2)."""
WEIGHTS = {"base": 65_000_000, "big": 213_000_000}
GPUS = 8
LINK = 400e9
"""Bytes per second that a GPU sends to the others in its machine: the 450e9 of NVLink 4, less overhead."""


def write(measured: list[dict[str, Any]], path: Path) -> None:
    first = measured[0]
    lines = [
        "# On a GPU",
        "",
        "Written by `python -m bench.gpu_page` from `python -m bench.gpu`: all candidates of a table take turns in",
        "one process; medians, with the slowest and the fastest round in brackets. Computed in bfloat16.",
        "",
        f"{first['gpu']}, torch {first['torch']}; measured ceilings: {first['tflops']:.0f} TFLOP/s (matrices of",
        f"8192 x 8192 multiplied in bfloat16), {first['gigabytes_per_second']:.0f} GB/s (reading).",
        "",
    ]
    found: dict[str, dict[str, Any]] = {}
    for each in measured:
        for name, parts in each["sizes"].items():
            for part, rows in parts.items():
                found.setdefault(name, {}).setdefault(part, (rows, each))
    for name, parts in found.items():
        if "training" in parts:
            lines += _training(name, *parts["training"])
        if "decoding" in parts:
            lines += _decoding(name, *parts["decoding"])
        if "profile" in parts:
            lines += _profile(name, parts["profile"][0])
    lines += _paper({name: parts["training"][0] for name, parts in found.items() if "training" in parts})
    path.write_text("\n".join(lines), encoding="utf-8")


def _training(name: str, rows: dict[str, Any], run: dict[str, Any]) -> list[str]:
    ours = median(rows["seq2see"]["rates"])
    lines = [
        f"## Training, {name}",
        "",
        "Steps of 25,000 + 25,000 tokens, sentences of mixed length, vocabulary 37,000, dropout 0.1, Adam. Share:",
        f"of the {run['tflops']:.0f} TFLOP/s above, padding not counted; weights in float32. Warm-up: the",
        "first rounds; for seq2see mostly Triton's compiler, whose output is cached for the next run.",
        "",
        "| | thousand target tokens/s | seq2see is | share | warm-up |",
        "|---|---|---|---|---|",
    ]
    for each, row in rows.items():
        low, rate, high = (scale(row["rates"]) / 1e3 for scale in (min, median, max))
        share, warm = row["tflops"] / run["tflops"], sum(row["warm_up_seconds"])
        lines.append(
            f"| {each} | {rate:.0f} ({low:.0f} to {high:.0f}) | {ours / 1e3 / rate:.2f}x | {share:.1%} | {warm:.1f} s |"
        )
    return [*lines, ""]


def _decoding(name: str, rows: list[dict[str, Any]], run: dict[str, Any]) -> list[str]:
    lines = [
        f"## Decoding, {name}",
        "",
        "30 tokens in, 30 out, random weights, bfloat16, compared with Hugging Face's `generate`; output tokens/s.",
        "Bandwidth: the bytes that a step must read (weights once, cached keys and values), divided by its time.",
        "",
        "| batch | beam | seq2see | Hugging Face | seq2see is | bandwidth, GB/s |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        mine, theirs = (row["rates"][each] for each in ("seq2see", "Hugging Face"))
        ours, peers = (f"{median(each):,.0f} ({min(each):,.0f} to {max(each):,.0f})" for each in (mine, theirs))
        share = row["gigabytes_per_second"] / run["gigabytes_per_second"]
        lines.append(
            f"| {row['batch']} | {row['beam']} | {ours} | {peers} | {median(mine) / median(theirs):.1f}x | "
            f"{row['gigabytes_per_second']:.0f} ({share:.0%}) |"
        )
    return [*lines, ""]


def _profile(name: str, rows: list[dict[str, Any]], most: int = 14) -> list[str]:
    whole, *kernels = rows
    lines = [
        f"## Where a training step's time goes, {name}",
        "",
        f"{whole['ms']:.1f} ms of GPU time in {whole['times']:.0f} kernels; the longest:",
        "",
        "| ms | times | kernel |",
        "|---|---|---|",
    ]
    lines += [f"| {row['ms']:.2f} | {row['times']:.0f} | `{row['kernel'][:70]}` |" for row in kernels[:most]]
    return [*lines, ""]


def _paper(trainings: dict[str, dict[str, Any]]) -> list[str]:
    """Return the section with the hours of the paper's trainings on one GPU, and on eight that share each step."""
    lines = [
        "## What the paper's trainings would cost (estimate)",
        "",
        "Steps of 25,000 + 25,000 tokens; on eight GPUs, each computes an eighth of every step, and the gradients are",
        f"summed in float32 at {LINK / 1e9:.0f} GB/s, after the backward pass, without overlap: the worse case.",
        "",
        "| | steps | one GPU, hours | eight GPUs, hours | the paper, eight P100 |",
        "|---|---|---|---|---|",
    ]
    for name, rows in trainings.items():
        step = STEP_TOKENS / median(rows["seq2see"]["rates"])
        around = 2 * (GPUS - 1) / GPUS * 4 * WEIGHTS[name] / LINK
        hours = [STEPS[name] * seconds / 3600 for seconds in (step, step / GPUS + around)]
        lines.append(f"| {name} | {STEPS[name]:,} | {hours[0]:.1f} | {hours[1]:.2f} | {HOURS_THEN[name]} |")
    return [*lines, ""]


if __name__ == "__main__":
    write([json.loads(Path(file).read_text()) for file in sys.argv[1:]], Path("docs/benchmarks-gpu.md"))
