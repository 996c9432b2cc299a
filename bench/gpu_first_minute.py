"""Measure the first minute of a training on a GPU: `python -m bench.gpu_first_minute [--source DIR] [--out FILE]`.

Starts `python -m seq2see train` with an empty folder for compiled kernels, and once more with the filled one, on 3,600
generated pairs of 3 to 20 words, and on Multi30k where `build/corpora` has its files (train.en, train.de, val.en and
val.de, or .gz of them). Reports, in seconds from the command: the first update; when throughput first reached 90 % of
its final median, and held it over half of the following windows of `WINDOW` updates; and the end of the process. If the
first training is ended before all of its updates and the second is not, the final median is that of the second.

To compare two versions, `--source` names the `src` folder of another one; `--out` is extended, not overwritten.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench import corpus

PAIRS = 3600
WINDOW = 10
"""Updates between two measurements of throughput."""
SPEED = 0.9
CORPORA = ["short pairs", "Multi30k"]
WATCHED = """
import json, sys, time
record = open(sys.argv.pop(1), "w")
from seq2see.cli import display
shown = display.Display.show
def show(self, event):
    row = {"at": time.time(), "kind": type(event).__name__, "rate": getattr(event, "tokens_per_second", None)}
    print(json.dumps(row | {"step": getattr(event, "step", None)}), file=record, flush=row["kind"] != "Stepped")
    shown(self, event)
display.Display.show = show
import runpy
runpy.run_module("seq2see", run_name="__main__", alter_sys=True)
"""
"""The command line, with a record of the time of each event.

Do not sample the stacks of its threads as well: that made the capture of CUDA graphs fail (docs/log.md).
"""


def measure(pairs: list[str], source: Path, folder: Path, cache: Path, limit: float) -> dict[str, Any]:
    """Train once, for at most `limit` seconds, and return the seconds from the command to each milestone."""
    record = folder / "events.jsonl"
    words = [sys.executable, "-c", WATCHED, str(record)]
    words += ["train", *pairs, "--out", str(folder / "run"), "--force"]
    words += ["--set", f"training.log_every={WINDOW}", "--set", "training.max_minutes=3"]
    caches = {"TRITON_CACHE_DIR": str(cache / "triton"), "CUDA_CACHE_PATH": str(cache / "cuda")}
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    environment = os.environ | caches | {"PYTHONPATH": path}
    began = time.time()
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        _, said = process.communicate(timeout=limit)
        finished = process.returncode == 0
        if not finished:
            sys.stderr.write(said.decode(errors="replace")[-2000:])
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        finished = False
    whole = time.time() - began
    rows = [json.loads(line) for line in record.read_text().splitlines() if line.endswith("}")]
    return {"finished": finished, "seconds": whole} | milestones(rows, began)


def milestones(rows: list[dict[str, Any]], began: float) -> dict[str, Any]:
    """Return the seconds of the first event of each kind, and of full speed."""
    found: dict[str, Any] = {"first": {}, "updates": 0, "tokens_per_second": None, "full_speed": None}
    for row in rows:
        found["first"].setdefault(row["kind"], row["at"] - began)
        found["updates"] = max(found["updates"], row["step"] or 0)
    speeds = [(row["at"] - began, row["rate"]) for row in rows if row["kind"] == "Trained"]
    if len(speeds) < 4:
        return found
    found["tokens_per_second"] = median(rate for _, rate in speeds[len(speeds) // 2 :])
    found["full_speed"] = full_speed(speeds, found["tokens_per_second"])
    found["windows"] = [(round(at, 2), round(rate)) for at, rate in speeds]
    return found


def full_speed(speeds: list[tuple[float, float]], final: float) -> float | None:
    """Return the seconds after which throughput reaches a share of `SPEED` of `final`, and mostly stays there."""
    fast = [rate >= SPEED * final for _, rate in speeds]
    for place, (at, _) in enumerate(speeds):
        following = fast[place : place + 10]
        if fast[place] and 2 * sum(following) > len(following):
            return at
    return None


def correct_unfinished(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Set the time of full speed of a training that was ended before all updates, by the throughput of another one."""
    if "Finished" not in first["first"] and "Finished" in second["first"] and second["tokens_per_second"]:
        first["full_speed"] = full_speed(first.get("windows", []), second["tokens_per_second"])


def corpora(folder: Path) -> dict[str, list[str]]:
    """Return the arguments that name each corpus."""
    generated = folder / "pairs.tsv"
    corpus.write(PAIRS, generated, seed=1)
    found = {"short pairs": [str(generated)]}
    for suffix in ("", ".gz"):
        files = [Path("build/corpora") / f"{name}{suffix}" for name in ("train.en", "train.de", "val.en", "val.de")]
        if all(file.exists() for file in files):
            train, valid = (f"{one},{other}" for one, other in (files[:2], files[2:]))
            found["Multi30k"] = [train, "--valid", valid]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path("src"))
    parser.add_argument("--name", default="now", help="Name of this version in the results.")
    parser.add_argument("--corpora", nargs="*", default=CORPORA, choices=CORPORA)
    parser.add_argument(
        "--limits",
        type=float,
        nargs=2,
        default=[50, 120],
        metavar=("FIRST", "SECOND"),
        help="Seconds after which the first and the second training are ended.",
    )
    parser.add_argument("--out", type=Path, default=Path(".bench/gpu_first_minute.json"))
    options = parser.parse_args()
    results: list[dict[str, Any]] = json.loads(options.out.read_text()) if options.out.exists() else []
    began = time.time()  # reading PyTorch from a disk that has never been read is not ours to shorten
    subprocess.run([sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], check=True)
    print(f"import of PyTorch and start of CUDA, before everything else: {time.time() - began:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each, pairs in corpora(folder).items():
            if each not in options.corpora:
                continue
            for turn, limit in zip(("first", "second"), options.limits, strict=True):
                cache = folder / f"cache {each}"
                row = measure(pairs, options.source.absolute(), folder, cache, limit)
                results.append({"version": options.name, "corpus": each, "turn": turn} | row)
                first, full, speed = (row["first"].get("Stepped"), row["full_speed"], row["tokens_per_second"])
                told = [f"{value:.1f} s" if value is not None else "-" for value in (first, full, row["seconds"])]
                print(
                    f"{options.name}, {each}, {turn} time: first update {told[0]}, full speed {told[1]}, "
                    f"{'finished model' if row['finished'] else 'ended unfinished'} {told[2]}, "
                    f"{row['updates']:,} updates, {speed or 0:,.0f} tokens/s; first of each event: "
                    + ", ".join(f"{kind} {value:.1f}" for kind, value in row["first"].items()),
                    flush=True,
                )
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(results, indent=1))
            correct_unfinished(*results[-2:])
            options.out.write_text(json.dumps(results, indent=1))
            full = results[-2]["full_speed"]
            seconds = "not reached" if full is None else f"after {full:.1f} s"
            print(f"{options.name}, {each}, first time, by the final throughput: full speed {seconds}", flush=True)


if __name__ == "__main__":
    main()
