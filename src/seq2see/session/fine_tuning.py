"""Fine-tuning: start from the model and tokenizers of another run, and measure what is forgotten of its task.

RUN/start.safetensors       the initial weights, so that the other run is no longer needed
    old_validation.jsonl    the validation pairs of the other run, if it had any; their tokens are in corpus/old_valid
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seq2see import bundle, config, special, storage
from seq2see.config import Overlay
from seq2see.display.wording import columns, padded, translated
from seq2see.errors import DataError, RunError, SettingError
from seq2see.session.prepare import Chosen, chosen_in, limit_length, reporter
from seq2see.session.request import Base, Prepared, Request
from seq2see.session.survey import Survey, as_count, to_hold_out
from seq2see.text.corpora import Corpus, Pairs
from seq2see.text.pair import Sides
from seq2see.text.rows import write_pairs
from seq2see.tokens import store

EPOCHS = 10
STEPS_AN_EPOCH = 20
"""Number of steps per epoch for which the batch size of a fine-tuning is chosen: if all new pairs were one batch, there
would be few updates. A batch has at least `FEWEST_TOKENS` tokens, and at most as many as in the original training.
"""
FEWEST_TOKENS = 1000
FEWEST_STEPS, MOST_STEPS = 300, 20_000
SLOWER = 5
"""Factor by which the peak learning rate of a fine-tuning is lower than that of the original training (docs/log.md)."""
FREE = {"max_length", "validation_pairs", "window_pairs", "hallucination", "dropout"}
"""Settings in `data` and `model` that may differ from those of the run that is fine-tuned, because they change neither
its tokens nor the shapes of its weights.
"""

Scores = dict[str, float]
Change = dict[str, Scores]
"""Scores on one validation set, by metric, under the keys `before` and `after` (the fine-tuning)."""


def check_places(from_run: Path, folder: Path) -> None:
    """Raise an error if the new run would be written into the folder of the run that is fine-tuned, or into a folder
    that contains it: `--force` would delete that run.
    """
    old = Path(os.path.realpath(from_run))
    if Path(os.path.realpath(folder)) in (old, *old.parents):
        raise RunError(f"{folder}: is or contains the run that --from names. Choose another --out for the new run")


def open_base(request: Request) -> Base:
    """Read the run that is fine-tuned, finished or interrupted.

    Raise an error if it has no weights yet, or if the requested settings do not fit it (`check`).
    """
    assert request.from_run is not None
    folder = request.from_run
    facts = storage.read_manifest(folder)
    used = bundle.load(folder)
    training = used.settings.training
    original = facts.get("fine_tuning", {}).get("original") or {
        "peak": training.peak_rate(used.settings.model.d_model),
        "batch_tokens": training.batch_tokens,
    }
    try:
        valid_pairs = list(Pairs(folder / "validation.jsonl", references=True))
    except DataError:
        valid_pairs = []
    held_out_by = facts.get("held_out_by", "crc32")  # seq2see 0.1.0 had no other, and did not record it
    base = Base(folder, used, Sides(**facts.get("languages", {})), valid_pairs, original, held_out_by)
    check(base, request.overlays, request.tag)
    return base


def choose_settings(base: Base, survey: Survey, corpus: Corpus, request: Request) -> Chosen:
    """Choose the settings of a fine-tuning: the user's, else those that `suggest` returns, else those of `base`.

    Report if the new pairs have other languages or unknown tokens.
    """
    say = reporter(request)
    own = asdict(base.bundle.settings)
    data = config.resolve(own, *request.overlays).data
    _, kept = limit_length(survey, data, base.bundle.tokenizers, data.max_length)
    say(f"starting from {base.folder}, with its model and tokenizers")
    tokens = _tokens_of(base, kept, survey.languages, corpus, say)
    overlays = [own, suggest(base, tokens, chosen_in("training", request.overlays)), *request.overlays]
    if (hold_out := to_hold_out(request.valid)) is not None:
        overlays.append({"data": {"validation_pairs": as_count(hold_out, kept.pairs)}})
    return Chosen(config.resolve(*overlays), reasons(base, kept.pairs), kept)


def _tokens_of(base: Base, survey: Survey, languages: set[str], corpus: Corpus, say: Callable[[str], None]) -> int:
    """Estimate the number of tokens of the new pairs, both sides together; report unknown tokens and other languages.

    Raise an error if more than half of the tokens of a side are unknown to the base run, or if it has language tags,
    but none for some of the new target languages.
    """
    if base.tags and languages - set(base.tags):
        raise DataError(
            f"{corpus.name}: has target language {', '.join(sorted(languages - set(base.tags)))}, and {base.folder} "
            f"translates to {', '.join(base.tags)}: to add a language, train without --from"
        )
    for side, has, new in zip(("source", "target"), base.languages, corpus.train.languages, strict=True):
        if has and new and has != new and not base.tags:
            say(f"warning: the {side} language of {base.folder} is '{has}', but that of {corpus.name} is '{new}'")
    looked_at = survey.sample[:: max(1, len(survey.sample) // 1000)]
    tokens = 0
    for side, cut in (("source", base.bundle.tokenizers.source), ("target", base.bundle.tokenizers.target)):
        ids = [id for text in cut.encode([getattr(pair, side) for pair in looked_at]) for id in text]
        tokens += len(ids) + len(looked_at)  # each ends with END
        unknown = ids.count(special.UNKNOWN)
        if 2 * unknown > len(ids):
            raise DataError(
                f"{corpus.name}: {unknown:,} of {len(ids):,} sampled {side} tokens are unknown to {base.folder}, "
                "and would stay unknown: train without --from"
            )
        if unknown:
            say(f"{unknown:,} of {len(ids):,} sampled {side} tokens are unknown to {base.folder}, and stay unknown")
            if cut.kind in ("symbols", "marks", "pattern"):
                say(f"to learn new words, train {base.folder} again with --set data.{side}_tokenizer=unigram")
    return round(tokens / len(looked_at) * survey.pairs)


def keep(base: Base, folder: Path, prepared: Prepared, request: Request) -> Prepared:
    """Store in `folder` what is needed to measure forgetting at the end: the initial weights, and the validation set of
    `base`, if it has one.

    Return `prepared` with this validation set, and with `fine_tuning` and the languages of `base` in its facts.
    """
    say = reporter(request)
    if base.met:
        known = len({pair.source for pair in base.valid_pairs})
        say(
            f"{len(base.met):,} of the {known:,} old validation sources are among the new training pairs, "
            "so forgetting will be underestimated"
        )
    bundle.save_weights(base.bundle.model, folder / "start.safetensors")
    sides = (old or new for old, new in zip(base.languages, prepared.facts["languages"].values(), strict=True))
    languages = base.languages if base.tags else Sides(*sides)
    about = {"from": base.name, "original": base.original}
    facts = prepared.facts | {"languages": languages._asdict(), "fine_tuning": about}
    prepared = replace(prepared, facts=facts)
    if not base.valid_pairs:
        say(f"{base.folder / 'validation.jsonl'}: no pairs, so forgetting cannot be measured")
        return prepared
    limit, tokenizers, name = prepared.settings.data.max_length, prepared.tokenizers, "the old validation set"
    pairs = store.for_validation(name, base.valid_pairs, tokenizers, limit, say)
    old_valid, _ = store.write_tokenised(folder, "old_valid", pairs, tokenizers, limit, name)
    write_pairs(folder / "old_validation.jsonl", pairs)
    return replace(prepared, old_valid=old_valid, old_valid_pairs=pairs)


def check(base: Base, overlays: Sequence[Overlay], tag: bool) -> None:
    """Raise an error if the user's settings, or `--tag`, would change the architecture or the tokenizers of `base`."""
    for overlay in overlays:
        for section in ("data", "model"):
            has = getattr(base.bundle.settings, section)
            for key, value in overlay.get(section, {}).items():
                if key not in FREE and value != getattr(has, key):
                    raise SettingError(
                        f"{section}.{key} = {value!r} (by --set, --config or --preset): --from keeps the model and the "
                        f"tokenizers of {base.folder}, where it is {getattr(has, key)!r}. Leave it out, or train anew "
                        "without --from"
                    )
    if tag and not base.tags:
        raise SettingError(
            f"--tag: {base.folder} was trained without --tag, and --from keeps its tokenizers. Leave it out"
        )


