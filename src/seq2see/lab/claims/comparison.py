"""Compare all architectures on a whole corpus, trained and evaluated with the usual commands."""

import hashlib
import json
import math
import statistics
from functools import partial
from itertools import pairwise
from typing import Any
from zlib import crc32

from seq2see import api, storage
from seq2see.errors import DataError
from seq2see.lab.claim import Measurements, Numbers, Plan, Trial, Value, grid
from seq2see.lab.models import ARCHITECTURES, OTHER_WEIGHTS, PREDECESSORS
from seq2see.machine import pick_device
from seq2see.run import Run
from seq2see.text import corpora
from seq2see.text.pair import Pair
from seq2see.training import journal

ALONE = pick_device().type == "cuda"
"""Whether trials run one at a time: on a GPU they do; on a CPU they share the cores with one thread each."""
SCORES = {"exact": "exact_match", "bleu": "bleu"}
"""For each value of `training.metric` that has its own score in the results, the name of that score; runs with another
metric are scored with BLEU.
"""
TEST_PAIRS = 1000
"""Approximate number of pairs that are held out as a test set if a corpus of at least 10,000 pairs has none; of a
smaller corpus, about a tenth is held out.
"""


def trials(plan: Plan) -> list[dict[str, Any]]:
    pairs = plan.pairs or "dates"
    corpus = corpora.open_corpus(pairs)
    content = {}
    if corpus.test is None:
        content, every = {"content": _digest(corpus)}, _every(corpus)
        if not any(_is_held_out(pair, every) for pair in corpus.train):
            raise DataError(f"{pairs}: too few different sources to keep some for a test. Give more pairs")
    # For the same number of tokens, more and smaller steps give better scores: docs/lab.md lists what was tried.
    budget = {"steps": 300, "batch_tokens": 1024}
    if not plan.quick:
        budget = {"steps": 3000, "batch_tokens": 4096} if plan.pairs else {"steps": 800, "batch_tokens": 1024}
    common = {"pairs": pairs, **content}
    return grid(**common, model=ARCHITECTURES, weights=1, **budget) + grid(
        **common,
        model="transformer",
        weights=2,
        **budget,  # the control
    )


def _digest(corpus: corpora.Corpus) -> str:
    """Return a digest of the pairs, so that changed text under the same name is another trial."""
    found = hashlib.sha256()
    for pair in corpus.train:
        found.update(f"{(pair.source, pair.target)!r}\n".encode())
    return found.hexdigest()[:12]


def measure(trial: Trial) -> Numbers:
    """Train an architecture with the settings that `seq2see train` suggests for it, and score the model."""
    train_on, test = parts(trial)
    run = trained(trial, train_on)
    evaluated = run.evaluate(test, engine=run.engine("torch"))
    name = run.metric if run.metric in SCORES else "bleu"
    return {
        SCORES[name]: evaluated.scores[name].value,
        "minutes": minutes(run, trial["steps"]),
        "parameters": run.manifest["parameters"],
        "test_pairs": evaluated.pairs,
    }


def parts(trial: Trial) -> tuple[str, str]:
    """Return name or path of the training pairs and of the test pairs; a corpus without test set is split into two
    files.
    """
    corpus = corpora.open_corpus(trial["pairs"])
    if corpus.test is not None:
        return trial["pairs"], trial["pairs"]
    folder = trial.folder.parent / f"pairs-{trial['content']}"
    train_on, test = folder / "train.jsonl", folder / "test.jsonl"
    if not test.exists():  # it is written last
        every = _every(corpus)
        with storage.in_one_line(folder):
            storage.own_folder(folder, folder.parents[1])
        for path, wanted in ((train_on, False), (test, True)):
            with storage.replacing(path) as beside, beside.open("w", encoding="utf-8") as file:
                for pair in corpus.train:
                    if _is_held_out(pair, every) is wanted:
                        line = json.dumps({"source": pair.source, "target": pair.target}, ensure_ascii=False)
                        file.write(f"{line}\n")
    return str(train_on), str(test)


def _every(corpus: corpora.Corpus) -> int:
    """Return n, where about one in n pairs of a corpus is held out for the test."""
    return max(10, sum(1 for _ in corpus.train) // TEST_PAIRS)


def _is_held_out(pair: Pair, every: int) -> bool:
    """Return whether a pair is in the test set, by a checksum of its source: the same for every model and seed."""
    return crc32(pair.source.encode()) % every == 0


def trained(trial: Trial, pairs: str) -> Run:
    """Train in the trial's folder, where an interrupted training is resumed, and return the run."""
    steps = trial["steps"]
    training = {
        "seed": trial.seed + (trial["weights"] - 1) * OTHER_WEIGHTS,
        "max_steps": steps,
        "batch_tokens": trial["batch_tokens"],
        "warmup_steps": max(1, steps // 5),
        "validate_every": max(1, steps // 2),
        "log_every": max(1, steps // 40),
        "average": 1,  # in so short a training, earlier checkpoints are far from the last one
        "patience": 0,
    }
    preset = None if trial["model"] == "transformer" else trial["model"]
    return api.train(pairs, trial.folder, preset=preset, settings={"training": training}, resume=True)


def minutes(run: Run, steps: int) -> float:
    """Return the minutes of training without validation: the median time of a step, times the number of steps.

    It is at most the time from the beginning to the last logged step.
    """
    rows = journal.read(run.folder)
    spans = [
        (after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
        for before, after in pairwise(rows)
        if "loss" in before and "loss" in after  # the seconds of other rows are those of a validation alone
    ]
    whole = max(row["seconds"] for row in rows if "loss" in row)  # less, if the machine was busy at times
    return min(float(statistics.median(spans)) * steps, float(whole)) / 60


def _better(rows: Measurements, than: str, weights: int = 1) -> float:
    ours, theirs = {"model": "transformer", "weights": 1}, {"model": than, "weights": weights}
    found = (rows.get(score, **ours) - rows.get(score, **theirs) for score in SCORES.values())
    return next((each for each in found if not math.isnan(each)), math.nan)


VALUES: dict[str, Value] = {kind: partial(_better, than=kind) for kind in PREDECESSORS}
CONTROLS: dict[str, Value] = {"rnn-attention": partial(_better, than="transformer", weights=2)}
