"""The survey of a corpus, and the settings that it suggests: tokenizers, model size, batch, learning rate, steps.

The same corpus suggests the same settings on every machine; a preset, a file or `--set` overrides them.
"""

import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seq2see import config, machine, patterns, special
from seq2see.config import Data, Model, Settings, model_in_words, preset
from seq2see.doctor import characters
from seq2see.text.pair import Pair
from seq2see.text.rows import in_blocks
from seq2see.text.tags import noting_languages

SAMPLE = 200_000
"""Pairs kept for training tokenizers: more change them little and cost minutes."""
SAMPLE_CHARACTERS = 1 << 28
"""Characters that these pairs may have, so that the sample fits in memory."""
LONGEST_WORD = 100
"""Characters of a word that are compared; longer texts are not words."""
BLOCK = 2048
"""Consecutive pairs that are surveyed together."""
STRETCHES = 64
"""Blocks of consecutive pairs that are kept, evenly taken, to examine what may be wrong with the corpus."""


@dataclass
class Side:
    """One side of a corpus: how much text there is, and what it is made of."""

    characters: int = 0
    words: int = 0
    alphabet: set[str] = field(default_factory=set)
    lexicon: set[str] = field(default_factory=set)
    """Distinct words, up to `MOST_WORDS`; beyond that it is a language, and the exact number does not matter."""
    unspaced: bool = False
    """Whether its script has no spaces between words; the number of words is then an estimate."""

    MOST_WORDS = 1000

    def add(self, text: str) -> None:
        self.characters += len(text)
        self.alphabet.update(text)
        words = text.split()
        self.words += len(words)
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon.update(word[:LONGEST_WORD] for word in words)

    def join(self, other: "Side") -> None:
        """Add what was found in other texts of this side."""
        self.characters += other.characters
        self.words += other.words
        self.alphabet |= other.alphabet
        if len(self.lexicon) < self.MOST_WORDS:
            self.lexicon |= other.lexicon


@dataclass
class Survey:
    """One streaming pass over the training pairs."""

    pairs: int = 0
    left_out: int = 0
    """Further pairs of the corpus that will be left out of the training for their length, and are not counted here."""
    source: Side = field(default_factory=Side)
    target: Side = field(default_factory=Side)
    sample: list[Pair] = field(default_factory=list)
    room: int = field(default_factory=lambda: SAMPLE)
    """Pairs that the sample may have; fewer, where they have very many characters."""
    sampled: int = 0
    """Characters of the sample."""
    languages: set[str] = field(default_factory=set)
    """Target languages, where they were asked for."""
    stretches: list[tuple[int, list[Pair]]] = field(default_factory=list)
    """Some blocks of consecutive pairs, each with the number of pairs before it."""
    every: int = 1
    """One block in this many is kept in `stretches`."""

    def keep(self, number: int, block: list[Pair]) -> None:
        """Keep a block of consecutive pairs, or not, so that those that are kept are evenly spread."""
        if number % self.every == 0:
            self.stretches.append((self.pairs, block))
        if len(self.stretches) > STRETCHES:
            self.stretches = self.stretches[::2]
            self.every *= 2

    def count(self, pair: Pair, dice: random.Random) -> None:
        """Count a pair, and keep it in the sample with equal chance for all (reservoir sampling)."""
        self.pairs += 1
        if len(self.sample) < self.room:
            self.sample.append(pair)
        elif (place := dice.randrange(self.pairs)) < self.room:
            self.sampled -= _length(self.sample[place])
            self.sample[place] = pair
        else:
            return
        self.sampled += _length(pair)
        while self.sampled > SAMPLE_CHARACTERS and len(self.sample) > 1:
            self.sample = self.sample[::2]
            self.room = len(self.sample)
            self.sampled = sum(map(_length, self.sample))

    def only(self, kept: list[Pair]) -> "Survey":
        """Return the survey of a corpus of which these pairs of the sample, and as large a share of all, are kept."""
        pairs = round(self.pairs * len(kept) / len(self.sample))
        found = Survey(pairs, self.left_out + self.pairs - pairs, sample=kept)
        for pair in kept:
            found.source.add(pair.source)
            found.target.add(pair.target)
        for side in (found.source, found.target):
            side.characters = round(side.characters * pairs / len(kept))
            side.words = round(side.words * pairs / len(kept))
        return found


