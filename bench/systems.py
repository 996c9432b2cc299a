"""The Transformer and the systems that it replaced on one corpus: equal parameters, equal steps, several seeds.

    python -m bench.systems run multi30k --train train.en,train.de --valid val.en,val.de --test test.en,test.de
        --tokenize none --steps 3000 --workers 12 --minutes 6 --out results.jsonl
    python -m bench.systems files dates FOLDER
    python -m bench.systems page results.jsonl --write docs/systems.md

`run` trains each system with each seed as `seq2see train --preset SYSTEM` does, in a process of its own, `--workers`
of them side by side. It scores the test set once with the finished model and beam 5, and appends a line of JSON to
`--out`. It skips what `--out` already has, and ends after `--minutes`; what has not ended then is left for the next
time: repeat the same command until it says that nothing is left. All systems have the steps, the batch and the
regularisation that the corpus suggests for a Transformer, and a width that gives them as many parameters; `--set`
changes all of them alike. With `--time-only`, it measures the CPU time of an update instead, in a minute or two.

`files` writes a built-in corpus as train.tsv, valid.tsv and test.tsv, for a machine without the package that makes it.
On a GPU, runs side by side are several times faster with NVIDIA's MPS (`nvidia-cuda-mps-control -d`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2see.run import Run

ROOT = Path(__file__).parent.parent
SYSTEMS = {
    "transformer": "Transformer (2017)",
    "rnn": "RNN (2014)",
    "rnn-bidirectional": "bidirectional RNN",
    "rnn-attention": "RNN, additive attention (2015)",
    "rnn-dot": "RNN, dot-product attention (2015)",
    "rnn-general": "RNN, general attention (2015)",
    "convolutional": "convolutional (2017)",
}
"""Values of `model.architecture`, with their names in the table."""
TIMED = 10
"""Number of updates of a training with `--time-only`."""
Row = dict[str, Any]


# One training, in a process of its own


def train(job: Row, folder: Path, training: dict[str, Any]) -> "Run":
    """Train one system with one seed; `training` are settings of the budget."""
    import seq2see
    from seq2see.cli.options import parse_assignments

    overlay: dict[str, dict[str, Any]] = {"training": {"seed": job["seed"], **training}}
    for section, values in parse_assignments(job["settings"]).items():
        overlay.setdefault(section, {}).update(values)
    preset = None if job["system"] == "transformer" else job["system"]
    return seq2see.train(job["train"], folder, valid=job["valid"], preset=preset, settings=overlay, tune=0)


def time_updates(job: Row) -> Row:
    """Measure the CPU time of an update: the median time from one step of the optimizer to the next."""
    from seq2see.training.optimizer import Adam

    times, step = list[float](), Adam.step

    def timed_step(optimizer: Adam, *arguments: Any) -> None:
        step(optimizer, *arguments)
        times.append(time.process_time())

    Adam.step = timed_step  # type: ignore[method-assign]
    budget = {"max_steps": TIMED, "validate_every": TIMED, "patience": 0, "warmup_steps": 1, "metric": "loss"}
    with tempfile.TemporaryDirectory() as place:
        run = train(job, Path(place) / "run", budget)
    return {
        "update_seconds": round(median(after - before for before, after in pairwise(times)), 3),
        "parameters": run.manifest["parameters"],
        "batch_tokens": run.settings.training.batch_tokens,
        "device": run.manifest["device"],
    }


def train_and_score(job: Row) -> Row:
    """Train one system with one seed, and score it on the test set."""
    training = {}
    if job["steps"]:
        training |= {"max_steps": job["steps"], "validate_every": max(1, job["steps"] // 4), "patience": 0}
        training |= {"warmup_steps": max(1, job["steps"] // 8)}
    with tempfile.TemporaryDirectory() as place:
        before = time.process_time()
        run = train(job, Path(place) / "run", training)
        began, used = time.perf_counter(), time.process_time() - before
        found = run.evaluate(job["test"], tokenize=job["tokenize"], engine=run.engine("torch", precision="float32"))
        evaluated = time.perf_counter() - began
        manifest, settings = run.manifest, run.settings
    return {
        "scores": {name: round(found.scores[name].value, 4) for name in ("exact", "bleu", "chrf")},
        "metric": "exact" if settings.training.metric == "exact" else "bleu",
        "parameters": manifest["parameters"],
        "steps": manifest["steps"],
        "batch_tokens": settings.training.batch_tokens,
        "width": settings.model.d_hidden or settings.model.d_model,
        "layers": [settings.model.encoder_layers, settings.model.decoder_layers],
        "training_seconds": manifest["trained_in_seconds"],
        "cpu_seconds": round(used, 1),
        "evaluation_seconds": round(evaluated, 1),
        "device": manifest["device"],
        "test_pairs": found.pairs,
    }


# The parent: several processes, a limit of time


def run_jobs(jobs: list[Row], workers: int, minutes: float, out: Path) -> int:
    """Run jobs side by side until none is left or the time is over; return how many are left."""
    deadline, lock = time.monotonic() + 60 * minutes, threading.Lock()
    waiting, left = list(reversed(jobs)), [0]

    def serve() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                job = waiting.pop()
            row = job | _in_a_process(job, max(0.0, deadline - time.monotonic()))
            with lock:
                if "error" in row:
                    left[0] += 1
                else:
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
                print(described(row), file=sys.stderr, flush=True)

    threads = [threading.Thread(target=serve) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return left[0]


def _in_a_process(job: Row, seconds: float) -> Row:
    """Return what a training found, or an error: it failed, or it had not ended in time and was stopped."""
    if seconds < 1:
        return {"error": "no time is left"}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"} | os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "bench.systems", "one", json.dumps(job)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "not ended in time"}
    if ended.returncode:
        return {"error": (ended.stderr.strip().splitlines() or ["no message"])[-1][:500]}
    found: Row = json.loads(ended.stdout.splitlines()[-1])
    return found


def key(row: Row) -> tuple[Any, ...]:
    """Return what tells one training from another."""
    return row["corpus"], row["system"], row["seed"], row["budget"], row.get("machine", "")


def read_rows(paths: Iterable[Path]) -> Iterator[Row]:
    """Yield the results in several files; one that does not exist yet has none."""
    for path in paths:
        if path.exists():
            yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def described(row: Row) -> str:
    name = f"{row['corpus']}, {row['system']}, seed {row['seed']}"
    if "error" in row:
        return f"{name}: {row['error']}"
    if "update_seconds" in row:
        return f"{name}: {row['update_seconds']:.2f} CPU seconds per update, {row['parameters']:,} parameters"
    score = row["scores"][row["metric"]]
    return f"{name}: {row['metric']} {score:.2f}, {row['parameters']:,} parameters, {row['training_seconds']:.0f} s"


def run(options: argparse.Namespace) -> None:
    """Run what `--out` does not have yet."""
    length = "timed" if options.time_only else f"{options.steps or 'suggested'} steps"
    budget = f"{length} {' '.join(options.set)}".strip()
    asked = {"corpus": options.corpus, "budget": budget, "machine": options.machine, "steps": options.steps}
    asked |= {"train": options.train, "valid": options.valid, "test": options.test}
    asked |= {"tokenize": options.tokenize, "settings": options.set, "time_only": options.time_only}
    jobs = [asked | {"system": system, "seed": seed} for seed in options.seeds for system in options.systems]
    done = {key(row) for row in read_rows([options.out])}
    jobs = [job for job in jobs if key(job) not in done]
    left = run_jobs(jobs, options.workers, options.minutes, options.out)
    print(f"{left} of {len(jobs)} left" if left else "nothing is left", file=sys.stderr)


def write_files(name: str, folder: Path) -> None:
    """Write a built-in corpus as files."""
    from seq2see.text import corpora

    corpus = corpora.open_corpus(name)
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test)):
        if pairs is not None:
            lines = (f"{pair.source}\t{pair.target}\n" for pair in pairs)
            (folder / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")


# The page

UNITS = {"exact": "exact match, %", "bleu": "BLEU"}
PAGE = """# The systems that the Transformer replaced

