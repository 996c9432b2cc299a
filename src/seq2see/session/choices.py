"""The table that `train` prints: every setting in words, with the reason for it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seq2see import patterns
from seq2see.bundle import model_in_words
from seq2see.config import Data, Settings

ROWS: dict[str, tuple[str, ...]] = {
    "source": (
        "data.source_tokenizer",
        "data.source_vocabulary",
        "data.source_pattern",
        "data.source_tags",
        "data.shared",
    ),
    "target": (
        "data.target_tokenizer",
        "data.target_vocabulary",
        "data.target_pattern",
        "data.target_tags",
        "data.shared",
    ),
    "model": (
        "model.architecture",
        "model.encoder_layers",
        "model.decoder_layers",
        "model.d_model",
        "model.heads",
        "model.d_ff",
        "model.cell",
        "model.d_hidden",
    ),
    "dropout": ("model.dropout", "training.agreement", "training.weight_decay"),
    "batch": ("training.batch_tokens",),
    "learning rate": ("training.learning_rate", "training.warmup_steps", "training.schedule"),
    "steps": ("training.max_steps", "training.max_minutes"),
    "stopping": ("training.metric", "training.patience", "training.validate_every"),
    "machine": ("training.micro_batch_tokens", "training.precision"),
}
"""The rows of the table that `train` prints, with the settings that each shows."""

METRICS = {
    "loss": "validation loss",
    "exact": "exact match",
    "error_rate": "error rate",
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
}
"""Names of the metrics in the table."""
UNITS = {
    "unigram": "subwords (unigram)",
    "bpe": "subwords (BPE)",
    "characters": "characters",
    "symbols": "symbols, split at spaces",
    "pattern": "tokens (regular expression)",
    "jamo": "characters and Korean letters (jamo)",
    "imported": "subwords (imported)",
}
"""Names of the tokens of each kind of tokenizer in the table."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 pair` or `12,000 pairs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Choice:
    """One row of the table that `train` prints: a value, and the reason for it."""

    name: str
    value: str
    why: str
    """The reason; empty where the user has chosen."""
    yours: list[str]
    """The settings of this row that the user has set, by option, file or preset."""
    settings: dict[str, Any]


def choices(
    settings: Settings,
    reasons: Mapping[str, str],
    yours: Collection[str],
    facts: Mapping[str, Any],
    vocabularies: tuple[int, int],
    machine: str,
) -> list[Choice]:
    """Return all rows of `ROWS`.

    Args:
        reasons: The reason for each row, where the user has not chosen.
        yours: The settings that the user has chosen, such as `model.dropout`.
        facts: The manifest: tokens, pairs and parameters.
        vocabularies: The numbers of tokens of source and target.
        machine: What depends on the machine, in words.
    """
    data, model, training = settings.data, settings.model, settings.training
    tokens_a_pair = (facts["source_tokens"] + facts["target_tokens"]) / facts["pairs"]
    pairs_a_step = max(1, round(training.batch_tokens / tokens_a_pair))
    epochs = round(training.max_steps * training.batch_tokens / (tokens_a_pair * facts["pairs"]))
    length = f"about {counted(epochs, 'epoch')}" if epochs else "less than an epoch"
    rate = training.peak_rate(model.d_model)
    stale = training.patience * training.validate_every
    values = {
        "source": _tokens(data, "source", vocabularies[0]) + (", for both sides" if data.shared else ""),
        "target": "shared with the source" if data.shared else _tokens(data, "target", vocabularies[1]),
        "model": f"{model_in_words(model)}: {facts['parameters']:,} parameters",
        "dropout": f"{model.dropout:g}"
        + (f"; R-Drop {training.agreement:g} (consistency loss)" if training.agreement else "")
        + (f"; weight decay {training.weight_decay:g}" if training.weight_decay else ""),
        "batch": f"{training.batch_tokens:,} tokens, about {counted(pairs_a_step, 'pair')}",
        "learning rate": f"{rate:.1e} after {counted(training.warmup_steps, 'warm-up step')}, then "
        f"{'cosine to 0' if training.schedule == 'cosine' else '1/sqrt(step)'}",
        "steps": f"at most {training.max_steps:,}, {length}"
        + (f"; {training.max_minutes:g} min" if training.max_minutes else ""),
        "stopping": f"if {METRICS[training.metric]} does not improve for {counted(stale, 'step')}"
        if training.patience
        else f"only at the last step; best by {METRICS[training.metric]}",
        "machine": machine,
    }
    tree = {"data": data, "model": model, "training": training}
    found = []
    for name, keys in ROWS.items():
        own = [key for key in keys if key in yours]
        held = {key: getattr(tree[key.partition(".")[0]], key.partition(".")[2]) for key in keys}
        found.append(Choice(name, values[name], "" if own else reasons.get(name, ""), own, held))
    return found


def _tokens(data: Data, side: str, vocabulary: int) -> str:
    kind, pattern = getattr(data, f"{side}_tokenizer"), getattr(data, f"{side}_pattern")
    unit = UNITS[kind]
    if kind == "pattern" and pattern in patterns.NAMED:
        unit = f"tokens (pattern {pattern})"
    return f"{vocabulary:,} {unit}" + (" and tags" if getattr(data, f"{side}_tags") != "none" else "")
