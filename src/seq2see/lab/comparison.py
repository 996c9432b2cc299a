"""The three side by side on a whole corpus, by the whole program: the table that a paper would print."""

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
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.rivals import RIVALS
from seq2see.run import Run
from seq2see.text import corpora
from seq2see.text.pair import Pair
from seq2see.training import journal

SCORES = {"exact": "exact_match", "bleu": "bleu"}
"""What is reported of a corpus: exact match where training chose its best model by that, else BLEU."""
TEST_PAIRS = 1000
"""About so many are kept for the test, of a corpus that brings none; a tenth where it has fewer than ten times that."""


def trials(plan: Plan) -> list[dict[str, Any]]:
    pairs = plan.pairs or "dates"
    corpus = corpora.open_corpus(pairs)
    content = {}
    if corpus.test is None:
        content, every = {"content": _digest(corpus)}, _every(corpus)
        if not any(_is_kept(pair, every) for pair in corpus.train):
            raise DataError(f"{pairs}: too few different sources to keep some for a test. Give more pairs")
    # Of equally many tokens, more and smaller steps make more: see docs/lab.md for what others gave.
    budget = {"steps": 800, "batch_tokens": 1024}
    if not plan.quick:
        budget = {"steps": 3000 if plan.pairs else 1000, "batch_tokens": 4096}
    return [{"pairs": pairs, **content, "model": kind, **budget} for kind in RIVALS]


def _digest(corpus: corpora.Corpus) -> str:
    """Of what stands in a file, so that another text under the same name is another trial."""
    found = hashlib.sha256()
    for pair in corpus.train:
        found.update(f"{(pair.source, pair.target)!r}\n".encode())
    return found.hexdigest()[:12]


def measure(trial: Trial) -> Numbers:
    """What the corpus suggests for a Transformer, or the preset of an RNN, which has as many weights."""
    train_on, test = _parts(trial)
    run = _trained(trial, train_on)
    evaluated = run.evaluate(test, engine=run.engine("torch"))
    name = run.metric if run.metric in SCORES else "bleu"
    minutes = _minutes(run, trial["steps"])
    return {
        SCORES[name]: evaluated.scores[name].value,
        "minutes": minutes,
        "parameters": run.manifest["parameters"],
        "test_pairs": evaluated.pairs,
    }


def _parts(trial: Trial) -> tuple[str, str]:
    """Pairs to train on and pairs to test on: the corpus's own, or some that are taken out of it."""
    corpus = corpora.open_corpus(trial["pairs"])
    if corpus.test is not None:
        return trial["pairs"], trial["pairs"]
    folder = trial.folder.parent / f"pairs-{trial['content']}"
    train_on, test = folder / "train.jsonl", folder / "test.jsonl"
    if not test.exists():  # which comes last
        every = _every(corpus)
        with storage.in_one_line(folder):
            storage.own_folder(folder, folder.parents[1])
        for path, wanted in ((train_on, False), (test, True)):
            with storage.replacing(path) as beside, beside.open("w", encoding="utf-8") as file:
                for pair in corpus.train:
                    if _is_kept(pair, every) is wanted:
                        line = json.dumps({"source": pair.source, "target": pair.target}, ensure_ascii=False)
                        file.write(f"{line}\n")
    return str(train_on), str(test)


def _every(corpus: corpora.Corpus) -> int:
    """One of so many sources is kept for the test."""
    return max(10, sum(1 for _ in corpus.train) // TEST_PAIRS)


def _is_kept(pair: Pair, every: int) -> bool:
    """By a checksum of the source: the same for every model and seed, and no source is on both sides."""
    return crc32(pair.source.encode()) % every == 0


def _trained(trial: Trial, pairs: str) -> Run:
    """Kept in the trial's folder, so that a training that was stopped goes on."""
    steps = trial["steps"]
    training = {
        "seed": trial.seed,
        "max_steps": steps,
        "batch_tokens": trial["batch_tokens"],
        "warmup_steps": max(1, steps // 5),
        "validate_every": max(1, steps // 2),
        "log_every": max(1, steps // 40),
        "average": 1,  # in so short a training, what comes before the end is far from it
        "patience": 0,
    }
    preset = None if trial["model"] == "transformer" else trial["model"]
    return api.train(pairs, trial.folder, preset=preset, settings={"training": training}, resume=True)


def _minutes(run: Run, steps: int) -> float:
    """Of training alone: the median time of a step, between two lines of the log without a validation, of all steps."""
    rows = journal.read(run.folder)
    spans = [
        (after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
        for before, after in pairwise(rows)
        if "seconds" in before and "seconds" in after
    ]
    whole = max(row["seconds"] for row in rows if "seconds" in row)  # on a machine that is busy at times, less
    return min(float(statistics.median(spans)) * steps, float(whole)) / 60


def _better(rows: Rows, than: str) -> float:
    found = (rows.get(score, model="transformer") - rows.get(score, model=than) for score in SCORES.values())
    return next((each for each in found if not math.isnan(each)), math.nan)


CLAIM = Claim(
    name="comparison",
    words="The Transformer is superior in quality to the systems that it replaces. (Here: after as many steps on as "
    "many tokens; the time that took is shown and not judged.)",
    source="Vaswani et al. 2017, abstract and table 2; Sutskever et al. 2014; Bahdanau et al. 2015",
    measured="exact match or BLEU (0 to 100) on test pairs that neither trained a model nor chose a checkpoint, "
    "minutes of training alone, and parameters, of a Transformer, an RNN with attention and an RNN with about equally "
    "many parameters and the same budget of steps and tokens, by seq2see train and evaluate",
    trials=trials,
    measure=measure,
    expectations=tuple(
        Expectation(
            f"better than the {name}, by more than half a point",
            f"score (exact match or BLEU), Transformer - {name}",
            partial(_better, than=kind),
            at_least=0.0,
            tolerance=0.5,
        )
        for kind, name in (("rnn-attention", "RNN with attention"), ("rnn", "RNN"))
    ),
    charts=(
        Chart("exact match", "exact_match", "model"),
        Chart("BLEU", "bleu", "model"),
        Chart("minutes of training", "minutes", "model"),
    ),
    alone=True,
)
