"""The end of a training: score the model, measure what a fine-tuning forgot, find problems, and write `report.html`.

A forecast of the duration of a training on a CPU is here, too.
"""

import contextlib
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2see import bundle, storage
from seq2see.config import LOWER_IS_BETTER, Training
from seq2see.errors import RunError, SeqError
from seq2see.evaluation import assessment, confidence, metrics, report, validation
from seq2see.evaluation.evaluations import Evaluation, error_unit
from seq2see.lens import alignment, history
from seq2see.run import Run
from seq2see.session.request import Prepared, Said, Watch
from seq2see.text.corpora import Corpus
from seq2see.text.pair import Pair
from seq2see.text.rows import in_blocks
from seq2see.text.tags import language_tag, tagged, without_tag
from seq2see.training import checkpoint, events, journal, schedule
from seq2see.training.bad_numbers import NotFinite
from seq2see.training.checkpoint import Progress

CALIBRATED = 500
"""Maximum number of validation pairs that are translated to calibrate the confidence of a model's translations."""
REPORTED, SHOWN = 200, 40
"""Maximum number of validation pairs that are scored for the report (translated by greedy search, since a poor model
writes long outputs), and how many of their translations the report shows.
"""


DAY = 24 * 60 * 60
FORECAST_AFTER = 10
"""Number of updates after a start or resume; on a CPU, their mean duration gives the forecast for the training."""


def seconds_a_step(event: events.Event, before: Progress, device: torch.device) -> float | None:
    """Return the mean seconds per step if `event` is step number `FORECAST_AFTER` after `before` on a CPU.

    Return None for any other event, and on a GPU.
    """
    if not isinstance(event, events.Stepped) or event.step != before.step + FORECAST_AFTER or device.type != "cpu":
        return None
    return (event.seconds - before.seconds) / FORECAST_AFTER


def forecast(training: Training, seconds: float, tokens: int) -> str:
    """Return a text about the maximum duration of a training on this CPU, with advice if that is more than a day.

    The duration of validations is not known: untrained models write long outputs, trained ones do not.

    Args:
        seconds: The mean duration of an update.
        tokens: Number of tokens of the training pairs, which is the size of a batch if that is larger.
    """
    whole, limit = seconds * training.max_steps, 60 * training.max_minutes
    speed = f"{min(training.batch_tokens, tokens) / seconds:,.0f} tokens/s"
    if limit and limit < whole:
        steps = max(1, int(limit / seconds))
        line = (
            f"about {steps:,} of {training.max_steps:,} steps in {training.max_minutes:g} min on this CPU, at {speed}"
        )
        ends = limit * schedule.warm_up_share(training.max_steps, training.warmup_steps)
        shortens = training.schedule == "cosine" and ends < seconds * training.warmup_steps
        return f"{line}; warm-up ends after {in_words(ends)}" if shortens else line
    line = f"at most {in_words(whole)} for {training.max_steps:,} steps on this CPU, plus validations, at {speed}"
    if whole <= DAY:
        return line
    fewer = max(1, int(float(f"{DAY / seconds:.2g}")))
    return f"{line}. To end within a day, use a GPU, or train anew with --force --set training.max_steps={fewer}"


def finish(folder: Path, prepared: Prepared, end: events.Finished, device: torch.device, watch: Watch) -> Run:
    """Record how a training ended, score the model, write the report, and report problems of the model as warnings.

    If the training produced no model, raise an error that says why.
    """
    settings, facts = prepared.settings, prepared.facts
    if not (folder / "model.safetensors").exists():
        why = assessment.no_model(journal.read(folder), settings)
        storage.write_manifest(folder, facts | {"diagnosis": {"findings": [why]}})
        raise RunError(f"{folder}: training produced no model: {why}")
    facts = facts | {
        "state": "finished",
        "steps": end.step,
        "ended": end.reason,
        "trained_in_seconds": round(end.seconds, 1),
        "validated_in_seconds": round(journal.validation_seconds(folder), 1),
    }
    storage.write_manifest(folder, facts)
    measure_forgetting(folder, prepared, device, watch)
    watch(Said(f"scoring {_scored_part(prepared)} by greedy search for report.html"))
    run = Run(folder)
    findings = write_report(run, prepared)
    measure_alignment(run, prepared)
    if known := _seen_in_training(prepared.facts):
        watch(Said(f"warning: {known}, so that its scores are higher than on new texts"))
    for line in findings:
        watch(Said(f"warning: {line}"))
    if not findings and not schedule.is_warmed_up(end.step, end.seconds, settings.training):
        warmup = settings.training.warmup_steps
        watch(Said(f"warning: training ended during warm-up, after {end.step:,} of {warmup:,} steps: train longer"))
    return run


