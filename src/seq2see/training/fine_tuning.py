"""Fine-tuning: a run that begins with another run's model and tokenizers, and what it then forgets of that one's task.

RUN/start.safetensors       the weights that it began with: it needs the other run no more
    old_validation.jsonl    the other run's validation pairs, where it had them; their tokens are in corpus/old_valid
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from seq2see import bundle
from seq2see.bundle import Bundle
from seq2see.config import Overlay
from seq2see.errors import DataError, SettingError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair, Sides

EPOCHS = 10
STEPS_AN_EPOCH = 20
"""At least, while that leaves `FEWEST_TOKENS` for each: a batch that holds all new pairs learns them slowly."""
FEWEST_TOKENS = 1000
FEWEST_STEPS, MOST_STEPS = 300, 20_000
SLOWER = 5
"""Times below the peak rate of the training that made the model (docs/log.md)."""
FREE = {"max_length", "validation_pairs", "window_pairs", "dropout"}
"""Settings of data and model that change neither the tokens nor the weights of a model."""

Scores = dict[str, float]
Change = dict[str, Scores]
"""Scores `before` and `after`."""


@dataclass(frozen=True)
class Base:
    """The run that a fine-tuning starts from."""

    folder: Path
    bundle: Bundle
    languages: Sides
    valid_pairs: list[Pair]
    """What it validated on, tags included; empty where that is no longer at hand."""
    original: dict[str, float]
    """Peak rate and batch of the training that made its model: fine-tuning it twice is not twice as slow."""
    held_out_by: str
    """The hash that chose its validation pairs, one of `held_out.HASHES`."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def tags(self) -> list[str]:
        return self.bundle.settings.data.tags.split()


def open_base(folder: Path) -> Base:
    """Read a finished or interrupted run; an error where it has no weights yet."""
    facts = bundle.read_manifest(folder)
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
    return Base(folder, used, Sides(**facts.get("languages", {})), valid_pairs, original, held_out_by)


def name_of(folder: Path) -> str | None:
    """Of the run that the run in `folder` was started from; None where it was started from nothing."""
    name: str | None = bundle.read_manifest(folder).get("fine_tuning", {}).get("from")
    return name


def check(base: Base, overlays: Sequence[Overlay], tag: bool) -> None:
    """Refuse what would change the model or its tokens."""
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
        raise SettingError(f"--tag: {base.folder} was trained without, and --from keeps its tokenizers. Leave it out")


def suggest(base: Base, tokens: int, asked: Mapping[str, Any]) -> Overlay:
    """What suits `tokens` tokens of new pairs: a lower rate, a short warm-up, a few epochs in smaller steps.

    Args:
        asked: the user's own settings of training, that the others are to fit.
    """
    most = int(base.original["batch_tokens"])
    batch = asked.get("batch_tokens", min(most, max(FEWEST_TOKENS, tokens // STEPS_AN_EPOCH)))
    steps = asked.get("max_steps", min(MOST_STEPS, max(FEWEST_STEPS, math.ceil(EPOCHS * tokens / batch))))
    tenth = max(1, steps // 10)
    return {
        "training": {
            "batch_tokens": batch,
            "max_steps": steps,
            "max_minutes": 0.0,
            "schedule": "cosine",
            "learning_rate": float(f"{base.original['peak'] / SLOWER:.3g}"),
            "warmup_steps": tenth,
            "validate_every": tenth,
            "log_every": min(tenth, base.bundle.settings.training.log_every),
        }
    }


def reasons(base: Base, pairs: int) -> dict[str, str]:
    """Why the settings are as they are, by the rows of the table that `train` prints."""
    kept = dict.fromkeys(("source", "target", "model", "dropout"), f"as in {base.name}")
    return kept | {
        "batch": f"for {STEPS_AN_EPOCH} steps in an epoch, from {FEWEST_TOKENS:,} to {base.original['batch_tokens']:,}",
        "stopping": "ten looks on the way",
        "rate": f"1/{SLOWER} of what {base.name} began with, so that less is forgotten",
        "steps": f"{EPOCHS} epochs of {pairs:,} pairs, at least {FEWEST_STEPS}",
    }


def load_start(folder: Path, model: nn.Module) -> None:
    """Give a model the weights that the run in `folder` began with."""
    bundle.read_weights(model, folder / "start.safetensors")


def table(names: Mapping[str, str], changes: Mapping[str, Change], higher_is_better: Mapping[str, bool]) -> list[str]:
    """Scores on the old and the new validation set before and after, as lines, and what to do where much is forgotten.

    Args:
        names: what the sets are called, by the keys of `changes`.
    """
    rows = []
    forgot = False
    for which, change in changes.items():
        title = f"{which}: {names[which]}"
        for metric in reversed(change["before"]):  # the metric that chose the model comes before the loss
            before, after = change["before"][metric], change["after"][metric]
            verdict = "better" if (after > before) == higher_is_better[metric] else "worse"
            rows.append((title, metric, _number(before), _number(after), "same" if after == before else verdict))
            if which == "old" and title and verdict == "worse":  # small changes are chance as often as not
                forgot = abs(after - before) > 0.05 * abs(before)
            title = ""
    rows.insert(0, ("validation", "", "before", "after", ""))
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [
        f"{name:{first}}  {metric:{second}}  {before:>8}  {after:>8}  {verdict}".rstrip()
        for name, metric, before, after, verdict in rows
    ]
    if forgot:
        lines.append(f"to forget less, put some of the pairs of {names['old']} among the new ones, or train less")
    return lines


def as_facts(about: Mapping[str, Any]) -> dict[str, str]:
    """What the manifest says of a fine-tuning, for a page."""
    found = {"fine-tuned from": str(about["from"])} if about else {}
    for which, change in about.get("scores", {}).items():
        for metric, before in change["before"].items():
            after = change["after"][metric]
            found[f"{metric} on the {which} validation pairs"] = f"{_number(before)} before, {_number(after)} after"
    return found


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"
