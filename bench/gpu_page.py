"""`python -m bench.gpu_page FILE...` writes docs/benchmarks-gpu.md from results of `bench.gpu` and others.

Several files of `bench.gpu` may hold different sizes or parts; where two hold the same, the first counts. The cost of
the paper's trainings is computed from the measured throughput. Files of `bench.gpu_profile` and
`bench.gpu_first_minute` have parts of their own on the page. A part that no file belongs to stays as it is.
"""

import json
import re
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
PAGE = Path("docs/benchmarks-gpu.md")
REASONS = {
    "matrix multiplications": "the lower bound is their FLOPs at the speed of large ones; small ones are slower",
    "attention, backward": "two kernels, which compute the weights of the softmax again",
    "attention, forward": "tiles of 32 or 64 rows, while sentences have about 25",
    "residual, dropout and norm": "bandwidth: the rows of each sublayer are read and written once",
    "bias and column sums": "bandwidth: the gradients of outputs are read for those of biases, and masked for ReLU",
    "other elementwise": "sums of gradients: of branches, and of each micro-batch into `grad`",
    "gradient of the loss": "bandwidth: all scores over the vocabulary are read twice and written once",
    "GPU idle (step less all kernels)": "between kernels, and between the micro-batches of a step",
    "split-K sums of them": "of matrix multiplications whose inner dimension is split among thread blocks",
    "casts and copies": "of activations, and parts of joint projections",
    "casts of all weights and gradients": "bandwidth: weights to bfloat16, gradients back to float32",
    "optimizer": "bandwidth: weights, gradients and both moments",
}
"""What the time of a group of kernels is spent on."""


def write(files: list[Path]) -> None:
    """Replace the parts of the page that these files hold the numbers of."""
    results = [json.loads(file.read_text()) for file in files]
    tables = [each for each in results if "sizes" in each]
    profiles = [each for each in results if isinstance(each, dict) and "sizes" not in each]
    minutes = [row for each in results if isinstance(each, list) for row in each]
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (
        ("tables", _tables(tables, text) if tables else []),
        ("account", [line for each in profiles for line in _account(each)]),
        ("first minute", _first_minute(minutes, text) if minutes else []),
    ):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if lines:
            part = begin + "\n".join([*lines, end])
            text = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _, part=part: part, text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")


def _account(profile: dict[str, Any]) -> list[str]:
    """Return the time of each group of kernels above the lower bound."""
    lines = []
    for size in (name for name in STEPS if name in profile):
        found = profile[size]
        step, floor = found["step_ms"], found["matrix_floor_ms"]
        lines += [
            f"## Time above the lower bound of the FLOPs, {size}",
            "",
            f"{profile['gpu']}, torch {profile['torch']}, by `python -m bench.gpu_profile`: a step takes",
            f"{step:.1f} ms. Its FLOPs, those of attention included, take {floor:.1f} ms ({floor / step:.1%}) at",
            f"{profile['tflops']:.0f} TFLOP/s; the table says what takes the other {step - floor:.1f} ms.",
            "",
            "| ms | above the lower bound | kernels | |",
            "|---|---|---|---|",
        ]
        for group, row in found["groups"].items():
            above = row["ms"] - floor * (group == "matrix multiplications")
            shares = f"{above:.2f} ({above / (step - floor):.1%})"
            reason = f": {REASONS[group]}" if group in REASONS else ""
            lines.append(f"| {row['ms']:.2f} | {shares} | {row['times']:.0f} | {group}{reason} |")
        lines.append("")
    return lines