def complete(folder: Path, prepared: Prepared, device: torch.device, watch: Watch) -> Run:
    """Tell the user that a training is finished; do what is still missing after an interruption at its end: measure
    forgetting and alignment, and write the report.
    """
    line = f"{folder} is finished: nothing to resume"
    if checkpoint.newest(folder / "checkpoints") is not None:
        limits = "--set training.max_steps, training.max_minutes or training.patience"
        line += f". To train longer, raise the limit that it reached ({limits})"
    watch(Said(line))
    measure_forgetting(folder, prepared, device, watch)
    run = Run(folder)
    if not (folder / "report.html").exists():
        write_report(run, prepared)
    if "alignment" not in run.manifest:
        measure_alignment(run, prepared)
    return run


def measure_alignment(run: Run, prepared: Prepared) -> None:
    """Store in the manifest how well the head that was taught to align does so or, without the alignment loss, which
    part of the attention aligns best.
    """
    if prepared.settings.training.alignment_weight:
        method = alignment.measure_guided(run.bundle, prepared.valid)
        if method is not None and method.pairs:
            run.keep_fact("alignment", method.json())
    elif prepared.settings.model.attention:
        _ = run.alignment_method  # chosen now, and kept in the manifest


def not_finite(folder: Path, prepared: Prepared, found: NotFinite, corpus: Callable[[], Corpus]) -> RunError:
    """Return the error to raise after a loss or gradient that was not finite, and store its text in the manifest.

    Args:
        corpus: Function that opens the training pairs again, to find the files and lines of the pairs in `found`.
    """
    why = assessment.not_finite(found, _find_lines(prepared, found.pairs, corpus), prepared.settings)
    storage.write_manifest(folder, prepared.facts | {"diagnosis": {"findings": [why]}})
    return RunError(f"{folder}: {why}")


def measure_forgetting(folder: Path, prepared: Prepared, device: torch.device, watch: Watch) -> None:
    """In a fine-tuning, score initial and final weights on the new and, if available, the old validation set.

    The scores are stored in the manifest and reported. Nothing is done if the manifest has them already.
    """
    from seq2see.session import fine_tuning

    facts = storage.read_manifest(folder)
    about = facts.get("fine_tuning")
    if about is None or "scores" in about:
        return
    sets = {"new": (prepared.valid, prepared.valid_pairs)}
    if prepared.old_valid is not None:
        sets = {"old": (prepared.old_valid, prepared.old_valid_pairs), **sets}
    watch(Said("scoring the model before and after the fine-tuning"))
    used = bundle.load(folder, device)

    def measured() -> dict[str, dict[str, float]]:
        unit = error_unit(used.settings)
        return {which: validation.validate(used, *pairs, unit) for which, pairs in sets.items()}

    after = measured()
    bundle.read_weights(used.model, folder / "start.safetensors")
    before = measured()
    about["scores"] = {which: {"before": before[which], "after": after[which]} for which in sets}
    storage.write_manifest(folder, facts)
    names = {"old": about["from"], "new": facts["corpus"]}
    higher = {metric: metric not in LOWER_IS_BETTER for metric in before["new"]}
    for line in fine_tuning.table(names, about["scores"], higher):
        watch(Said(line))


def _diagnose(run: Run, prepared: Prepared, shown: list[Pair], evaluation: Evaluation) -> assessment.Assessment:
    """Return an assessment of a finished model, which compares its scores on the pairs `shown` with baselines."""
    tags = [language_tag(language) for language in run.tags]
    return assessment.assess(
        evaluation.scores,
        [result.text for result in evaluation.results],
        [without_tag(pair.source, tags) for pair in shown],
        [[pair.target, *pair.references] for pair in shown],
        assessment.frequencies(prepared.train, prepared.valid, prepared.tokenizers.target),
        journal.read(run.folder),
        run.settings,
        prepared.facts["pairs"],
    )


