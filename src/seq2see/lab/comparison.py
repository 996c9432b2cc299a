"""The three side by side on a whole corpus, by the whole program: the table that a paper would print."""

import hashlib
from typing import Any

from seq2see import api
from seq2see.data import corpora
from seq2see.lab.claim import Chart, Claim, Expectation, Numbers, Plan, Rows, Trial
from seq2see.lab.rivals import RIVALS
from seq2see.run import Run


def trials(plan: Plan) -> list[dict[str, Any]]:
    steps = 200 if plan.quick else 1000
    if plan.pairs:
        steps = 300 if plan.quick else 3000
    budget = {"steps": steps, "batch_tokens": 4096}
    return [{"pairs": plan.pairs or "dates", "model": kind, **budget} for kind in RIVALS]


def measure(trial: Trial) -> Numbers:
    """What the corpus suggests for a Transformer, or the preset of an RNN, which has as many weights."""
    run = _trained(trial)
    scored = run.evaluate(_test_pairs(run, trial["pairs"]), engine=run.engine("torch"))
    minutes = run.manifest["trained_in_seconds"] / 60
    return {"score": scored.scores[run.metric].value, "minutes": minutes, "parameters": run.manifest["parameters"]}


def _trained(trial: Trial) -> Run:
    """Kept in a folder of its own, so that a training that was stopped goes on."""
    which = hashlib.sha256(repr((sorted(trial.conditions.items()), trial.seed)).encode()).hexdigest()[:8]
    folder = trial.folder / f"{corpora.name_of(trial['pairs'])}-{trial['model']}-{trial.seed}-{which}"
    training = {
        "seed": trial.seed,
        "max_steps": trial["steps"],
        "batch_tokens": trial["batch_tokens"],
        "warmup_steps": max(1, trial["steps"] // 5),
        "validate_every": max(1, trial["steps"] // 4),
        "patience": 0,
    }
    preset = None if trial["model"] == "transformer" else trial["model"]
    return api.train(trial["pairs"], folder, preset=preset, settings={"training": training}, resume=True)


def _test_pairs(run: Run, pairs: str) -> Any:
    """A corpus by name has a test set; of a file there are the validation pairs, the same for all three."""
    return pairs if pairs in corpora.names() else run.validation_pairs


def _better(rows: Rows, than: str) -> float:
    return rows.get("score", model="transformer") - rows.get("score", model=than)


CLAIM = Claim(
    name="comparison",
    words="The Transformer is superior in quality to the systems it replaces, at the same cost of training.",
    source="Vaswani et al. 2017, abstract and table 2; Sutskever et al. 2014; Bahdanau et al. 2015",
    measured="score, minutes and parameters of a Transformer, an RNN with attention and an RNN, with about equally "
    "many parameters and the same number of steps and tokens, by seq2see train and evaluate",
    trials=trials,
    measure=measure,
    expectations=(
        Expectation(
            "better than the RNN with attention",
            "score, Transformer - RNN with attention",
            lambda rows: _better(rows, "rnn-attention"),
            at_least=0.0,
        ),
        Expectation("better than the RNN", "score, Transformer - RNN", lambda rows: _better(rows, "rnn"), at_least=0.0),
    ),
    charts=(
        Chart("score", "score", "model"),
        Chart("minutes of training", "minutes", "model"),
    ),
    alone=True,
)
