"""`seq2see train TRAIN --valid DEV` on corpora of many kinds, with no other option, several seeds side by side.

    python -m bench.regimes run --data FOLDER --out results.jsonl --minutes 8 --workers 12
    python -m bench.regimes run --data FOLDER --out old.jsonl --label 0.1.0 --source build/v010/src
    python -m bench.regimes keep results.jsonl old.jsonl --data FOLDER
    python -m bench.regimes page

`run` trains, translates the test set once with the finished model, and appends a line of JSON for each run to `--out`.
It starts no run that may not end within `--minutes`, and skips what `--out` or `--done` already contains: repeat the
same command until it says that nothing is left. `--source` runs another version of seq2see. While settings are being
chosen, `--on dev` scores the validation set instead, and `--variants FILE` tries settings: each line is a label, a
comma-separated list of corpora, and assignments, such as `d3 sounds/ita model.dropout=0.3 training.weight_decay=0.3`.
On a GPU, runs side by side are several times faster with NVIDIA's MPS (`nvidia-cuda-mps-control -d`), up to as many as
there are cores. But models of a width of 240 and more keep a GPU busy: by estimate, four seeds of molecules, Slovene
and Japanese need twenty minutes of an H200, however many run side by side.

`keep` adds the runs on test sets to `bench/regimes-scores.jsonl`, which is part of the repository and contains no texts
(`bench.regimes_scores`), and `page` writes docs/regimes.md from this file alone. To measure more seeds later, exclude
the kept ones: `run --seeds 8 --done bench/regimes-scores.jsonl`. A run that was kept before is replaced only with
`--replace`. After a change that alters trainings, measure all kept seeds of a corpus again: all runs with the label
`now` are compared as runs of one system.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import regimes_scores
from bench.regimes_scores import Row

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
METRICS = {"word_error": "exact", "exact": "exact", "bleu": "bleu"}
"""The metric of `seq2see evaluate` that a score of the table is computed from; word error is 100 minus exact match."""


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
    test = read_pairs(Path(asked["test"]))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        run = seq2see.train(asked["train"], Path(place) / "run", valid=asked["valid"], settings=overlay)
        trained = time.perf_counter()
        outputs = run.translate([source for source, _ in test], beam=5)
        manifest = run.manifest
        settings = asdict(run.settings)
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "outputs": outputs,
        "test_set": regimes_scores.fingerprint(test),
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


def describe(row: Row, data: Path) -> str:
    """Return a line about a run that has ended."""
    name = f"{row['label']} {row['corpus']} seed {row['seed']} on {row['on']}"
    if "error" in row:
        return f"{name}: {row['error']}"
    unit = CORPORA[row["corpus"]]
    found = regimes_scores.score(row["outputs"], read_pairs(files(data, row["corpus"], row["on"])[2]), METRICS[unit])
    return f"{name}: {unit} {in_unit(found.value, unit):.2f}, {row['steps']:,} steps, {row['seconds']:.0f} s"


def in_unit(value: float, unit: str) -> float:
    """Return a score as the table has it."""
    return 100 - value if unit == "word_error" else value


def read_rows(paths: Sequence[Path]) -> Iterator[Row]:
    """Yield the results in several files, without those that failed."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "error" not in row:
                yield row


def keep_scores(options: argparse.Namespace) -> None:
    """Add the results on test sets to the scores in the repository."""
    rows = []
    for row in read_rows(options.results):
        if row["on"] == "test":
            test = read_pairs(files(options.data, row["corpus"], "test")[2])
            version = options.version or (current_commit() if row["label"] == "now" else row["label"])
            rows.append(regimes_scores.without_texts(row, test, METRICS[CORPORA[row["corpus"]]], version))
    written, known = regimes_scores.keep(rows, options.scores, options.replace)
    note = f"; already there: {known} (--replace writes them again)" if known else ""
    print(f"{options.scores}: runs written: {written}{note}", file=sys.stderr)