Written by `python -m bench.systems page`. All systems of a table are trained with the same steps, batch size, dropout
and other regularisation, namely those that the corpus suggests for a Transformer, and have the same number of
parameters within a few percent. Two things differ: the learning rate of the other systems is twice the Transformer's
([log.md](log.md), "what suits the RNNs" and "the other systems"), and the Transformer has the alignment loss, for which
they have no attention head, unless the table says `training.alignment_weight=0`. Each finished model translates the
test set once, with beam 5. Scores are means over seeds, ± their standard deviation. "Seconds" is the mean duration of a
training while other trainings used the same machine, not always as many, so that only large differences mean something.
"CPU seconds", where given, are those of all threads of a training, from reading the corpus to the report; other
programs hardly change them.

{tables}
## Published figures

No published figure was found for these corpora with these numbers of parameters and steps. The nearest:

- Multi30k, German to English (the table has the other direction): a bidirectional LSTM with additive attention 38.45
  and an LSTM without attention 18.76 BLEU (github.com/maximus-21/Neural-Machine-Translation, greedy), a GRU with
  attention on subwords 33.47 (huggingface.co/msarmi9/multi30k).
- The papers themselves report WMT 2014, English to German: Luong et al. (2015) 18.1 BLEU with global attention and
  input feeding, Gehring et al. (2017) 25.16, the Transformer 27.3 (base). No model here is trained on that corpus.
