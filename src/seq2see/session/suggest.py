"""Suggest settings for a corpus, and make the table of them that `train` prints, with a reason for each.

The same corpus suggests the same settings on every machine; a preset, a file or `--set` overrides them. Tokenizers are
chosen by the kind of text. The tables `SENTENCES` and `EXACT` have the sizes of model and training for amounts of data;
between their rows, numbers are interpolated on a logarithmic scale: a slightly larger corpus gets slightly different
settings. Heads, feed-forward width, warm-up, validations and patience are computed from these (`_sizes`, `_training`).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from seq2see import config, patterns, special
from seq2see.config import Data, Settings, model_in_words, preset
from seq2see.evaluation.metrics import METRICS
from seq2see.session import hallucination
from seq2see.session.survey import Side, Survey, Text, in_common
from seq2see.tokens.interface import UNITS


@dataclass(frozen=True)
class Suggestion:
    """Settings for a corpus, and the reasons for them."""

    settings: dict[str, dict[str, Any]]
    """The settings as an overlay for `config.resolve`."""
    reasons: dict[str, str]
    """Short reasons with facts about the corpus, keyed by the rows of `ROWS`."""
    candidates: tuple[dict[str, Any], ...] = ()
    """Tokenizer settings that trials may compare, as overlays for `data`; the first is the one in `settings`."""


class Rule(NamedTuple):
    """Settings for one amount of data."""

    amount: float
    """Amount of data of the rule: geometric mean of the number of pairs and the number of tokens (`tokens_of`)."""
    width: float
    layers: float
    """Number of layers of the encoder, and also of the decoder."""
    dropout: float
    agreement: float
    weight_decay: float
    learning_rate: float
    batch: float
    """Number of tokens in one update (`training.batch_tokens`)."""
    trained: float
    """Maximum number of tokens trained on, including repetitions; the number of steps is `trained / batch`."""
    alignment: float
    """Weight of the alignment loss (Garg et al. 2019), for corpora whose tokens can be aligned."""


SENTENCES = (
    # amount, width, layers, dropout, R-Drop, decay, learning rate, batch, trained, alignment
    Rule(3e2, 64, 2, 0.3, 2.0, 0.5, 3.5e-3, 512, 1.2e6, 0.1),
    Rule(3e3, 96, 2, 0.3, 2.0, 0.5, 3.5e-3, 512, 3e6, 0.1),
    Rule(1e4, 112, 3, 0.3, 2.0, 0.4, 3.1e-3, 1344, 6.2e6, 0.1),  # 3,000 messages of three words: Debian
    Rule(2e4, 128, 3, 0.3, 1.5, 0.2, 3e-3, 3456, 1.08e7, 0.05),  # 3,000 captions, and smooth up to the next row
    Rule(3.8e4, 128, 3, 0.3, 0.0, 0.0, 3e-3, 8192, 1.08e7, 0.05),  # 11,823 questions and answers
    Rule(6.4e4, 128, 3, 0.3, 0.0, 0.0, 3e-3, 8192, 1.4e7, 0.05),  # 10,000 captions
    Rule(1.87e5, 256, 3, 0.3, 2.5, 0.0, 2e-3, 8192, 5.94e7, 0.05),  # 29,000 captions: Multi30k
    Rule(4.5e5, 256, 3, 0.3, 2.5, 0.0, 2e-3, 8192, 1.64e8, 0.05),  # 88,000 messages: Debian
    Rule(1e6, 256, 3, 0.3, 2.5, 0.0, 2e-3, 8192, 2.5e8, 0.05),
    Rule(6e6, 384, 4, 0.1, 0.0, 0.0, 1e-3, 16_384, 8e8, 0.05),
    Rule(2.5e7, 512, 6, 0.1, 0.0, 0.0, 7e-4, 32_768, 2e9, 0.05),
    Rule(1e9, 512, 6, 0.1, 0.0, 0.0, 7e-4, 49_152, 5e9, 0.05),
)
"""Rules for sentences in human languages, which can have several right outputs; `between` interpolates between them."""

EXACT = (
    Rule(3e2, 64, 2, 0.3, 2.0, 0.5, 3.5e-3, 512, 1.2e6, 0.2),
    Rule(3e3, 96, 2, 0.3, 2.0, 0.5, 3.5e-3, 512, 3e6, 0.2),  # 800 words
    Rule(1.5e4, 128, 3, 0.3, 2.0, 0.5, 3e-3, 1536, 8e6, 0.1),  # 3,600 words
    Rule(3.3e4, 192, 3, 0.3, 1.5, 0.4, 2e-3, 3072, 2.45e7, 0.05),  # 8,000 words
    Rule(1.35e5, 256, 4, 0.25, 1.0, 0.3, 1e-3, 8192, 6.5e7, 0.05),  # 33,000 words
    Rule(4.5e5, 256, 4, 0.2, 1.0, 0.3, 1e-3, 8192, 1.64e8, 0.05),  # 113,000 words: CMUdict
    Rule(1e6, 256, 4, 0.2, 1.0, 0.3, 1e-3, 8192, 2.5e8, 0.05),
    Rule(6e6, 384, 5, 0.1, 0.0, 0.0, 7e-4, 16_384, 8e8, 0.05),
    Rule(2.5e7, 512, 6, 0.1, 0.0, 0.0, 5e-4, 32_768, 2e9, 0.05),
    Rule(1e9, 512, 6, 0.1, 0.0, 0.0, 5e-4, 49_152, 5e9, 0.05),
)
"""Rules for tasks with one right output for each input, such as phonemes, inflected forms and molecules."""

ALIGNED_PAIRS = 100
"""Minimum number of pairs for the alignment loss: an aligner learns little from fewer. `aligner.prepare` turns the
loss off for corpora whose tokens cannot be aligned, such as questions with their answers.
"""


def suggest(
    corpus: Survey,
    chosen: Mapping[str, Any] | None = None,
    known: config.Overlay | None = None,
    training: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Suggestion:
    """Return settings for a surveyed corpus.

    Args:
        chosen: The model settings of the user; if they name an RNN or convolutional model, the rest is chosen for it.
        known: Settings that are known to suit this corpus; they override the rules.
        training: The training settings of the user; steps, warm-up, validations and patience suit them.
        data: The data settings of the user; tokenizers, sharing and artificial pairs are chosen accordingly.
    """
    chosen, data = chosen or {}, data or {}
    tokens, architecture = choose_tokenizers(corpus, data), chosen.get("architecture", "transformer")
    used = {**tokens.settings, "hallucination": tokens.hallucination, **data}
    language, text, artificial = tokens.language, tokens_of(corpus, used), used["hallucination"]
    rules = SENTENCES if language else EXACT
    rule = between(rules, math.sqrt(corpus.pairs * text))
    rule = rule._replace(trained=rule.trained * (hallucination.longer(artificial) if artificial else 1))
    stored = text * (artificial + hallucination.copies(artificial) if artificial else 1)
    settings = {
        "data": {**tokens.settings, "hallucination": tokens.hallucination},
        "model": {**_model(rule), "tie": "all" if used["shared"] else "decoder"},
        "training": _training(rule, training or {}, "loss" if language else "exact", stored),
    }
    aligned = corpus.pairs >= ALIGNED_PAIRS and architecture == "transformer"
    settings["training"]["alignment_weight"] = rounded(rule.alignment, 0.05) if aligned else 0.0
    pairs = counted(corpus.pairs, "pair")
    reasons = tokens.reasons | {
        "model": f"for {pairs} of {tokens.lengths}",
        "dropout": f"overfitting is {'likely' if rule.dropout > 0.15 else 'unlikely'} with {pairs}",
        "batch": "works well for this amount of text",
        "learning rate": "works well for a model of this width",
        "steps": f"for about {float(f'{text:.2g}'):,.0f} tokens of text",
        "alignment": "tokens of both sides correspond",
        "stopping": "a sentence has several correct translations" if language else "an output is either right or wrong",
    }
    for section, values in (known or {}).items():
        settings[section] |= values
    if "d_model" in chosen and architecture == "transformer":
        settings["model"] |= _sizes(chosen["d_model"])
        rate = min(settings["training"]["learning_rate"], _rate_for(rules, chosen["d_model"]))
        settings["training"]["learning_rate"] = float(f"{rate:.2g}")
    if architecture != "transformer":
        from seq2see.model.build import replaced

        longest = max(corpus.longest_text, data.get("max_length", 0))
        settings["model"] = replaced(config.check_keys(settings).model, chosen, longest)
        if architecture == "rnn":
            settings["model"]["source_reversed"] = language
        settings["training"]["learning_rate"] *= 2
        reasons["model"] = "as many parameters as a Transformer"
        reasons["learning rate"] = "twice that of a Transformer"
    return Suggestion(settings, reasons, tokens.candidates)


SYLLABLE = 2.3
"""Mean number of letters (jamo) in a character of Korean text."""
SUBWORDS = (0.6, 0.3)
"""Number of subwords for each character of a text without spaces (one for 1.7 characters) and with spaces (3.3)."""
SPACED = (0.05, 0.12)
"""Number of words for each character up to which a text counts as written without spaces, and from which with."""


def tokens_of(corpus: Survey, data: Mapping[str, Any]) -> float:
    """Estimate the number of tokens of both sides of a corpus with the tokenizers of `data`, including end tokens."""
    sides = (corpus.source, data["source_tokenizer"]), (corpus.target, data["target_tokenizer"])
    return sum(corpus.pairs + _side_tokens(side, kind) for side, kind in sides)


def _side_tokens(side: Side, kind: str) -> float:
    if kind in ("symbols", "marks"):
        return side.words
    if kind not in ("unigram", "bpe"):
        return side.characters * (SYLLABLE if kind == "jamo" else 1)
    words = side.words / max(1, side.characters)
    spaced = min(1.0, max(0.0, (words - SPACED[0]) / (SPACED[1] - SPACED[0])))
    return side.characters * (SUBWORDS[0] + spaced * (SUBWORDS[1] - SUBWORDS[0]))


def between(rules: tuple[Rule, ...], amount: float) -> Rule:
    """Interpolate between the two rules around an amount, by its logarithm; outside of the rules, the nearest applies.

    Width, learning rate, `batch` and `trained` are interpolated by their logarithms, too.

    >>> between(SENTENCES, 187_000).width
    256.0
    """
    amount = min(max(amount, rules[0].amount), rules[-1].amount)
    above = next(place for place, rule in enumerate(rules[1:], 1) if amount <= rule.amount)
    low, high = rules[above - 1], rules[above]
    share = math.log(amount / low.amount) / math.log(high.amount / low.amount)
    found = {}
    for name, one, other in zip(Rule._fields, low, high, strict=True):
        if name in ("layers", "dropout", "agreement", "weight_decay", "alignment"):
            found[name] = one + share * (other - one)
        else:
            found[name] = one * (other / one) ** share
    return Rule(**found)


def rounded(number: float, step: float) -> float:
    """Return the multiple of `step` that is nearest to a number."""
    return round(round(number / step) * step, 6)


def _model(rule: Rule) -> dict[str, Any]:
    """Return the model settings: pre-norm and rotary positions, as in the preset `small`, at any size."""
    return {
        **preset("small")["model"],
        **dict.fromkeys(("encoder_layers", "decoder_layers"), round(rule.layers)),
        **_sizes(int(rounded(rule.width, 16))),
        "dropout": rounded(rule.dropout, 0.05),
    }


def _sizes(width: int) -> dict[str, int]:
    """Return the sizes that follow from the width of a model: fewer heads if their width would be odd otherwise."""
    heads = 4 if width < 384 else 8
    while heads > 1 and width % (2 * heads):
        heads //= 2
    return {"d_model": width, "heads": heads, "d_ff": 4 * width}


def _rate_for(rules: tuple[Rule, ...], width: int) -> float:
    """Return the learning rate that rules have for a width, interpolated between their widths."""
    by_width = {rule.width: rule._replace(amount=rule.width) for rule in rules}
    return between((*by_width.values(),), width).learning_rate


def _training(rule: Rule, yours: Mapping[str, Any], metric: str, tokens: float) -> dict[str, Any]:
    """Return the training settings: about thirty validations; 8 or 12 in a row without improvement end the training.

    Args:
        yours: The user's settings, whose batch, number of updates and metric the others suit.
        metric: The metric that suits the corpus.
        tokens: The number of tokens of all pairs; a batch that the user sets has no more.
    """
    batch = int(rounded(rule.batch, 128))
    used = min(yours.get("batch_tokens", batch), max(batch, tokens))
    steps = yours.get("max_steps") or max(1, int(float(f"{rule.trained / used:.3g}")))
    return {
        "batch_tokens": batch,
        "max_steps": steps,
        "warmup_steps": max(1, int(rounded(max(min(400, steps / 6), steps / 50), 10))),
        "learning_rate": float(f"{rule.learning_rate:.2g}"),
        "schedule": "cosine",
        "agreement": rounded(rule.agreement, 0.5),
        "weight_decay": rounded(rule.weight_decay, 0.1),
        "metric": metric,
        "validate_every": max(10, round(steps // 30, -1)),
        "patience": 12 if yours.get("metric", metric) in ("exact", "error_rate") else 8,  # these are noisy, rise late
    }


# Tokenizers

SAME_LANGUAGE = 0.05
"""Overlap of the character-bigram frequencies of both sides (`in_common`, from 0 to 1) above which they share one
vocabulary, if both are subwords or both are molecules. The overlap of English is 0.49 with German, 0.55 with French,
0.10 with Korean texts of software, which contain English names, and 0.00 with Japanese.
"""


@dataclass(frozen=True)
class TokenChoice:
    """The tokenizers for a corpus, and the reasons for them."""

    settings: dict[str, Any]
    """Tokenizer settings, as an overlay for the section `data`."""
    reasons: dict[str, str]
    """Short reasons by the rows `source` and `target` of `ROWS`."""
    lengths: str
    """The mean lengths of the two sides in their own units, such as `7 characters + 6 symbols`."""
    candidates: tuple[dict[str, Any], ...]
    """Overlays for the section `data` that trials may compare; the first equals `settings`."""
    hallucination: float
    """Number of artificial pairs for each pair (`session.hallucination`)."""
    language: bool
    """Whether both sides get subwords because they are taken for sentences of a natural language."""


def choose_tokenizers(corpus: Survey, yours: Mapping[str, Any]) -> TokenChoice:
    """Return the tokenizers for a corpus: kinds, vocabulary sizes, and whether the sides share one, unless `yours`, the
    data settings of the user, give them different tokenizers.
    """
    source, target = corpus.texts()
    common = in_common(source.lines, target.lines)
    (first, *_), (also_first, *_) = source.kinds, target.kinds
    pairs_of_kinds = [(first, also_first)]
    for kind in source.kinds[1:]:
        together = source.kinds == target.kinds  # the same text on both sides is cut alike
        pairs_of_kinds.append((kind, kind if together else also_first))
    pairs_of_kinds += [(first, kind) for kind in target.kinds[1:] if source.kinds != target.kinds]
    found = [_settings((source, target), kinds, common) for kinds in pairs_of_kinds]
    used = {**found[0], **yours}
    found[0]["shared"] &= all(used[f"source_{key}"] == used[f"target_{key}"] for key in ("tokenizer", "pattern"))
    reasons = _reasons((source, target), (first, also_first), found[0]["shared"], common)
    lengths = _lengths(corpus.pairs, (source.side, first), (target.side, also_first))
    artificial = 0.0
    if common > SAME_LANGUAGE:
        artificial, reasons["artificial"] = hallucination.suggested(corpus.pairs, source, target)
    language = first == also_first == "unigram" and not target.closed
    return TokenChoice(found[0], reasons, lengths, tuple(found), artificial, language)


def _settings(texts: tuple[Text, Text], kinds: tuple[str, str], common: float) -> dict[str, Any]:
    """Return an overlay for `data` with tokenizers of these kinds; `common` is what `in_common` returns."""
    each = _words_for_each(kinds)
    shared = kinds[0] == kinds[1] and kinds[0] in ("unigram", "pattern") and common > SAME_LANGUAGE
    sizes = [_vocabulary(text.side, kind, each) + text.tags for text, kind in zip(texts, kinds, strict=True)]
    if shared:
        sizes = [max(sizes)] * 2
    return {
        "source_tokenizer": kinds[0],
        "target_tokenizer": kinds[1],
        "source_pattern": "smiles" if kinds[0] == "pattern" else "",
        "target_pattern": "smiles" if kinds[1] == "pattern" else "",
        "source_tags": texts[0].where,
        "target_tags": texts[1].where,
        "source_vocabulary": sizes[0],
        "target_vocabulary": sizes[1],
        "shared": shared,
    }


def _words_for_each(kinds: tuple[str, str]) -> int:
    """Return how many words of the corpus there should be for each subword of the vocabulary (see `_vocabulary`)."""
    return 50 if kinds == ("unigram", "unigram") else 100


def _vocabulary(side: Side, kind: str, words_for_each: int) -> int:
    """Return a vocabulary size: one subword per `words_for_each` words, rounded up to 1,000, 2,000, 4,000, ... 32,000.

    It is larger if needed: the kinds "symbols" and "marks" have room for every distinct word, other kinds for the 256
    bytes and two subwords for each distinct character. At most 2,000 characters count, unless the kind is "characters".
    """
    size = next((size for size in (1000, 2000, 4000, 8000, 16_000) if side.words / words_for_each <= size), 32_000)
    letters = len(side.alphabet) if kind == "characters" else min(len(side.alphabet), 2000)
    needed = len(side.lexicon) if kind in ("symbols", "marks") else 256 + 2 * letters
    return max(size, math.ceil((special.COUNT + needed) / 100) * 100)


def _reasons(texts: tuple[Text, Text], kinds: tuple[str, str], shared: bool, common: float) -> dict[str, str]:
    """Return the reasons for the tokenizers of both sides."""
    each = _words_for_each(kinds)
    source, target = (text.side for text in texts)
    larger = max(source, target, key=lambda side: _vocabulary(side, "unigram", each)) if shared else source
    found = {
        "source": _why_tokens(kinds[0], larger, each),
        "target": f"the sides share {100 * common:.0f} % of character bigrams"
        if shared
        else _why_tokens(kinds[1], target, each),
    }
    for name, kind, text in zip(("source", "target"), kinds, texts, strict=True):
        if text.closed and kind not in ("symbols", "marks"):
            found[name] += "; not all spaces are single blanks"
        if text.where != "none":
            named = [tag[:24] for tag, _ in text.seen.most_common(3)] + ["…"] * (len(text.seen) > 3)
            found[name] += f"; {text.tags:,} for tags ({', '.join(named)}), see data.{name}_tags"
    return found


def _lengths(pairs: int, *sides: tuple[Side, str]) -> str:
    """Return the mean lengths of the two sides in their own units: `13 + 12 words`, `7 characters + 6 symbols`."""
    sizes, units = [], []
    for side, kind in sides:
        by_letter = kind in ("characters", "jamo", "pattern") or side.unspaced
        sizes.append(f"{round((side.characters if by_letter else side.words) / pairs):,}")
        units.append("characters" if by_letter else "symbols" if kind in ("symbols", "marks") else "words")
    if units[0] == units[1]:
        return f"{sizes[0]} + {sizes[1]} {units[0]}"
    return f"{sizes[0]} {units[0]} + {sizes[1]} {units[1]}"


def _why_tokens(kind: str, side: Side, words_for_each: int) -> str:
    match kind:
        case "symbols":
            return f"only {counted(len(side.lexicon), 'distinct word')}"
        case "marks":
            return f"{counted(len(side.lexicon), 'symbol')}, with marks such as tone or length"
        case "pattern":
            return "the text is molecules in SMILES notation"
        case "jamo":
            return "words in Korean"
        case "characters":
            text = "words and phrases" if " " in side.alphabet else "no spaces in the text"
            return f"{text}, {counted(len(side.alphabet), 'character')}"
    size = _vocabulary(side, kind, words_for_each)
    if size % 1000:  # the alphabet asked for more
        return f"{len(side.alphabet):,} distinct characters need this many"
    words = f"{'about ' * side.unspaced}{counted(side.words, 'word')}"
    if size > 2 * side.words / words_for_each:
        return f"the minimum, for {words}"
    return f"one per {words_for_each} words, for {words}"


# The table that `train` prints

ROWS: dict[str, tuple[str, ...]] = {
    **{
        side: (*(f"data.{side}_{key}" for key in ("tokenizer", "vocabulary", "pattern", "tags")), "data.shared")
        for side in ("source", "target")
    },
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
    "artificial": ("data.hallucination",),
    "dropout": ("model.dropout", "training.agreement", "training.weight_decay"),
    "batch": ("training.batch_tokens",),
    "learning rate": ("training.learning_rate", "training.warmup_steps", "training.schedule"),
    "steps": ("training.max_steps", "training.max_minutes"),
    "stopping": ("training.metric", "training.patience", "training.validate_every"),
    "alignment": ("training.alignment_weight",),
    "machine": ("training.micro_batch_tokens", "training.precision"),
}
"""Rows of the table that `train` prints, with the settings that each shows. Rows without a value are left out."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 pair` or `12,000 pairs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Choice:
    """One row of the table that `train` prints: a value, and the reason for it."""

    name: str
    value: str
    why: str
    """Reason for the value of the row; empty if the user has set it."""
    yours: list[str]
    """Names of the settings of this row that the user has set by option, file or preset."""
    settings: dict[str, Any]


