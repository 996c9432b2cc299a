"""The settings that a corpus suggests: tokenizers (`token_kinds`), model size, regularisation, learning rate, steps.

The same corpus suggests the same settings on every machine; a preset, a file or `--set` overrides them. Every number is
read from `RULES`, between whose rows it is interpolated on a logarithmic scale: a corpus that is slightly larger gets
slightly different settings.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from seq2see import config
from seq2see.config import Model, preset
from seq2see.session import token_kinds
from seq2see.session.choices import counted
from seq2see.session.survey import Side, Survey


@dataclass(frozen=True)
class Suggestion:
    """Settings for a corpus, and the reasons for them."""

    settings: dict[str, dict[str, Any]]
    """An overlay for `config.resolve`."""
    reasons: dict[str, str]
    """Short reasons that name facts of the corpus, by the rows of `choices.ROWS`."""
    candidates: tuple[dict[str, Any], ...] = ()
    """Tokenizers that trials may compare, as overlays for `data`; the first is that of `settings`."""


class Rule(NamedTuple):
    """Settings for one amount of data."""

    amount: float
    """Geometric mean of the numbers of pairs and of tokens (`tokens_of`)."""
    width: float
    layers: float
    """Layers of the encoder, and of the decoder."""
    dropout: float
    agreement: float
    weight_decay: float
    learning_rate: float
    batch: float
    """Tokens in one update."""
    trained: float
    """Tokens that the longest training sees, repetitions included; the number of steps is `trained / batch`."""


SENTENCES = (
    # amount, width, layers, dropout, R-Drop, decay, learning rate, batch, trained
    Rule(1e3, 96, 2, 0.3, 0.0, 0.0, 5e-3, 2048, 3e6),
    Rule(1.5e4, 96, 2, 0.3, 0.0, 0.0, 5e-3, 4096, 8.2e6),
    Rule(3.8e4, 128, 3, 0.3, 0.0, 0.0, 3e-3, 8192, 1.08e7),  # 11,823 questions and answers
    Rule(6.4e4, 128, 3, 0.3, 0.0, 0.0, 3e-3, 8192, 1.4e7),  # 10,000 captions
    Rule(1.87e5, 256, 3, 0.3, 2.5, 0.0, 2e-3, 8192, 5.94e7),  # 29,000 captions: Multi30k
    Rule(4.5e5, 256, 3, 0.3, 2.5, 0.0, 2e-3, 8192, 1.64e8),  # 88,000 messages: Debian
    Rule(1e6, 256, 3, 0.3, 2.5, 0.0, 2e-3, 8192, 2.5e8),
    Rule(6e6, 384, 4, 0.1, 0.0, 0.0, 1e-3, 16_384, 8e8),
    Rule(2.5e7, 512, 6, 0.1, 0.0, 0.0, 7e-4, 32_768, 2e9),
    Rule(1e9, 512, 6, 0.1, 0.0, 0.0, 7e-4, 49_152, 5e9),
)
"""For sentences: outputs of which several are right."""

EXACT = (
    Rule(3e2, 64, 2, 0.3, 2.0, 0.5, 5e-3, 1024, 1.2e6),
    Rule(3e3, 96, 2, 0.3, 2.0, 0.5, 5e-3, 1024, 3e6),  # 800 words
    Rule(1.5e4, 128, 3, 0.3, 2.0, 0.5, 3e-3, 1536, 8e6),  # 3,600 words
    Rule(3.3e4, 192, 3, 0.3, 1.5, 0.4, 2e-3, 3072, 2.45e7),  # 8,000 words
    Rule(1.35e5, 256, 4, 0.25, 1.0, 0.3, 1e-3, 8192, 6.5e7),  # 33,000 words
    Rule(4.5e5, 256, 4, 0.2, 1.0, 0.3, 1e-3, 8192, 1.64e8),  # 113,000 words: CMUdict
    Rule(1e6, 256, 4, 0.2, 1.0, 0.3, 1e-3, 8192, 2.5e8),
    Rule(6e6, 384, 5, 0.1, 0.0, 0.0, 7e-4, 16_384, 8e8),
    Rule(2.5e7, 512, 6, 0.1, 0.0, 0.0, 5e-4, 32_768, 2e9),
    Rule(1e9, 512, 6, 0.1, 0.0, 0.0, 5e-4, 49_152, 5e9),
)
"""For outputs that are either right or wrong: sounds, inflected forms, molecules."""


def suggest(
    corpus: Survey,
    chosen: Mapping[str, Any] | None = None,
    known: config.Overlay | None = None,
    steps: int | None = None,
) -> Suggestion:
    """Return settings for a corpus that was surveyed.

    Args:
        chosen: The model settings of the user; a model that the Transformer replaced gets the others.
        known: Settings that are known to suit this corpus, which override those of the rules.
        steps: The number of updates that the user asks for; warm-up and validations are placed accordingly.
    """
    tokens = token_kinds.choose(corpus)
    language, shared = tokens.language, tokens.shared
    text = tokens_of(corpus, tokens.settings)
    rule = between(SENTENCES if language else EXACT, math.sqrt(corpus.pairs * text))
    settings = {
        "data": tokens.settings,
        "model": {**_model(rule), "tie": "all" if shared else "decoder"},
        "training": {**_training(rule, steps), "metric": "loss" if language else "exact"},
    }
    pairs = counted(corpus.pairs, "pair")
    size = "for a model of this size"
    reasons = tokens.reasons | {
        "model": f"for {pairs} of {tokens.lengths}",
        "dropout": f"{pairs} are few, so overfitting is likely"
        if rule.dropout > 0.15
        else f"{pairs} are many, so overfitting is unlikely",
        "batch": f"works well {size}",
        "learning rate": f"works well {size}",
        "steps": f"for about {float(f'{text:.2g}'):,.0f} tokens of text",
        "stopping": "a sentence has several correct translations" if language else "an output is either right or wrong",
    }
    for section, values in (known or {}).items():
        settings[section] |= values
    if chosen and chosen.get("architecture", "transformer") != "transformer":
        settings["model"] = _replaced(config.resolve(settings).model, chosen, corpus)
        if chosen["architecture"] == "rnn":
            settings["model"]["source_reversed"] = language
        settings["training"]["learning_rate"] *= RATE
        reasons["model"] = "as many parameters as a Transformer"
        reasons["learning rate"] = "twice that of a Transformer"
    return Suggestion(settings, reasons, tokens.candidates)


def tokens_of(corpus: Survey, data: Mapping[str, Any]) -> float:
    """Return about how many tokens the tokenizers of `data` will make of a corpus, the end of each text included."""
    sides = (corpus.source, data["source_tokenizer"]), (corpus.target, data["target_tokenizer"])
    return sum(corpus.pairs + _side_tokens(side, kind) for side, kind in sides)


def _side_tokens(side: Side, kind: str) -> float:
    if kind == "symbols":
        return side.words
    if kind not in ("unigram", "bpe"):
        return side.characters * (2.3 if kind == "jamo" else 1)
    spaced = min(1.0, max(0.0, (side.words / max(1, side.characters) - 0.05) / 0.07))
    return side.characters * (0.6 - 0.3 * spaced)  # of scripts without spaces, a subword has fewer characters


def between(rules: tuple[Rule, ...], amount: float) -> Rule:
    """Interpolate linearly between two rules, on a logarithmic scale of the amount; for sizes, of the size as well.

    >>> between(SENTENCES, 187_000).width
    256.0
    """
    amount = min(max(amount, rules[0].amount), rules[-1].amount)
    above = next(place for place, rule in enumerate(rules[1:], 1) if amount <= rule.amount)
    low, high = rules[above - 1], rules[above]
    share = math.log(amount / low.amount) / math.log(high.amount / low.amount)
    found = {}
    for name, one, other in zip(Rule._fields, low, high, strict=True):
        if name in ("layers", "dropout", "agreement", "weight_decay"):
            found[name] = one + share * (other - one)
        else:
            found[name] = one * (other / one) ** share
    return Rule(**found)


def rounded(number: float, step: float) -> float:
    """Return the multiple of `step` that is nearest to a number."""
    return round(round(number / step) * step, 6)


def _model(rule: Rule) -> dict[str, Any]:
    """Return the settings of the model: pre-norm and rotary positions, as in the preset `small`, at any size."""
    width, layers = int(rounded(rule.width, 16)), round(rule.layers)
    return {
        **preset("small")["model"],
        "encoder_layers": layers,
        "decoder_layers": layers,
        "d_model": width,
        "heads": 4 if width < 384 else 8,
        "d_ff": 4 * width,
        "dropout": rounded(rule.dropout, 0.05),
    }


def _training(rule: Rule, steps: int | None) -> dict[str, Any]:
    """Return the settings of training: about thirty validations, eight of which without improvement end it.

    Args:
        steps: The number of updates; None for that of the rule.
    """
    batch = int(rounded(rule.batch, 256))
    steps = steps or int(float(f"{rule.trained / batch:.3g}"))
    return {
        "batch_tokens": batch,
        "max_steps": steps,
        "warmup_steps": max(1, int(rounded(max(min(400, steps / 6), steps / 50), 10))),
        "learning_rate": float(f"{rule.learning_rate:.2g}"),
        "schedule": "cosine",
        "agreement": rounded(rule.agreement, 0.5),
        "weight_decay": rounded(rule.weight_decay, 0.1),
        "validate_every": max(10, round(steps // 30, -1)),
        "patience": 8,
    }


RNN_LAYERS, RATE = 1, 2
"""Layers of each side of an RNN; the learning rate of models that the Transformer replaced, relative to its own;
both measured (docs/log.md)."""


CONVOLUTION_LAYERS = 2
"""Convolutional layers of each side for one layer of a Transformer, measured (docs/log.md)."""


def _replaced(transformer: Model, chosen: Mapping[str, Any], corpus: Survey) -> dict[str, Any]:
    """Return the RNN or the convolutional model that the user asks for, with as many parameters as the Transformer."""
    from seq2see.model.build import as_large, count_parameters

    found = {name: getattr(transformer, name) for name in ("d_model", "dropout", "tie")}
    if chosen["architecture"] == "convolutional":
        for stack in ("encoder_layers", "decoder_layers"):
            found[stack] = chosen.get(stack, CONVOLUTION_LAYERS * getattr(transformer, stack))
        found["max_positions"] = _positions(corpus)
    else:
        layers = chosen.get("encoder_layers", chosen.get("decoder_layers", RNN_LAYERS))
        found |= {"encoder_layers": layers, "decoder_layers": layers}
    asked = Model(**found | dict(chosen))
    return found | {"d_hidden": as_large(asked, count_parameters(transformer, 0, 0)).d_hidden}


def _positions(corpus: Survey) -> int:
    """Return how many positions to learn: the bytes of the longest text, which has no more tokens, within limits.

    At least a few more than `data.max_length`, and at most the default, since a position that no text has costs
    parameters that are never trained.
    """
    longest = max((len(side.encode()) for pair in corpus.sample for side in (pair.source, pair.target)), default=0)
    return min(Model.max_positions, max(config.Data.max_length, longest) + 16)
