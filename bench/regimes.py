"""`seq2see train TRAIN --valid DEV` on corpora of many kinds, with no other option, several seeds side by side.

    python -m bench.regimes run --data FOLDER --out results.jsonl --minutes 8 --workers 12
    python -m bench.regimes run --data FOLDER --out old.jsonl --label 0.1.0 --source build/v010/src
    python -m bench.regimes page results.jsonl old.jsonl --write docs/regimes.md

`run` trains, translates the test set once with the finished model, and appends a line of JSON for each run to `--out`.
It starts no run that may not end within `--minutes`, and skips what `--out` or `--done` already contains: repeat the
same command until it says that nothing is left. `--source` runs another version of seq2see. While settings are being
chosen, `--on dev` scores the validation set instead, and `--variants FILE` tries settings: each line is a label, a
comma-separated list of corpora, and assignments, such as `d3 sounds/ita model.dropout=0.3 training.weight_decay=0.3`.
On a GPU, runs side by side are several times faster with NVIDIA's MPS (`nvidia-cuda-mps-control -d`).
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SMALL = tuple(f"sounds/{name}" for name in ("ita", "khm", "lav", "mlt_latn", "slv", "wel_sw"))
"""Six languages of 800 words each, which count as one row."""
INFLECTION = tuple(
    f"inflection/{language}-{size}"
    for size in ("low", "medium", "high")
    for language in ("finnish", "swahili", "turkish", "georgian")
)
CORPORA: dict[str, str] = {
    **dict.fromkeys((*SMALL, "sounds/hbs_latn"), "word_error"),
    **dict.fromkeys((*INFLECTION, "spelling/portuguese"), "exact"),
    "sounds/eng_us": "word_error",
    "molecules/forward": "exact",
    "molecules/backward": "exact",
    "code/django": "bleu",
    "spelling/slovene": "exact",
    "japanese": "bleu",
}
"""Corpora with the score of the table, in the order in which they are run."""


@dataclass(frozen=True)
class Job:
    """One training."""

    label: str
    corpus: str
    seed: int
    on: str
    settings: tuple[str, ...] = ()
    """Assignments such as `model.dropout=0.3`."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.label, self.corpus, self.seed, self.on


def files(data: Path, corpus: str, on: str) -> tuple[Path, Path, Path]:
    """Return the files to train on, to validate on and to score."""
    folder, _, name = corpus.rpartition("/")
    language, _, size = name.partition("-")
    stem = "" if corpus == "japanese" else f"{language}."
    base = data / (folder or name)
    train = base / f"{stem}train{'-' * bool(size)}{size}.tsv.gz"
    return train, base / f"{stem}dev.tsv.gz", base / f"{stem}{on}.tsv.gz"


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of a gzipped TSV file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [(source, target) for source, target, *_ in rows]


# A worker: one process, one training after the other.


def work() -> None:
    """Do the jobs that come in on stdin, one line of JSON each, and answer each with a line; end after a failure.

    After some errors of a GPU, every later call in the same process fails.
    """
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = train_and_translate(asked)
        except Exception as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"[:500]}
        print(json.dumps(answer, ensure_ascii=False), file=answers, flush=True)
        if "error" in answer:
            return


def train_and_translate(asked: dict[str, Any]) -> dict[str, Any]:
    """Train as a user would, translate with beam 5, and return everything that the table needs."""
    import seq2see

    overlay: dict[str, dict[str, Any]] = {}
    if asked["settings"]:
        from seq2see.cli.options import parse_assignments  # release 0.1.0 does not have it

        overlay = {section: dict(values) for section, values in parse_assignments(asked["settings"]).items()}
    overlay.setdefault("training", {})["seed"] = asked["seed"]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        run = seq2see.train(asked["train"], Path(place) / "run", valid=asked["valid"], settings=overlay)
        trained = time.perf_counter()
        outputs = run.translate([source for source, _ in read_pairs(Path(asked["test"]))], beam=5)
        manifest = run.manifest
        settings = asdict(run.settings)
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "outputs": outputs,
        "seconds": round(trained - began, 1),
        "training_seconds": manifest["trained_in_seconds"],
        "steps": manifest["steps"],
        "parameters": manifest["parameters"],
        "target_tokens": manifest["target_tokens"],
        "device": manifest["device"],
        "trials": manifest.get("trials"),
        "chosen": {name: settings[name] for name in ("data", "model", "training")},
        "validations": [row for row in rows if "validation" in row],
    }