def _scored_part(prepared: Prepared) -> str:
    """Return a text that says which validation pairs are scored for the report."""
    pairs = len(prepared.valid_pairs)
    if pairs == 1:
        return "the only validation pair"
    return f"{REPORTED:,} of {pairs:,} validation pairs" if pairs > REPORTED else f"all {pairs:,} validation pairs"


def _seen_in_training(facts: Mapping[str, Any]) -> str:
    """Return a statement that validation pairs, or their sources, were trained on; an empty text if few were."""
    if "validated_on_training_pairs" in facts:
        return "the validation set consists of training pairs"
    seen = facts.get("validation_pairs_with_training_sources")
    if isinstance(seen, int):  # a damaged manifest may have something else
        return f"{seen:,} of {facts['validation_pairs']:,} sources of the validation set are also in the training pairs"
    return ""


def write_report(run: Run, prepared: Prepared) -> list[str]:
    """Write `report.html`: learning curves, and scores and translations of some validation pairs by the finished model.

    Problems of the model are recorded there and in the manifest, and returned as lines.
    """
    from seq2see.pictures import curves
    from seq2see.session import fine_tuning

    shown = [prepared.valid_pairs[place] for place in report.sample(len(prepared.valid_pairs), REPORTED)]
    evaluation = run.evaluate(shown, beam=1, engine=run.engine("torch"))
    calibration = calibrate(run, prepared)
    found = _diagnose(run, prepared, shown, evaluation)
    facts = run.manifest
    scored_on = f"{_scored_part(prepared)}, greedy search"
    known = _seen_in_training(facts)
    why = f"Note that {known}" if known else "The validation set has chosen this model"
    facts["diagnosis"] = {"scored_on": scored_on} | asdict(found)
    storage.write_manifest(run.folder, facts)
    report.write(
        run.folder / "report.html",
        title=str(facts["corpus"]),
        facts={
            "pairs": f"{facts['pairs']:,}",
            "parameters": f"{facts['parameters']:,}",
            "steps": f"{facts['steps']:,}",
            "training time": _time_spent(facts),
            "device": facts["device"],
            "ended": facts["ended"],
            **({"trials": _trials_in_words(facts["trials"])} if "trials" in facts else {}),
        },
        settings=asdict(run.settings),
        scores=report.ScoredSet(
            "validation set",
            f"{scored_on}. {why}, which makes its scores too good: score pairs that it has never seen with "
            f"seq2see evaluate {shlex.quote(str(run.folder))} PAIRS, and they are added here. " + evaluation.note,
            evaluation.rows,
        ),
        samples=[
            (shown[place].source, shown[place].target, evaluation.results[place].text)
            for place in report.sample(len(shown), SHOWN)
        ],
        curves_svg=curves.curves([row for row in journal.read(run.folder) if row.get("what", "model") == "model"]),
        data={
            "training pairs": f"{facts['pairs']:,}",
            "validation pairs": f"{facts['validation_pairs']:,}",
            "dropped: a side was empty": f"{facts['dropped_empty']:,}",
            "dropped: too long": f"{facts['dropped_too_long']:,}",
            "validation pairs dropped: too long": f"{facts.get('validation_dropped_too_long', 0):,}",
            "source tokens": f"{facts['source_tokens']:,}, vocabulary {len(prepared.tokenizers.source):,}",
            "target tokens": f"{facts['target_tokens']:,}, vocabulary {len(prepared.tokenizers.target):,}",
            **(
                {}
                if calibration
                else {"confidence": f"not calibrated: needs {confidence.FEWEST} unseen validation pairs"}
            ),
            **fine_tuning.as_facts(facts.get("fine_tuning", {})),
        },
        findings=found.findings,
        reliability=None if calibration is None else _drawn(calibration),
        attention=_attention(run),
    )
    return found.findings


def _attention(run: Run) -> report.Interactive | None:
    """Return the part of the report about how attention changed during training.

    Return None if the model has no attention, or if no readable history of it was recorded.
    """
    from seq2see.look import history as history_page

    with contextlib.suppress(RunError):  # a damaged file is no reason for a training to fail
        found = history.load(run.folder)
        if found is not None and run.settings.model.attention:
            rows = [row for row in journal.read(run.folder) if "validation" in row and row.get("what") == "model"]
            return history_page.section(found, {row["step"]: row["validation"] for row in rows}, run.languages)
    return None