def suggest(base: Base, tokens: int, asked: Mapping[str, Any]) -> Overlay:
    """Return training settings for a fine-tuning: a lower learning rate, a short warm-up, and batches and steps that
    fit the new pairs.

    Args:
        tokens: Number of tokens of the new pairs, both sides together.
        asked: The training settings of the user, which the suggested ones must fit.
    """
    most = int(base.original["batch_tokens"])
    batch = asked.get("batch_tokens", min(most, max(FEWEST_TOKENS, tokens // STEPS_AN_EPOCH)))
    steps = asked.get("max_steps", min(MOST_STEPS, max(FEWEST_STEPS, math.ceil(EPOCHS * tokens / batch))))
    tenth = max(1, steps // 10)
    return {
        "data": {"hallucination": 0.0},  # the model has learned to copy
        "training": {
            "batch_tokens": batch,
            "max_steps": steps,
            "max_minutes": 0.0,
            "schedule": "cosine",
            "learning_rate": float(f"{base.original['peak'] / SLOWER:.3g}"),
            "warmup_steps": tenth,
            "validate_every": tenth,
            "log_every": min(tenth, base.bundle.settings.training.log_every),
        },
    }


def reasons(base: Base, pairs: int) -> dict[str, str]:
    """Return the reasons for the settings of a fine-tuning on `pairs` pairs, keyed by the rows of `suggest.ROWS`."""
    kept = dict.fromkeys(("source", "target", "model", "dropout"), f"as in {base.name}")
    most = int(base.original["batch_tokens"])
    return kept | {
        "batch": f"for {STEPS_AN_EPOCH} steps per epoch; {FEWEST_TOKENS:,} to {most:,} tokens"
        if most > FEWEST_TOKENS
        else f"as in {base.name}",
        "stopping": "validated ten times during the training",
        "learning rate": f"1/{SLOWER} of that of the original training, to forget less",
        "steps": f"{EPOCHS} epochs of {pairs:,} pairs, at least {FEWEST_STEPS}",
    }


def table(names: Mapping[str, str], changes: Mapping[str, Change], higher_is_better: Mapping[str, bool]) -> list[str]:
    """Return lines of a table with the scores before and after a fine-tuning, on the old and the new validation set.

    If the metric that chose the model became worse by more than 5 % on the old set, a line of advice follows.

    Args:
        names: The display name of each validation set, by the keys of `changes`: `old` and `new`.
    """
    rows = []
    forgot = False
    for which, change in changes.items():
        title = f"{translated(which)}: {names[which]}"
        for metric in reversed(change["before"]):  # the metric that chose the model comes before the loss
            before, after = change["before"][metric], change["after"][metric]
            verdict = "better" if (after > before) == higher_is_better[metric] else "worse"
            verdict = "same" if after == before else verdict
            rows.append((title, translated(metric), _number(before), _number(after), translated(verdict)))
            if which == "old" and title and verdict == "worse":  # small changes are chance as often as not
                forgot = abs(after - before) > 0.05 * abs(before)
            title = ""
    rows.insert(0, (translated("validation"), "", translated("before"), translated("after"), ""))
    first, second = (max(columns(row[column]) for row in rows) for column in (0, 1))
    lines = []
    for name, metric, *numbers, verdict in rows:
        values = "  ".join(padded(text, 8, right=True) for text in numbers)
        lines.append(f"{padded(name, first)}  {padded(metric, second)}  {values}  {verdict}".rstrip())
    if forgot:
        lines.append(f"to forget less, add some pairs of {names['old']} to the new ones, or train for fewer steps")
    return lines


def as_facts(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the entry `fine_tuning` of a manifest as texts for `report.html`; empty if it is empty."""
    found = {"fine-tuned from": str(about["from"])} if about else {}
    for which, change in about.get("scores", {}).items():
        for metric, before in change["before"].items():
            after = change["after"][metric]
            found[f"{metric} on the {which} validation pairs"] = f"{_number(before)} before, {_number(after)} after"
    return found


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"
