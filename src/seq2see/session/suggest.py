"""The settings that a corpus suggests: tokenizers, model size, batch, learning rate, steps.

The same corpus suggests the same settings on every machine; a preset, a file or `--set` overrides them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from seq2see import config
from seq2see.config import Model, preset
from seq2see.session import token_kinds
from seq2see.session.choices import counted
from seq2see.session.survey import Survey


@dataclass(frozen=True)
class Suggestion:
    """Settings for a corpus, and the reasons for them."""

    settings: dict[str, dict[str, Any]]
    """An overlay for `config.resolve`."""
    reasons: dict[str, str]
    """Short reasons that name facts of the corpus, by the rows of `choices.ROWS`."""


def suggest(corpus: Survey, chosen: Mapping[str, Any] | None = None) -> Suggestion:
    """Return settings for a corpus that was surveyed.

    Args:
        chosen: The model settings of the user; an RNN gets the others.
    """
    pairs = corpus.pairs
    tokens = token_kinds.choose(corpus)
    language, shared = tokens.language, tokens.shared
    letters = (corpus.source.characters + corpus.target.characters) / pairs
    if pairs < 5000 or (pairs < 50_000 and letters < 60 and not language):
        size = "tiny"
    elif pairs < 20_000 and language:
        size = "compact"
    else:
        size = "small" if pairs < 500_000 else "paper-base"
    drop_more = (language or size == "small") and pairs < 200_000
    training, reasons = _training(size, pairs, language, drop_more)
    settings = {
        "data": tokens.settings,
        "model": {
            **preset(size)["model"],
            **({"encoder_layers": 4, "decoder_layers": 4} if size == "small" and not language else {}),
            "tie": "all" if shared else "decoder",
            "dropout": 0.1 if not drop_more else 0.3 if language else 0.2,
        },
        "training": {**training, "metric": "loss" if language else "exact"},
    }
    reasons |= tokens.reasons | {
        "model": f"for {counted(pairs, 'pair')} of {tokens.lengths}",
        "dropout": f"{counted(pairs, 'pair')} are few, so overfitting is likely"
        if drop_more
        else f"{counted(pairs, 'pair')} are many, so overfitting is unlikely"
        if pairs >= 200_000
        else "short sequences need little dropout",
        "stopping": "a sentence has several correct translations" if language else "an output is either right or wrong",
    }
    if chosen and chosen.get("architecture", "transformer") != "transformer":
        settings["model"] = _recurrent(config.resolve(settings).model, chosen)
        if chosen["architecture"] == "rnn":
            settings["model"]["source_reversed"] = language
        settings["training"]["learning_rate"] *= RNN_RATE
        reasons["model"] = "as many parameters as a Transformer"
        if settings["training"]["learning_rate"]:
            reasons["learning rate"] = "twice that of a Transformer"
    return Suggestion(settings, reasons)


RNN_LAYERS, RNN_RATE = 1, 2
"""Layers of each side of an RNN, and its learning rate relative to a Transformer's, both measured (docs/log.md)."""


def _recurrent(transformer: Model, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RNN that the user asks for, with as many parameters as the Transformer for this corpus."""
    from seq2see.model.build import count_parameters

    layers = chosen.get("encoder_layers", chosen.get("decoder_layers", RNN_LAYERS))
    found = {name: getattr(transformer, name) for name in ("d_model", "dropout", "tie")}
    found |= {"encoder_layers": layers, "decoder_layers": layers}
    asked = Model(**found | dict(chosen))
    sizes = {width: count_parameters(replace(asked, d_hidden=width), 0, 0) for width in range(4, 8192, 4)}
    wanted = count_parameters(transformer, 0, 0)
    return found | {"d_hidden": min(sizes, key=lambda width: abs(sizes[width] - wanted))}


def _training(size: str, pairs: int, language: bool, drop_more: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the training settings for a model size, and the reasons; the number of steps is from docs/log.md."""
    found = dict(_TRAINING[size])
    reasons = {
        "batch": "works well for a model of this size",
        "learning rate": "a high learning rate works for this size",
        "steps": "enough for a model of this size",
    }
    if size in ("compact", "small"):
        # Nine for a compact model: ten thousand pairs then take two slow cores some eleven minutes.
        for_each = 9 if size == "compact" else 7 if language and not drop_more else 4 if language else 5
        found["max_steps"] = min(20_000, max(1000, pairs // for_each))
        reasons["steps"] = {
            1000: "the minimum for a model of this size",
            20_000: "the maximum for a model of this size",
        }.get(found["max_steps"], f"one step per {for_each} pairs, for {pairs:,} pairs")
    if size == "small" and drop_more:
        found |= {"agreement": 2.5} if language else {"agreement": 1.0, "weight_decay": 0.3}
    if size == "small":
        if not language:
            reasons["learning rate"] = "works well for a model of this size"
        found["learning_rate"] = 2e-3 if language else 1e-3
        if not language:  # exact match is noisy and improves until the end: it needs patience
            found["validate_every"] = 500
    if size == "paper-base":
        reasons = dict.fromkeys(("batch", "learning rate", "steps"), f"as in the paper, for {counted(pairs, 'pair')}")
    return found, reasons


_TRAINING: dict[str, dict[str, Any]] = {
    "tiny": {
        "batch_tokens": 4096,
        "max_steps": 2000,
        "warmup_steps": 200,
        "learning_rate": 5e-3,
        "schedule": "cosine",
        "validate_every": 200,
    },
    "compact": {
        "batch_tokens": 8192,
        "warmup_steps": 300,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "validate_every": 200,
    },
    "small": {
        "batch_tokens": 8192,
        "warmup_steps": 400,
        "schedule": "cosine",
        "validate_every": 250,
    },
    "paper-base": preset("paper-base")["training"],
}