def current_commit() -> str:
    """Return the commit of this checkout, abbreviated."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


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
    "code/django": "73.9 % exact match (TranX, which writes syntax trees and copies names); ours 63.4 % (4 seeds)",
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


def write_page(scores: Path, page: Path, against: str = "0.1.0") -> None:
    """Write the table: both versions beside each other, with the comparison over seeds of `seq2see evaluate`.

    A line of the present page stays as it is if not all of its corpora have kept scores of both versions.
    """
    rows = regimes_scores.read(scores)
    groups = {"sounds, six languages of 800 words": SMALL} | {name: (name,) for name in CORPORA if name not in SMALL}
    present = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    columns = ["corpus", "score", "0.1.0", "now", "difference (95 % interval)", "verdict", "published", "settings now"]
    earlier = {line.split(" | ")[0].removeprefix("| "): line for line in present if line.startswith("| ")}
    lines, newer = list[str](), list[str]()
    for title, names in groups.items():
        sides = [
            [[row for row in rows if row["label"] == label and row["corpus"] == name] for name in names]
            for label in ("now", against)
        ]
        if all(all(each) for each in sides):
            lines.append(table_row(title, *sides))
        elif title in earlier:
            cells = earlier[title].split(" | ")
            cells[columns.index("published")] = PUBLISHED.get(title, "")
            lines.append(" | ".join(cells))
            if all(sides[0]):
                newer.append(newer_runs(title, sides[0]))
    head = f"| {' | '.join([*columns, 'seconds, trials'])} |"
    table = "\n".join([head, "|---" * 9 + "|", *lines])
    text = PAGE.format(summary=summary(lines), table=table)
    if newer:
        text += "\nNewer runs of this version, beside which 0.1.0 was not run again:\n\n" + "\n".join(newer) + "\n"
    page.write_text(text, encoding="utf-8")


def summary(lines: Sequence[str]) -> str:
    """Return sentences that count the verdicts in lines of the table, and give their mean difference."""
    cells = [line.strip("| ").split(" | ") for line in lines]
    verdicts = Counter(cell[5] for cell in cells)
    counted = ", ".join(f'{number} "{verdict}"' for verdict, number in verdicts.most_common())
    better = [(-1 if "error" in cell[1] else 1) * float(cell[4].split()[0]) for cell in cells]
    text = (
        f"Verdicts of the {len(lines)} rows: {counted}. The mean of the differences is {fmean(better):+.1f} points, if "
        "a lower word error counts as a positive difference."
    )
    return textwrap.fill(text, 120)


def table_row(title: str, ours: list[list[Row]], theirs: list[list[Row]]) -> str:
    """Return a line of the table from the kept runs of each corpus; several corpora are joined, the first run of each
    into one, and so on.
    """
    from seq2see.evaluation import compare

    first = ours[0][0]
    unit = CORPORA[first["corpus"]]
    runs_of_all = [[*zip(*side, strict=False)] for side in (ours, theirs)]  # as many as all corpora have
    scored = [[regimes_scores.joined(runs) for runs in side] for side in runs_of_all]
    [found] = compare.compare(*scored)
    values = [[in_unit(each[found.name].value, unit) for each in side] for side in scored]
    sign = -1.0 if unit == "word_error" else 1.0
    low, high = sorted((sign * found.low, sign * found.high))
    shown = [f"{sum(side) / len(side):.2f} ({len(side)} seed{'s' * (len(side) > 1)})" for side in values]
    settings = in_words(first["settings"])
    seconds = [row["seconds"] for each in ours for row in each]
    trials = [row["trials"] for each in ours for row in each if row["trials"] is not None]
    place = "" if all("NVIDIA" in row["device"] for each in ours for row in each) else " (CPU)"
    cost = f"{sum(seconds) / len(seconds):.0f}{place}, {f'{sum(trials) / len(trials):.2f}' if trials else 'none'}"
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


def newer_runs(title: str, ours: list[list[Row]]) -> str:
    """Return an item about kept runs of this version, given for each corpus, that have none of 0.1.0 beside them."""
    first = ours[0][0]
    unit = CORPORA[first["corpus"]]
    values = [in_unit(regimes_scores.joined(runs)[first["metric"]].value, unit) for runs in zip(*ours, strict=False)]
    place = "GPU" if "NVIDIA" in first["device"] else "CPU"
    seeds = f"{len(values)} seed{'s' * (len(values) > 1)}"
    seconds = fmean(row["seconds"] for each in ours for row in each)
    name, _, percent = UNITS[unit].partition(", ")
    score = f"{name} {fmean(values):.2f}{' ' * bool(percent)}{percent} ({seeds}, {place}, {seconds:.0f} s)"
    text = f"- {title}: {score}; {in_words(first['settings'])}"
    return textwrap.fill(text, 120, subsequent_indent="  ")


def in_words(settings: dict[str, Any]) -> str:
    """Return the settings of a kept run as the table has them."""
    return (
        "{encoder_layers} + {decoder_layers} x {d_model}, dropout {dropout:g}, R-Drop {agreement:g}, "
        "decay {weight_decay:g}, {max_steps:,} steps of {batch_tokens:,} tokens"
    ).format(**settings)


PAGE = """# Corpora of many kinds, without an option