def choices(
    settings: Settings,
    reasons: Mapping[str, str],
    yours: Collection[str],
    facts: Mapping[str, Any],
    vocabularies: tuple[int, int],
    machine: str,
) -> list[Choice]:
    """Return the rows of the table that `train` prints, without those that have no value.

    Args:
        reasons: The reason for each row, where the user has not chosen.
        yours: The settings that the user has chosen, such as `model.dropout`.
        facts: The manifest: tokens, pairs and parameters.
        vocabularies: The vocabulary sizes of source and target.
        machine: The value of the row `machine`.
    """
    data, model, training = settings.data, settings.model, settings.training
    tokens = facts.get("stored_tokens", facts["source_tokens"] + facts["target_tokens"])
    batch = min(training.batch_tokens, tokens)
    pairs_a_step = max(1, round(batch * facts.get("stored_pairs", facts["pairs"]) / tokens))
    epochs = round(training.max_steps * batch / tokens)
    length = f"about {counted(epochs, 'epoch')}" if epochs else "less than an epoch"
    rate = training.peak_rate(model.d_model)
    stale = training.patience * training.validate_every
    values = {
        "source": _tokens(data, "source", vocabularies[0]) + (", for both sides" if data.shared else ""),
        "target": "shared with the source" if data.shared else _tokens(data, "target", vocabularies[1]),
        "model": f"{model_in_words(model)}: {facts['parameters']:,} parameters",
        "artificial": f"{data.hallucination:g} pairs with random letters for each pair" if data.hallucination else "",
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
        "alignment": f"one head learns to align tokens, weight {training.alignment_weight:g}"
        if training.alignment_weight
        else "",
        "machine": machine,
    }
    tree = {"data": data, "model": model, "training": training}
    found = []
    for name, keys in ROWS.items():
        if not values[name]:
            continue
        own = [key for key in keys if key in yours]
        held = {key: getattr(tree[key.partition(".")[0]], key.partition(".")[2]) for key in keys}
        found.append(Choice(name, values[name], "" if own else reasons.get(name, ""), own, held))
    return found


def _tokens(data: Data, side: str, vocabulary: int) -> str:
    kind, pattern = getattr(data, f"{side}_tokenizer"), getattr(data, f"{side}_pattern")
    unit = UNITS.get(kind, f"tokens ({kind})")
    if kind == "pattern" and pattern in patterns.NAMED:
        unit = f"tokens (pattern {pattern})"
    return f"{vocabulary:,} {unit}" + (" and tags" if getattr(data, f"{side}_tags") != "none" else "")
