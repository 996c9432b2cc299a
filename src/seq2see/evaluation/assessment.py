"""Compare a trained model with baselines, and find the likely cause if it did not learn its task.

A model must be clearly better, by exact match or by chrF, than each of three trivial baselines: copying the source,
always giving the most frequent target, and its own outputs assigned to other sources. The last one finds a model that
writes good sentences whatever the source. A baseline that is nearly always right (`SOLVED`), as copying is
where sources are to be copied, solves the task itself. It does not count, unless all baselines are nearly always right.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seq2see.config import Settings
from seq2see.evaluation import metrics
from seq2see.evaluation.compare import FEWEST, paired_bootstrap
from seq2see.evaluation.metrics import Scores
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.store import Store
from seq2see.training import schedule
from seq2see.training.bad_numbers import NotFinite

NAMES = ("exact", "chrf")
SAMPLE = 100_000
"""Maximum number of pairs, evenly spread over the training set or the validation set, from which `frequencies` are
computed.
"""
SOLVED = 99.0
"""Exact match, in %, from which a baseline or a model is taken to have solved the task. Such a baseline is not compared
with a model if other baselines are left: no model could be clearly better.
"""
FEW_PAIRS = 5000
ENOUGH_STEPS = 1000
"""Minimum number of training steps for a verdict on a training that ended in its first two epochs."""


@dataclass(frozen=True)
class Frequencies:
    """Statistics of the targets alone, without the sources."""

    most_frequent: str
    """The most frequent target among the training pairs, which one of the baselines always gives."""
    unigram_loss: float
    """Mean loss per token of the validation targets, in nats, if each token is predicted by its frequency in the
    training targets, where each token of the vocabulary counts once more.
    """


@dataclass(frozen=True)
class Assessment:
    """Scores of a finished model and of the baselines on the validation pairs."""

    loss: float | None
    """Mean loss per token of the validation targets, in nats, of the best checkpoint; None if it is not finite."""
    unigram_loss: float
    scores: dict[str, dict[str, float]]
    """Exact match and chrF of the model and of each baseline, by the name of the system, then of the score."""
    findings: list[str]
    """Problems of the training, one line each; empty for a model that learned its task."""


def frequencies(train: Store, valid: Store, tokenizer: Tokenizer) -> Frequencies:
    """Return the most frequent training target, and the validation loss of predicting tokens by their frequency."""
    chosen = np.arange(0, len(train), math.ceil(len(train) / SAMPLE))
    _, _, tokens, offsets = train.gather(chosen)
    targets = Counter(map(np.ndarray.tobytes, np.split(tokens, offsets[1:-1])))
    most_frequent = np.frombuffer(targets.most_common(1)[0][0], dtype=tokens.dtype)[:-1]  # without END
    counts = np.bincount(tokens, minlength=len(tokenizer)) + 1.0  # one more each: none is impossible
    _, _, held_out, _ = valid.gather(np.arange(0, len(valid), math.ceil(len(valid) / SAMPLE)))
    loss = -np.log(counts / counts.sum())[held_out].mean()
    return Frequencies(tokenizer.decode(most_frequent.tolist()), float(loss))


def assess(
    scores: Scores,
    hypotheses: Sequence[str],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    known: Frequencies,
    rows: Sequence[Mapping[str, Any]],
    settings: Settings,
    pairs: int,
) -> Assessment:
    """Compare a trained model with the baselines on validation pairs, and return scores and findings.

    Args:
        scores: scores of the hypotheses, including those in `NAMES`.
        hypotheses: the model's best translation of each of `sources`, the sources of the validation pairs.
        known: statistics of the targets, for the baselines.
        rows: the rows of `metrics.jsonl`.
        pairs: number of training pairs.
    """
    ours = Scores(tuple(scores[name] for name in NAMES))
    baselines = {
        "copying the source": list(sources),
        "always giving the most frequent target": [known.most_frequent] * len(hypotheses),
    }
    if len(hypotheses) > 1:
        half = len(hypotheses) // 2  # far away: neighbours in a file are often alike
        baselines["its own answers shuffled"] = [*hypotheses[half:], *hypotheses[:half]]
    theirs = {
        name: metrics.score([[text] for text in texts], references, names=NAMES) for name, texts in baselines.items()
    }
    kept = [row for row in rows if "validation" in row and row["best"]]
    loss = kept[-1]["validation"]["loss"] if kept else math.nan
    findings = _not_finite(rows, settings)
    rivals = [who for who in theirs if theirs[who]["exact"].value < SOLVED] or [*theirs]
    best = {name: max(rivals, key=lambda who: theirs[who][name].value) for name in NAMES}
    if not any(_is_clearly_better(ours, theirs[best[name]], name) for name in NAMES):
        by_match = settings.training.metric == "exact" and theirs[best["exact"]]["exact"].value > 0
        name, named = ("exact", "exact match") if by_match else ("chrf", "chrF")
        measured = f"{named} {ours[name].value:.1f} against {theirs[best[name]][name].value:.1f}"
        if not findings and (early := _too_early(rows, settings)):
            findings = [f"the model is not clearly better than {best[name]} ({measured}): {early}"]
        else:
            among = f"on {len(hypotheses):,} validation pair{'' if len(hypotheses) == 1 else 's'}"
            causes = findings or [_cause(min([loss, *(each for _, each in _trainings(rows))]), known, settings, pairs)]
            findings = [f"the model is not clearly better than {best[name]}: {measured} {among}", *causes]
    findings += _overfitting(rows, settings)
    every = {"model": ours, **theirs}
    return Assessment(
        loss if math.isfinite(loss) else None,
        known.unigram_loss,
        {who: {score.name: score.value for score in each} for who, each in every.items()},
        findings,
    )


def no_model(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Return a text that explains why a training produced no model."""
    return "; ".join(_not_finite(rows, settings)) or "no validation gave a finite score to select a model by"