def _first_minute(rows: list[dict[str, Any]], page: str) -> list[str]:
    """Return the lines of the page about the seconds to full speed and to the finished model; measurements of other
    versions are taken from the present page.
    """
    lines = [
        "## The first minute of a training",
        "",
        "Seconds from the command, by `python -m bench.gpu_first_minute`, until the settings are printed (before",
        "that, PyTorch is imported, the corpus is read, and tokenizers are trained and applied), until the first",
        "update is done, and until throughput reaches 90 % of its final median. First time: the folder of compiled",
        "kernels is empty; second time: it is full. 0.1.0 is the first release, other versions are commits; the",
        "[log](log.md) says what changed between them. Short pairs: 3,600 generated pairs of 3 to 20 words. A dash:",
        "the measurement ended before that.",
        "",
        "| | version | settings | first update | full speed | settings to full speed | finished model |",
        "|---|---|---|---|---|---|---|",
    ]
    present = page.partition("<!-- first minute -->")[2].partition("<!-- end of first minute -->")[0].splitlines()
    versions = {row["version"] for row in rows}
    lines += [line for line in present if " time | " in line and line.split(" | ")[1] not in versions]
    for row in rows:
        began, full = row["first"].get("Began"), row["full_speed"]
        ready = None if began is None or full is None else full - began
        whole = row["seconds"] if row["finished"] else None
        values = [began, row["first"].get("Stepped"), full, ready, whole]
        cells = " | ".join("-" if value is None else f"{value:.1f}" for value in values)
        lines.append(f"| {row['corpus']}, {row['turn']} time | {row['version']} | {cells} |")
    return [*lines, ""]


def _tables(measured: list[dict[str, Any]], page: str) -> list[str]:
    """Return training, decoding and profile of each size; a section about decoding that was not measured again is taken
    from the present page.
    """
    first = measured[0]
    lines = [
        "Written by `python -m bench.gpu_page` from `python -m bench.gpu`: all systems of a table take turns in",
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
                known, _ = found.setdefault(name, {}).setdefault(part, (rows, each))
                if part == "training" and known is not rows:  # of another version of seq2see, in a process of its own
                    assert each["version"] not in known, "name other versions with --name of bench.gpu"
                    known[each["version"]] = rows["seq2see"] | {"ceiling": each["tflops"]}
    for name, parts in found.items():
        if "training" in parts:
            lines += _training(name, *parts["training"])
        if "decoding" in parts:
            lines += _decoding(name, *parts["decoding"])
        elif kept := re.search(rf"^## Decoding, {name}\n.*?(?=^## |^<!-- )", page, flags=re.DOTALL | re.MULTILINE):
            lines += [*kept[0].rstrip().splitlines(), ""]
        if "profile" in parts:
            lines += _profile(name, parts["profile"][0])
    lines += _paper({name: parts["training"][0] for name, parts in found.items() if "training" in parts})
    return lines


def _training(name: str, rows: dict[str, Any], run: dict[str, Any]) -> list[str]:
    ours = median(rows["seq2see"]["rates"])
    lines = [
        f"## Training, {name}",
        "",
        "A step has 25,000 source tokens and 25,000 target tokens, in sentences of mixed length; vocabulary 37,000,",
        "dropout 0.1, Adam, weights in float32. The share is the model's FLOP/s, padding not counted, divided by the",
        f"{run['tflops']:.0f} TFLOP/s that multiplying matrices reached in the same process. The warm-up is the time",
        "of the first rounds; for seq2see it is mostly Triton's compiler, whose output is cached for the next run. A",
        "row for an earlier version of seq2see was measured in a process of its own on the same machine.",
        "",
        "| | thousand target tokens/s | seq2see relative to it | share | warm-up |",
        "|---|---|---|---|---|",
    ]
    for each, row in rows.items():
        low, rate, high = (scale(row["rates"]) / 1e3 for scale in (min, median, max))
        share, warm = row["tflops"] / row.get("ceiling", run["tflops"]), sum(row["warm_up_seconds"])
        lines.append(
            f"| {each} | {rate:.0f} ({low:.0f} to {high:.0f}) | {ours / 1e3 / rate:.2f}x | {share:.1%} | {warm:.1f} s |"
        )
    return [*lines, ""]


def _decoding(name: str, rows: list[dict[str, Any]], run: dict[str, Any]) -> list[str]:
    lines = [
        f"## Decoding, {name}",
        "",
        "30 tokens in, 30 out, random weights, bfloat16, compared with Hugging Face's `generate`; output tokens/s.",
        "Bandwidth: the bytes that a step must read (weights once, cached keys and values), divided by the time of",
        "the step; in brackets, the share of the measured ceiling.",
        "",
        "| batch | beam | seq2see | Hugging Face | seq2see relative to it | bandwidth of seq2see, GB/s |",
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
        f"summed in float32 at {LINK / 1e9:.0f} GB/s after the backward pass, without overlap: a pessimistic estimate.",
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
    write([Path(file) for file in sys.argv[1:]])