def _drawn(calibration: confidence.Calibration) -> tuple[confidence.Calibration, str, str]:
    """Return a calibration of confidence, and its reliability curves before and after calibration as SVG."""
    from seq2see.pictures import curves

    return calibration, curves.reliability(calibration.curve_before), curves.reliability(calibration.curve_after)


def calibrate(run: Run, prepared: Prepared) -> confidence.Calibration | None:
    """Calibrate the confidence of translations on up to `CALIBRATED` validation pairs, and store it in the manifest.

    Return None if there are too few pairs, or if they were trained on. The beam width is that of the run, because
    translations by greedy search are less probable.
    """
    chosen = report.sample(len(prepared.valid_pairs), CALIBRATED)
    if len(chosen) < confidence.FEWEST or "validated_on_training_pairs" in prepared.facts:
        return None
    pairs = [prepared.valid_pairs[place] for place in chosen]
    results = run.search([pair.source for pair in pairs], engine=run.engine("torch"))
    measures: confidence.Measure = "exact" if run.settings.training.metric in ("exact", "error_rate") else "chrf"
    unit, logs, lengths, qualities = error_unit(run.settings), [], [], []
    for pair, result in zip(pairs, results, strict=True):
        translation = result.translations[0]
        if translation.tokens and translation.probability is not None:
            logs.append(math.log(max(translation.probability, confidence.LEAST)))
            lengths.append(len(translation.tokens) + 1)
            references = [pair.target, *pair.references]
            qualities.append(metrics.one(measures, [translation.text], [references], unit) / 100)
    calibration = confidence.fit(measures, logs, lengths, qualities)
    if calibration is not None:
        run.keep_fact("confidence", calibration.json())
    return calibration


def _trials_in_words(trials: Mapping[str, Any]) -> str:
    """Return the results of short trainings that compared settings (`trials`) as a text.

    An example is `suggested won; mean validation loss per sentence: suggested 3.212, wider 3.401`.
    """
    losses = ", ".join(f"{name} {each['loss']:.3f}" for name, each in trials["candidates"].items())
    return f"{trials['winner']} won; mean validation loss per sentence: {losses}"


def _time_spent(facts: dict[str, Any]) -> str:
    """Return a text with the duration of a training, and the share of it that was validation, if it is known."""
    total, validated = facts["trained_in_seconds"], facts.get("validated_in_seconds")  # not in runs before 0.2
    share = "" if validated is None else f", {100 * validated / max(total, 0.1):.0f} % of it validation"
    return f"{in_words(total)}{share}"


def in_words(seconds: float) -> str:
    """Return a duration as text, in its two largest units that are not 0: `754.2` -> `12 min 34 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or "0 s"


def _find_lines(prepared: Prepared, pairs: list[int], corpus: Callable[[], Corpus]) -> list[str]:
    """Return the beginnings of the texts of training pairs, given their indices in the store.

    File and line come before each text if the corpus can still be read. Pairs are recognised there by their tokens,
    because tags and normalisation have changed their texts.
    """
    cut, where = prepared.tokenizers, {}
    for number in pairs:
        source, _, target, _ = prepared.train.gather(np.array([number]))
        where[tuple(source[:-1].tolist()), tuple(target[:-1].tolist())] = ""
    missing = set(where)
    with contextlib.suppress(SeqError, OSError):
        for block in in_blocks(corpus().train, 1000):
            if not missing:
                break
            texts = [tagged(pair, prepared.settings.data.tags.split()) for pair in block]
            sources = map(tuple, cut.source.encode([pair.source for pair in texts]))
            targets = map(tuple, cut.target.encode([pair.target for pair in texts]))
            for pair, *tokens in zip(block, sources, targets, strict=True):
                if (key := tuple(tokens)) in missing:
                    missing.remove(key)
                    where[key] = f"{pair.where} "
    found = []
    for (source_ids, target_ids), place in where.items():
        text = without_tag(cut.source.decode(source_ids), cut.source.tags)
        found.append(f"{place}({text[:40]!r} -> {cut.target.decode(target_ids)[:40]!r})")
    return found