def not_finite(found: NotFinite, lines: Sequence[str], settings: Settings) -> str:
    """Return a text that explains why a training was stopped by numbers that are not finite.

    Args:
        lines: the training pairs each of which alone causes it, as text; empty if there are none.
    """
    where = f"step {found.step:,}, a batch of {found.batch:,} pairs"
    which = f", {'; '.join(lines)} alone cause{'s' if len(lines) == 1 else ''} it" if lines else ""
    again = f", even at 1/{2**found.slowed} of the learning rate" if found.slowed else ""
    return (
        f"the loss or the gradient was not finite in {found.updates} updates in a row{again} ({where}{which}; "
        f"first in {found.place}): {_lower_rate(settings)}"
    )


def _is_clearly_better(ours: Scores, theirs: Scores, name: str) -> bool:
    mine, other = ours[name].value, theirs[name].value
    if name == "exact" and (mine >= SOLVED or (other >= SOLVED and mine >= other - 10)):
        return True  # nothing is left to gain
    if len(ours[name].counts) < FEWEST or mine <= other:
        return mine > other
    return paired_bootstrap([Scores((ours[name],))], [Scores((theirs[name],))])[0].models == "better"


def _validations(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return step and loss of each validation of the model itself, without those of averaged checkpoints."""
    validated = [row for row in rows if row.get("what") == "model" and "validation" in row]
    return [(row["step"], row["validation"]["loss"]) for row in validated]


def _trainings(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def _lower_rate(settings: Settings) -> str:
    rate = settings.training.peak_rate(settings.model.d_model)
    return f"try a lower learning rate: --set training.learning_rate={rate / 4:.1g}"


def _not_finite(rows: Sequence[Mapping[str, Any]], settings: Settings) -> list[str]:
    broken = [step for step, loss in [*_trainings(rows), *_validations(rows)] if not math.isfinite(loss)]
    return [f"the loss was not finite from step {min(broken):,} on: {_lower_rate(settings)}"] if broken else []


def _too_early(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str | None:
    """Return a text if the training ended too early to be judged: during warm-up, in the first two epochs and before
    `ENOUGH_STEPS`, before a second validation, or while the validation loss still fell by over 3 %; None otherwise.
    """
    validations, warmup = _validations(rows), settings.training.warmup_steps
    if not validations:
        return None  # metrics.jsonl is gone
    step = validations[-1][0]
    few = f"{step:,} step{' is' if step == 1 else 's are'} too few"
    seconds = max((row["seconds"] for row in rows if "loss" in row and "seconds" in row), default=0.0)
    if not schedule.is_warmed_up(step, seconds, settings.training):
        return f"{few}, warm-up takes {warmup:,} steps"
    epoch = max((row["epoch"] for row in rows if "epoch" in row), default=0)
    if (epoch < 2 and step < ENOUGH_STEPS) or len(validations) < 2 or validations[-1][1] < 0.97 * validations[-2][1]:
        return few
    return None


def _cause(loss: float, known: Frequencies, settings: Settings, pairs: int) -> str:
    """Return the likely reason why nothing was learned in a training that was long enough.

    Args:
        loss: the lowest training loss, or the validation loss of the best checkpoint if that is lower.
    """
    if not loss < 0.98 * known.unigram_loss:
        guess = f"the loss never fell below {known.unigram_loss:.2f}, that of guessing by frequency"
        return f"{guess}: {_lower_rate(settings)}"
    few = f", or {pairs:,} pairs are too few" if pairs < FEW_PAIRS else ""
    return f"the sides may be unrelated or out of step (check with seq2see doctor){few}"


def _overfitting(rows: Sequence[Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return findings if a model overfitted strongly: the best checkpoint is from the first tenth of the steps, or
    the first validation, and the validation loss then rose by more than a tenth while the training loss fell.
    """
    validations, trainings = _validations(rows), _trainings(rows)
    kept = [row["step"] for row in rows if "validation" in row and row["best"]]
    training = settings.training
    if len(validations) < 2 or not kept or kept[-1] > max(training.max_steps / 10, training.validate_every):
        return []
    lowest_at, lowest = min(validations, key=lambda each: each[1])
    last = validations[-1][1]
    before = [loss for step, loss in trainings if step <= lowest_at] or [loss for _, loss in trainings[:1]]
    if not (last > 1.1 * lowest and before and trainings[-1][1] < before[-1]):
        return []
    more = "--set model.dropout=0.3, " if settings.model.dropout < 0.3 else ""
    return [
        f"overfitted: validation loss rose from {lowest:.2f} (step {lowest_at:,}) to {last:.2f}, training loss fell to "
        f"{trainings[-1][1]:.2f}",
        f"the model of step {kept[-1]:,} is kept; against overfitting: more pairs, {more}a smaller --preset",
    ]