Written by `python -m bench.regimes page`, from the scores of all runs in `bench/regimes-scores.jsonl`. Rows of corpora
that are not in this file were measured before it existed. Each row compares release 0.1.0 with this version. Both
trained with `seq2see train TRAIN --valid DEV` and no other option, several seeds side by side on one H200 or, where the
last column says "CPU", each on one core; each finished model translated the test set once, with beam 5. The verdict is
that of [the comparison over seeds](comparing.md). "Seconds" is the mean duration of a run while up to 22 others used
the same GPU, or of a run on one core. "Trials" is the time of the [trials](explanation/choosing-settings.md#trials)
relative to that of the training.

{summary}

A row has the settings with which it was measured; since then, batches for fewer than 3,600 words were made smaller, and
steps more. No published figures were found for old spelling (Bollmann 2019) by language, nor for these molecules and
this Japanese corpus.

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
    earlier = [path for path in (options.out, *options.done) if path.exists()]
    done = {(row["label"], row["corpus"], row["seed"], row["on"]) for row in read_rows(earlier)}
    return [job for job in jobs if job.key not in done]


def absolute_path(text: str) -> Path:
    """Return an absolute path, for options."""
    return Path(text).resolve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    verbs.add_parser("worker")
    run = verbs.add_parser("run")
    # Absolute, so that a run goes on if the present folder is replaced meanwhile.
    run.add_argument("--data", type=absolute_path, required=True)
    run.add_argument("--out", type=absolute_path, required=True)
    run.add_argument("--done", type=absolute_path, nargs="*", default=[])
    run.add_argument("--source", type=absolute_path, default=ROOT / "src")
    run.add_argument("--label", default="now")
    run.add_argument("--only", nargs="*", default=[])
    run.add_argument("--variants", type=Path)
    run.add_argument("--seeds", type=int, default=5)
    run.add_argument("--on", choices=["dev", "test"], default="test")
    run.add_argument("--minutes", type=float, default=8.5)
    run.add_argument("--workers", type=int, default=12)
    keep = verbs.add_parser("keep")
    keep.add_argument("results", type=Path, nargs="+")
    keep.add_argument("--data", type=Path, required=True)
    keep.add_argument("--version", help="what was measured; default: the commit of this checkout, or another label")
    keep.add_argument("--replace", action="store_true")
    keep.add_argument("--scores", type=Path, default=regimes_scores.KEPT)
    page = verbs.add_parser("page")
    page.add_argument("--against", default="0.1.0")
    page.add_argument("--scores", type=Path, default=regimes_scores.KEPT)
    page.add_argument("--write", type=Path, default=ROOT / "docs" / "regimes.md")
    options = parser.parse_args()
    if options.verb == "worker":
        work()
        return
    sys.path.insert(0, str(ROOT / "src"))  # scores are computed by this version, even if it is not installed
    if options.verb == "keep":
        keep_scores(options)
    elif options.verb == "page":
        write_page(options.scores, options.write, options.against)
    else:
        left = run_jobs(planned(options), options)
        print(f"{left} left" if left else "nothing is left", file=sys.stderr)


if __name__ == "__main__":
    main()