"""


def write_page(results: Sequence[Path], path: Path) -> None:
    """Write a table for each corpus, budget and machine among the results.

    Tables of the present page stay if the results have none with the same heading and budget.
    """
    rows = {key(row): row for row in read_rows(results)}  # the last of several with one key
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows.values():
        groups.setdefault((row["corpus"], row["budget"], row["machine"] or row["device"]), []).append(row)
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = (f"## {each.rstrip()}\n" for each in page.split("\n## ")[1:])
    present = [each for each in sections if not each.startswith("## Published")]
    measured = [(_times if "update_seconds" in rows[0] else _table)(group, rows) for group, rows in groups.items()]
    tables = {tuple(each.splitlines()[:3]): each for each in (*present, *measured)}  # by heading and budget
    path.write_text(PAGE.format(tables="\n".join(tables.values())), encoding="utf-8")


def _times(group: tuple[str, ...], rows: list[Row]) -> str:
    """Return the table of the CPU time of an update for one corpus, with its heading."""
    corpus, _, machine = group
    lines = [
        f"## CPU time of one update, {corpus}, {machine}",
        "",
        f"CPU seconds of forward pass, backward pass and update (median of {TIMED - 1}), "
        f"{rows[0]['batch_tokens']:,} tokens.",
        "",
        "| system | parameters | CPU seconds |",
        "|---|---|---|",
    ]
    for system, name in SYSTEMS.items():
        if own := [row for row in rows if row["system"] == system]:
            lines.append(f"| {name} | {own[0]['parameters']:,} | {mean(row['update_seconds'] for row in own):.2f} |")
    return "\n".join(lines) + "\n"


def _table(group: tuple[str, ...], rows: list[Row]) -> str:
    """Return the table of one corpus, with its heading."""
    corpus, budget, machine = group
    steps, _, changed = budget.partition(" steps")
    one = rows[0]
    timed = all("cpu_seconds" in row for row in rows)
    columns = ["system", UNITS[one["metric"]], "seeds", "parameters", "layers", "width", "seconds"]
    columns += ["CPU seconds"] * timed
    lines = [
        f"## {corpus}, {machine}",
        "",
        f"{steps} steps of {one['batch_tokens']:,} tokens{f', `{changed.strip()}`' if changed else ''}, "
        f"{one['test_pairs']:,} test pairs.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for system, name in SYSTEMS.items():
        own = [row for row in rows if row["system"] == system]
        if own:
            scores = [row["scores"][one["metric"]] for row in own]
            spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
            layers = " + ".join(map(str, own[0]["layers"]))
            seconds = mean(row["training_seconds"] for row in own)
            cells = [name, f"{mean(scores):.1f}{spread}", len(own), f"{own[0]['parameters']:,}", layers]
            cells += [own[0]["width"], f"{seconds:,.0f}"]
            if timed:
                cells.append(f"{mean(row['cpu_seconds'] for row in own):,.0f}")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:2] == ["one"]:
        answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
        job = json.loads(sys.argv[2])
        found = time_updates(job) if job["time_only"] else train_and_score(job)
        print(json.dumps(found, ensure_ascii=False), file=answers)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    running = verbs.add_parser("run", help="train and score")
    running.add_argument("corpus", help="name in the table")
    running.add_argument("--train", required=True, help="pairs, as seq2see train takes them")
    running.add_argument("--valid", default=None)
    running.add_argument("--test", default=None, help="not needed with --time-only")
    running.add_argument("--time-only", action="store_true", help="only measure the CPU time of an update")
    running.add_argument("--tokenize", default="auto", help="tokenizer of BLEU")
    running.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    running.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    running.add_argument("--steps", type=int, default=0, help="updates of each; 0: as the corpus suggests")
    running.add_argument("--set", nargs="+", default=[], help="section.key=value, for all systems")
    running.add_argument("--workers", type=int, default=1)
    running.add_argument("--minutes", type=float, default=60)
    running.add_argument("--machine", default="", help="description of the machine in the table")
    running.add_argument("--out", type=Path, required=True)
    writing = verbs.add_parser("files", help="write a built-in corpus as files")
    writing.add_argument("name")
    writing.add_argument("folder", type=Path)
    page = verbs.add_parser("page", help="write the tables")
    page.add_argument("results", nargs="+", type=Path)
    page.add_argument("--write", type=Path, default=ROOT / "docs" / "systems.md")
    options = parser.parse_args()
    if options.verb == "run":
        if not (options.test or options.time_only):
            parser.error("run needs --test")
        run(options)
    elif options.verb == "files":
        write_files(options.name, options.folder)
    else:
        write_page(options.results, options.write)


if __name__ == "__main__":
    main()
