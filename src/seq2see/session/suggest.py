"""The settings that a corpus suggests: tokenizers, model size, batch, learning rate, steps.

The same corpus suggests the same settings on every machine; a preset, a file or `--set` overrides them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seq2see import config, patterns, special
from seq2see.config import Model, preset
from seq2see.doctor import characters
from seq2see.session.choices import counted
from seq2see.session.survey import Side, Survey


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
    sources, targets = zip(*((pair.source, pair.target) for pair in corpus.sample[:1000]), strict=True)
    source, target = _with_words(corpus.source, pairs, sources), _with_words(corpus.target, pairs, targets)
    source_kind, target_kind = _kind(source, pairs, sources), _kind(target, pairs, targets)
    language = source_kind == target_kind == "unigram"
    shared = language and _overlap(source.alphabet, target.alphabet) > 0.5
    letters = (source.characters + target.characters) / pairs
    if pairs < 5000 or (pairs < 50_000 and letters < 60 and not language):
        size = "tiny"
    elif pairs < 20_000 and language:
        size = "compact"
    else:
        size = "small" if pairs < 500_000 else "paper-base"
    words_for_each = 50 if language else 100
    sizes = _vocabulary(source, source_kind, words_for_each), _vocabulary(target, target_kind, words_for_each)
    drop_more = (language or size == "small") and pairs < 200_000
    training, reasons = _training(size, pairs, language, drop_more)
    settings = {
        "data": {
            "source_tokenizer": source_kind,
            "target_tokenizer": target_kind,
            "source_pattern": "smiles" if source_kind == "pattern" else "",
            "target_pattern": "smiles" if target_kind == "pattern" else "",
            "source_vocabulary": max(sizes) if shared else sizes[0],
            "target_vocabulary": max(sizes) if shared else sizes[1],
            "shared": shared,
        },
        "model": {
            **preset(size)["model"],
            **({"encoder_layers": 4, "decoder_layers": 4} if size == "small" and not language else {}),
            "tie": "all" if shared else "decoder",
            "dropout": 0.1 if not drop_more else 0.3 if language else 0.2,
        },
        "training": {**training, "metric": "loss" if language else "exact"},
    }
    larger = target if shared and sizes[1] > sizes[0] else source
    reasons |= {
        "source": _why_tokens(source_kind, larger, words_for_each),
        "target": "both sides share most characters" if shared else _why_tokens(target_kind, target, words_for_each),
        "model": f"for {counted(pairs, 'pair')} of {_lengths(pairs, (source, source_kind), (target, target_kind))}",
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


SENTENCE, WORD = 10, 2
"""Minimum number of letters of a sentence, and mean number of letters of a word, in scripts without spaces."""


def _with_words(side: Side, pairs: int, sample: Sequence[str]) -> Side:
    """Return the same side, with an estimate of the number of words where they are written without spaces."""
    if side.characters < SENTENCE * pairs or not characters.are_unspaced(list(sample)):
        return side
    return replace(side, words=max(side.words, side.characters // WORD), unspaced=True)


def _kind(side: Side, pairs: int, sample: Sequence[str]) -> str:
    """Return the tokenizer kind: symbols, a pattern for molecules, characters where there are no spaces, subwords."""
    if side.unspaced:
        return "unigram"
    if len(side.lexicon) <= 256 and side.words >= 2 * pairs and side.words >= 20 * len(side.lexicon):
        return "symbols"
    if side.words <= 1.05 * pairs:
        return "pattern" if _are_molecules(sample) else "characters"
    return "unigram"


def _are_molecules(lines: Sequence[str]) -> bool:
    """Return whether nearly all lines are SMILES, and two thirds of them contain more than letters."""
    more = sum(not line.isalpha() for line in lines)
    return 3 * more >= 2 * len(lines) and sum(map(patterns.is_smiles, lines)) >= 0.98 * len(lines)


def _vocabulary(side: Side, kind: str, words_for_each: int) -> int:
    """Return about one subword for each 50 or 100 words of text, in powers of two from 1,000 to 32,000.

    At least two for each letter of the alphabet, beside the 256 bytes: else letters of large alphabets fall to bytes.
    Of the largest alphabets some may; but not where letters are all there is.
    """
    size = next((size for size in (1000, 2000, 4000, 8000, 16_000) if side.words / words_for_each <= size), 32_000)
    letters = len(side.alphabet) if kind == "characters" else min(len(side.alphabet), 2000)
    return max(size, math.ceil((special.COUNT + 256 + 2 * letters) / 100) * 100)


def _overlap(one: set[str], other: set[str]) -> float:
    """Return the number of shared characters relative to the smaller alphabet."""
    return len(one & other) / max(1, min(len(one), len(other)))


def _lengths(pairs: int, *sides: tuple[Side, str]) -> str:
    """Return the mean lengths of the two sides in their own units: `13 + 12 words`, `7 characters + 6 symbols`."""
    sizes, units = [], []
    for side, kind in sides:
        by_letter = kind in ("characters", "pattern") or side.unspaced
        sizes.append(f"{round((side.characters if by_letter else side.words) / pairs):,}")
        units.append("characters" if by_letter else "symbols" if kind == "symbols" else "words")
    if units[0] == units[1]:
        return f"{sizes[0]} + {sizes[1]} {units[0]}"
    return f"{sizes[0]} {units[0]} + {sizes[1]} {units[1]}"


def _why_tokens(kind: str, side: Side, words_for_each: int) -> str:
    match kind:
        case "symbols":
            return f"only {counted(len(side.lexicon), 'distinct word')}"
        case "pattern":
            return "the text is molecules in SMILES notation"
        case "characters":
            return f"no spaces in the text, {counted(len(side.alphabet), 'character')}"
    size = _vocabulary(side, kind, words_for_each)
    if size % 1000:  # the alphabet asked for more
        return f"{len(side.alphabet):,} distinct characters need this many"
    words = f"{'about ' * side.unspaced}{counted(side.words, 'word')}"
    if size > 2 * side.words / words_for_each:
        return f"the minimum, for {words}"
    return f"one per {words_for_each} words, for {words}"