def _length(pair: Pair) -> int:
    return len(pair.source) + len(pair.target)


def survey(pairs: Iterable[Pair], with_languages: bool = False) -> Survey:
    """Read every pair once, on all cores; memory does not grow with their number.

    Args:
        with_languages: Whether every pair must have a target language, which is noted.
    """
    found = Survey()
    dice = random.Random(0)

    def blocks() -> Iterator[list[str]]:
        noted = noting_languages(pairs, found.languages) if with_languages else pairs
        for number, block in enumerate(in_blocks(noted, BLOCK)):
            found.keep(number, block)
            for pair in block:
                found.count(pair, dice)
            yield [text for pair in block for text in (pair.source, pair.target)]

    for source, target in machine.parallel_map(_Looking, (), blocks()):
        found.source.join(source)
        found.target.join(target)
    return found


class _Looking:
    """Measures a block of texts, sources and targets in turn."""

    def __call__(self, texts: list[str]) -> tuple[Side, Side]:
        source, target = Side(), Side()
        for text in texts[::2]:
            source.add(text)
        for text in texts[1::2]:
            target.add(text)
        return source, target


@dataclass(frozen=True)
class Suggestion:
    """Settings for a corpus, and the reasons for them."""

    settings: dict[str, dict[str, Any]]
    """An overlay for `config.resolve`."""
    reasons: dict[str, str]
    """Short reasons that name facts of the corpus, by the rows of `ROWS`."""


ROWS: dict[str, tuple[str, ...]] = {
    "source": ("data.source_tokenizer", "data.source_vocabulary", "data.source_pattern", "data.shared"),
    "target": ("data.target_tokenizer", "data.target_vocabulary", "data.target_pattern", "data.shared"),
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
        "model": f"for {_count(pairs, 'pair')} of {_lengths(pairs, (source, source_kind), (target, target_kind))}",
        "dropout": f"{_count(pairs, 'pair')} are few, so overfitting is likely"
        if drop_more
        else f"{_count(pairs, 'pair')} are many, so overfitting is unlikely"
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
        reasons = dict.fromkeys(("batch", "learning rate", "steps"), f"as in the paper, for {_count(pairs, 'pair')}")
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


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
            return f"only {_count(len(side.lexicon), 'distinct word')}"
        case "pattern":
            return "the text is molecules in SMILES notation"
        case "characters":
            return f"no spaces in the text, {_count(len(side.alphabet), 'character')}"
    size = _vocabulary(side, kind, words_for_each)
    if size % 1000:  # the alphabet asked for more
        return f"{len(side.alphabet):,} distinct characters need this many"
    words = f"{'about ' * side.unspaced}{_count(side.words, 'word')}"
    if size > 2 * side.words / words_for_each:
        return f"the minimum, for {words}"
    return f"one per {words_for_each} words, for {words}"


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
    length = f"about {_count(epochs, 'epoch')}" if epochs else "less than an epoch"
    rate = training.peak_rate(model.d_model)
    stale = training.patience * training.validate_every
    values = {
        "source": _tokens(data, "source", vocabularies[0]) + (", for both sides" if data.shared else ""),
        "target": "shared with the source" if data.shared else _tokens(data, "target", vocabularies[1]),
        "model": f"{model_in_words(model)}: {facts['parameters']:,} parameters",
        "dropout": f"{model.dropout:g}"
        + (f"; R-Drop {training.agreement:g} (consistency loss)" if training.agreement else "")
        + (f"; weight decay {training.weight_decay:g}" if training.weight_decay else ""),
        "batch": f"{training.batch_tokens:,} tokens, about {_count(pairs_a_step, 'pair')}",
        "learning rate": f"{rate:.1e} after {_count(training.warmup_steps, 'warm-up step')}, then "
        f"{'cosine to 0' if training.schedule == 'cosine' else '1/sqrt(step)'}",
        "steps": f"at most {training.max_steps:,}, {length}"
        + (f"; {training.max_minutes:g} min" if training.max_minutes else ""),
        "stopping": f"if {METRICS[training.metric]} does not improve for {_count(stale, 'step')}"
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
    return f"{vocabulary:,} {unit}"