# The parent: several workers, a limit of time.


def run_jobs(jobs: list[Job], options: argparse.Namespace) -> int:
    """Run jobs side by side until none is left or the time is over; return how many are left.

    A job that fails is run once more, by a new worker: with MPS, a fault of one process ends all others, too.
    """
    deadline = time.monotonic() + 60 * options.minutes
    lock, waiting, longest = threading.Lock(), list(reversed(jobs)), [0.0]
    out = options.out.open("a", encoding="utf-8")
    processes: list[subprocess.Popen[str]] = []
    failed: set[Job] = set()

    def serve() -> None:
        while serve_until_failure():
            pass

    def serve_until_failure() -> bool:
        """Start a worker and give it jobs; return whether a job has failed, so that another worker is needed."""
        process = start_worker(options.source)
        processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        while True:
            with lock:
                if not waiting or time.monotonic() > deadline - min(60, longest[0] / 2):
                    process.stdin.close()
                    return False
                job = waiting.pop()
            train, valid, test = (str(path) for path in files(options.data, job.corpus, job.on))
            began = time.monotonic()
            try:
                process.stdin.write(json.dumps(asdict(job) | {"train": train, "valid": valid, "test": test}) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = ""
            if not line:
                with lock:
                    waiting.append(job)
                return False  # killed at the deadline
            row = asdict(job) | json.loads(line)
            with lock:
                longest[0] = max(longest[0], time.monotonic() - began)
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
                out.flush()
                if "error" in row and job not in failed:
                    failed.add(job)
                    waiting.append(job)
            print(describe(row, options.data), file=sys.stderr, flush=True)
            if "error" in row:
                return True

    threads = [threading.Thread(target=serve) for _ in range(min(options.workers, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()
    for thread in threads:
        thread.join()
    out.close()
    return len(waiting)


def start_worker(source: Path) -> subprocess.Popen[str]:
    """Start a worker that imports seq2see from `source`."""
    path = os.pathsep.join(filter(None, [str(source.resolve()), str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "bench.regimes", "worker"]
    pipe = subprocess.PIPE
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, env=environment, cwd=ROOT)


def describe(row: dict[str, Any], data: Path) -> str:
    """Return a line about a run that has ended."""
    name = f"{row['label']} {row['corpus']} seed {row['seed']} on {row['on']}"
    if "error" in row:
        return f"{name}: {row['error']}"
    value = score(row, data, CORPORA[row["corpus"]])
    return f"{name}: {CORPORA[row['corpus']]} {value:.2f}, {row['steps']:,} steps, {row['seconds']:.0f} s"


def score(row: dict[str, Any], data: Path, name: str) -> float:
    """Return the score of a run on the set that it translated."""
    scores = scores_of(row, data, "exact" if name == "word_error" else name)
    return 100 - scores["exact"].value if name == "word_error" else float(scores[name].value)


def scores_of(row: dict[str, Any], data: Path, name: str) -> Any:
    """Return the score with its counts for each item, for tests of significance."""
    from seq2see.evaluation import metrics

    targets = [[target] for _, target in read_pairs(files(data, row["corpus"], row["on"])[2])]
    return metrics.score([[text] for text in row["outputs"]], targets, names=[name])


def read_rows(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the results in several files, without those that failed."""
    for path in paths:
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                if "error" not in row:
                    yield row


CONLL_2018 = {
    "low": {"finnish": (17.3, 25.7), "swahili": (None, 72.0), "turkish": (13.2, 39.5), "georgian": (70.6, 88.2)},
    "medium": {"finnish": (44.1, 82.8), "swahili": (None, 99.0), "turkish": (32.8, 90.7), "georgian": (92.1, 94.0)},
    "high": {"finnish": (78.0, 95.4), "swahili": (None, 100.0), "turkish": (73.2, 98.5), "georgian": (93.9, 99.1)},
}
"""CoNLL-SIGMORPHON 2018, task 1, accuracy on the test set, %: of the baseline without a neural network (which has 0 for
Swahili), and of the best of all systems. From a copy of the organisers' table of results that a participating team
keeps: repository juditacs/sigmorphon2018, folder notebooks/tsv.
"""
PUBLISHED = {
    "sounds, six languages of 800 words": "31.0 (SIGMORPHON 2021, baseline, an ensemble)",
    "sounds/hbs_latn": "32.10 (SIGMORPHON 2021, baseline, an ensemble); 47.7 (a single Transformer of fairseq)",
    "sounds/eng_us": "41.94 (SIGMORPHON 2021, baseline, an ensemble)",
    "code/django": "73.9 % exact match (TranX, which writes syntax trees and copies names); ours 64.0 %",
    **{
        f"inflection/{language}-{size}": ("" if baseline is None else f"baseline {baseline:g}, ")
        + f"best system {best:g} (CoNLL-SIGMORPHON 2018)"
        for size, languages in CONLL_2018.items()
        for language, (baseline, best) in languages.items()
    },
}
"""Published figures. For SIGMORPHON 2021 they are from the README of sigmorphon/2021-task1, for the Transformer on
`hbs_latn` from that of juletx/writing-systems, for TranX from that of pcyin/tranX. Those of Bollmann (2019) were looked
for, and their tables could not be read.
"""
UNITS = {"word_error": "word error, %", "exact": "exact match, %", "bleu": "BLEU"}


def write_page(options: argparse.Namespace) -> None:
    """Write the table: both versions beside each other, with the comparison over seeds of `seq2see evaluate`.

    Lines of the present page whose corpora are not among the results of both versions stay as they are.
    """
    rows = sorted((row for row in read_rows(options.results) if row["on"] == "test"), key=lambda row: row["seed"])
    groups = {"sounds, six languages of 800 words": SMALL} | {name: (name,) for name in CORPORA if name not in SMALL}
    page = options.write.read_text(encoding="utf-8") if options.write.exists() else ""
    columns = ["corpus", "score", "0.1.0", "now", "difference (95 % interval)", "verdict", "published", "settings now"]
    earlier = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    lines = []
    for title, names in groups.items():
        sides = [
            [[row for row in rows if row["label"] == label and row["corpus"] == name] for name in names]
            for label in ("now", options.against)
        ]
        if all(any(each) for each in sides):
            lines.append(table_row(title, names, *sides, options.data))
        elif title in earlier:
            cells = earlier[title].split(" | ")
            cells[columns.index("published")] = PUBLISHED.get(title, "")
            lines.append(" | ".join(cells))
    head = f"| {' | '.join([*columns, 'seconds, trials'])} |"
    page = PAGE.format(table="\n".join([head, "|---" * 9 + "|", *lines]))
    options.write.write_text(page, encoding="utf-8")


def table_row(
    title: str,
    names: Sequence[str],
    ours: list[list[dict[str, Any]]],
    theirs: list[list[dict[str, Any]]],
    data: Path,
) -> str:
    """Return a line of the table; several corpora are joined, the first run of each into one, and so on."""
    from seq2see.evaluation import compare

    unit = CORPORA[names[0]]
    used = "exact" if unit == "word_error" else unit
    scored = [joined_scores(side, names, data, used) for side in (ours, theirs)]
    [found] = compare.compare(*scored)
    values = [[each[used].value for each in side] for side in scored]
    sign = 1.0
    if unit == "word_error":
        values = [[100 - value for value in side] for side in values]
        sign = -1.0
    low, high = sorted((sign * found.low, sign * found.high))
    shown = [f"{sum(side) / len(side):.2f} ({len(side)} seed{'s' * (len(side) > 1)})" for side in values]
    last = ours[0][0]
    model, training = last["chosen"]["model"], last["chosen"]["training"]
    settings = (
        f"{model['encoder_layers']} + {model['decoder_layers']} x {model['d_model']}, dropout {model['dropout']:g}, "
        f"R-Drop {training['agreement']:g}, decay {training['weight_decay']:g}, {training['max_steps']:,} steps of "
        f"{training['batch_tokens']:,} tokens"
    )
    seconds = [row["seconds"] for each in ours for row in each]
    trials = [row["trials"]["relative_cost"] for each in ours for row in each if row["trials"]]
    cost = f"{sum(seconds) / len(seconds):.0f}, {f'{sum(trials) / len(trials):.2f}' if trials else 'none'}"
    difference = f"{sign * found.difference:+.2f} ({low:+.2f} to {high:+.2f})"
    cells = [
        title,
        UNITS[unit],
        shown[1],
        shown[0],
        difference,
        found.verdict,
        PUBLISHED.get(title, ""),
        settings,
        cost,
    ]
    return f"| {' | '.join(cells)} |"


def joined_scores(side: list[list[dict[str, Any]]], names: Sequence[str], data: Path, name: str) -> list[Any]:
    """Return the scores of each run on all corpora of a row together."""
    from seq2see.evaluation import metrics

    targets = [[target] for each in names for _, target in read_pairs(files(data, each, "test")[2])]
    found = []
    for runs in zip(*side, strict=False):  # as many as all corpora have
        outputs = [[text] for row in runs for text in row["outputs"]]
        found.append(metrics.score(outputs, targets, names=[name]))
    return found


PAGE = """# Corpora of many kinds, without an option

Written by `python -m bench.regimes page`. Each row compares release 0.1.0 with this version. Both trained with `seq2see
train TRAIN --valid DEV` and no other option, several seeds side by side on one H200 (`inflection/finnish-low` and
`inflection/swahili-low` on one core of a CPU); each finished model translated the test set once, with beam 5. The
verdict is that of [the comparison over seeds](comparing.md). "Seconds" is the mean duration of a run while up to 22
others used the same GPU, or of a run on one core. "Trials" is the time of the
[trials](explanation/choosing-settings.md#trials) relative to that of the training.

Rows with fewer than four seeds were measured before this version used the alignment loss for such tasks, and
`sounds/eng_us` also before trainings of its size were made longer. No published figures were found for old spelling
(Bollmann 2019) by language, nor for these molecules and this Japanese corpus.

{table}
"""


def planned(options: argparse.Namespace) -> list[Job]:
    """Return the jobs that were asked for and are not done yet.

    All corpora are run with one seed before the next seed; with `--only`, all seeds of a corpus before the next one.
    """
    corpora = list(CORPORA)
    if options.only:
        corpora = list(dict.fromkeys(name for each in options.only for name in CORPORA if name.startswith(each)))
    variants: list[tuple[str, list[str], Sequence[str]]] = [(options.label, corpora, ())]
    if options.variants:
        lines = [line.split() for line in options.variants.read_text(encoding="utf-8").splitlines() if line.strip()]
        variants = [(label, names.split(","), settings) for label, names, *settings in lines]
    jobs = [
        Job(label, corpus, seed, options.on, tuple(settings))
        for seed in range(1, options.seeds + 1)
        for label, names, settings in variants
        for name in names
        for corpus in (SMALL if name == "small" else [name])
    ]
    if options.only:
        jobs.sort(key=lambda job: corpora.index(job.corpus))
    done = {(row["label"], row["corpus"], row["seed"], row["on"]) for row in read_rows([options.out, *options.done])}
    return [job for job in jobs if job.key not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    verbs.add_parser("worker")
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--done", type=Path, nargs="*", default=[])
    run.add_argument("--source", type=Path, default=ROOT / "src")
    run.add_argument("--label", default="now")
    run.add_argument("--only", nargs="*", default=[])
    run.add_argument("--variants", type=Path)
    run.add_argument("--seeds", type=int, default=5)
    run.add_argument("--on", choices=["dev", "test"], default="test")
    run.add_argument("--minutes", type=float, default=8.5)
    run.add_argument("--workers", type=int, default=12)
    page = verbs.add_parser("page")
    page.add_argument("results", type=Path, nargs="+")
    page.add_argument("--data", type=Path, required=True)
    page.add_argument("--against", default="0.1.0")
    page.add_argument("--write", type=Path, default=ROOT / "docs" / "regimes.md")
    options = parser.parse_args()
    if options.verb == "worker":
        work()
        return
    if options.verb == "page":
        write_page(options)
        return
    left = run_jobs(planned(options), options)
    print(f"{left} left" if left else "nothing is left", file=sys.stderr)


if __name__ == "__main__":
    main()
