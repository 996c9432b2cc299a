"""Every setting: one frozen tree of data, model, training and decoding.

Order of precedence, lowest first: the defaults below, the suggestions for the corpus, a preset, a file, `--set`. An
overlay is a plain nested dict, `{"model": {"d_model": 256}}`; `resolve` merges overlays and checks the result.
"""

import math
import sys
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

from seq2see import patterns, storage
from seq2see.errors import RunError, SettingError, nearest, nearest_of_few, shown

Overlay = Mapping[str, Mapping[str, Any]]
TokenizerKind = Literal["unigram", "bpe", "characters", "symbols", "marks", "pattern", "jamo", "imported"]
TagPlace = Literal["none", "first", "last", "both"]
Metric = Literal["loss", "bleu", "chrf", "ter", "exact", "error_rate"]
LOWER_IS_BETTER = ("loss", "ter", "error_rate")
Place = Literal["encoder", "decoder", "cross"]
Architecture = Literal[
    "transformer", "rnn", "rnn-bidirectional", "rnn-attention", "rnn-dot", "rnn-general", "convolutional"
]
ALIGNMENTS = {"rnn-attention": "additive", "rnn-dot": "dot", "rnn-general": "general"}  # kinds of attention of RNNs
StopAgainst = Literal["worst", "best"]


# Upper bounds, each with its reason. Settings come with run folders from anywhere, and a number that no use needs must
# not decide how much memory or time is taken. The bounds are far above what anybody trains, so that none is in the way.
MOST_CHARACTERS = patterns.LONGEST
"""Maximum number of characters of a text setting; more are an error. The tags of 100 languages take a fifth of it."""
COUNTLESS = 10**12
"""Maximum value of a setting that counts updates or pairs; a larger value is an error. No training has so many, and the
file names of checkpoints have enough digits for this number."""


def about(
    default: Any, description: str, minimum: float | None = None, maximum: float | None = None, why: str = ""
) -> Any:
    """Return a dataclass field with its default, description, allowed range, and the reason for the maximum."""
    return field(default=default, metadata={"about": description, "minimum": minimum, "maximum": maximum, "why": why})


def _pairs(default: int, description: str) -> Any:
    return about(default, description, 1, COUNTLESS, "no corpus has so many pairs")


def _vocabulary(default: int, description: str) -> Any:
    return about(default, description, 8, 10_000_000, "more embeddings than any published model has")


def _length(default: int, description: str, maximum: int = 1_000_000) -> Any:
    return about(default, description, 1, maximum, "attention over so many tokens fits in no memory")


def _layers(default: int, description: str) -> Any:
    return about(default, description, 1, 1000, "the deepest published Transformers have so many")


def _width(default: int, description: str, minimum: int, maximum: int = 65_536) -> Any:
    return about(default, description, minimum, maximum, "no published model is nearly so wide")


def _batch(default: int, description: str, minimum: int) -> Any:
    return about(default, description, minimum, 10_000_000, "the largest published batches have a few millions")


def _updates(default: int, description: str, minimum: int) -> Any:
    return about(default, description, minimum, COUNTLESS, "no training takes so many updates")


def _float32(default: float, description: str, minimum: float) -> Any:
    return about(default, description, minimum, 1e30, "products of larger numbers overflow float32")


def _growth(default: float, description: str, minimum: int, maximum: int) -> Any:
    return about(default, description, minimum, maximum, "a model that never ends its output would take too long")


@dataclass(frozen=True)
class Data:
    """Settings for tokenizing and batching text, limiting its length, and holding out validation pairs."""

    source_tokenizer: TokenizerKind = about("unigram", "how source text is split into tokens")
    target_tokenizer: TokenizerKind = about("unigram", "how target text is split into tokens")
    source_pattern: str = about(
        "",
        "with source_tokenizer=pattern, what a token is: a regular expression, or "
        + ", ".join(f"{name} ({each.about})" for name, each in patterns.NAMED.items()),
    )
    target_pattern: str = about("", "with target_tokenizer=pattern, what a token is, as in source_pattern")
    source_tags: TagPlace = about(
        "none", "which words of a source are tags, such as <RX_1> or V;PST, that are tokens of their own"
    )
    target_tags: TagPlace = about("none", "which words of a target are tags")
    source_vocabulary: int = _vocabulary(8000, "maximum size of the source vocabulary, or of the shared one")
    target_vocabulary: int = _vocabulary(8000, "maximum size of the target vocabulary")
    shared: bool = about(True, "one tokenizer for both sides, trained on both")
    normalization: Literal["identity", "nfkc", "nfkc_lower"] = about("identity", "Unicode normalization of text")
    max_length: int = _length(256, "maximum number of tokens of a source or a target; longer pairs are left out")
    validation_pairs: int = _pairs(1000, "pairs held out for validation without --valid (at most a tenth of all)")
    tags: str = about(
        "", "target languages, separated by spaces, that a source may ask for: '<2de> a house'; see --tag"
    )
    hallucination: float = about(0.0, "artificial pairs for each training pair, with random letters; 0: none", 0, 100)
    window_pairs: int = _pairs(20_000, "number of pairs sorted by length together, for batches of similar length")


@dataclass(frozen=True)
class Model:
    """Settings of the model: the Transformer of "Attention Is All You Need", an RNN or a convolutional model."""

    architecture: Architecture = about(
        "transformer",
        "the Transformer of the paper, or a model that it replaced: RNNs (2014, 2015), convolutional (2017)",
    )
    encoder_layers: int = _layers(3, "number of encoder layers")
    decoder_layers: int = _layers(3, "number of decoder layers")
    d_model: int = _width(256, "width of embeddings and layer outputs", 1)
    cell: Literal["lstm", "gru"] = about("lstm", "kind of recurrent layer of an RNN")
    d_hidden: int = _width(0, "width of an RNN's hidden state, or of convolutions; 0: d_model", 0)
    source_reversed: bool = about(False, "whether an RNN without attention reads the source backwards")
    kernel: int = about(3, "number of tokens that a convolution reads", 1, 255, "no published model reads so many")
    heads: int = about(4, "number of attention heads", 1, 4096, "no published model has nearly so many")
    d_key: int = _width(0, "width of a head's queries and keys; 0: d_model / heads", 0)
    d_value: int = _width(0, "width of a head's values; 0: d_key", 0)
    d_ff: int = _width(1024, "inner width of the feed-forward network", 1, 1_048_576)
    activation: Literal["relu", "gelu", "silu"] = about("relu", "activation of the feed-forward network")
    norm: Literal["post", "pre"] = about(
        "post", "layer norm after the residual sum (the paper) or before the sub-layer"
    )
    norm_epsilon: float = about(1e-5, "added to the variance in layer norm", 1e-30, 1, "it would outweigh the variance")
    positions: Literal["sinusoid", "learned", "rotary", "none"] = about("sinusoid", "kind of positional encoding")
    max_positions: int = _length(1024, "maximum length with learned positions, or of a convolutional model", 1_048_576)
    dropout: float = about(0.1, "dropout of each sub-layer's output and of the embeddings", 0, 0.95)
    tie: Literal["all", "decoder", "none"] = about(
        "all", "which embeddings share weights: all three, decoder's two, none"
    )
    output_bias: bool = about(False, "whether the output layer has a bias")

    @property
    def attention(self) -> dict[Place, tuple[int, int]]:
        """Return (layers, heads) for each of `encoder`, `decoder` and `cross` attention that the model has."""
        if self.architecture == "transformer":
            encoder, decoder = (self.encoder_layers, self.heads), (self.decoder_layers, self.heads)
            return {"encoder": encoder, "decoder": decoder, "cross": decoder}
        layers = {**dict.fromkeys(ALIGNMENTS, 1), "convolutional": self.decoder_layers}.get(self.architecture, 0)
        return {"cross": (layers, 1)} if layers else {}

    @cached_property
    def longest(self) -> int:
        """Return the maximum number of tokens for which the model has positions; `sys.maxsize` for no maximum."""
        return (
            sys.maxsize if self.positions != "learned" and self.architecture != "convolutional" else self.max_positions
        )


@dataclass(frozen=True)
class Training:
    """Settings of batches, loss, optimizer, learning rate, validation, early stopping and checkpoints."""

    seed: int = about(1, "random seed of initial weights, shuffling and dropout", 0, 2**63 - 1)
    batch_tokens: int = _batch(8192, "source and target tokens in one update (the effective batch)", 1)
    micro_batch_tokens: int = _batch(
        0, "tokens in one forward pass; 0: chosen for the machine. Does not change the update", 0
    )
    max_steps: int = _updates(20_000, "maximum number of updates", 1)
    max_minutes: float = about(0.0, "maximum minutes of training; 0: no limit", 0, 10**9, "that is 1,900 years")
    schedule: Literal["noam", "cosine"] = about(
        "noam", "learning rate after warm-up: inverse square root (the paper), or cosine to 0"
    )
    learning_rate: float = _float32(
        0.0, "learning rate at the end of warm-up; 0: the paper's, (d_model * warmup_steps)^-0.5", 0
    )
    warmup_steps: int = _updates(4000, "updates during which the learning rate rises", 1)
    label_smoothing: float = about(0.1, "share of the probability spread over the whole vocabulary", 0, 0.99)
    agreement: float = _float32(
        0.0, "weight of R-Drop, a consistency loss between two forward passes with different dropout; 0: off", 0
    )
    alignment_weight: float = about(0.0, "weight of the loss that teaches a head to align words; 0: off", 0, 100)
    initial_gain: float = about(1.0, "factor of the initial weights of sub-layers; below 1 helps post-norm", 0.01, 10)
    adam_beta1: float = about(0.9, "decay of Adam's mean of gradients", 0, 0.9999)
    adam_beta2: float = about(0.98, "decay of Adam's mean of squared gradients", 0, 0.999999)
    adam_epsilon: float = about(1e-9, "Adam's epsilon", 1e-30, 1, "it would outweigh the gradients")
    weight_decay: float = about(
        0.0, "weight decay of AdamW, for matrices only; multiplied by the learning rate", 0, 1000
    )
    clip_norm: float = _float32(1.0, "maximum gradient norm; a larger gradient is scaled down; 0: no limit", 0)
    precision: Literal["auto", "float32", "bfloat16"] = about(
        "auto", "number format; auto: bfloat16 on a GPU that has the hardware for it, else float32"
    )
    validate_every: int = _updates(500, "updates between validations, each followed by a checkpoint", 1)
    metric: Metric = about("loss", "validation metric that selects the best checkpoint")
    patience: int = _updates(8, "validations without improvement before early stopping; 0: never stop early", 0)
    average: int = about(
        5, "number of last checkpoints averaged at the end, used unless it is worse", 1, 10_000, "each is a file"
    )
    keep: int = _updates(2, "number of checkpoints to resume from; older ones keep only weights, for averaging", 1)
    deterministic: bool = about(
        False, "on a GPU: bit-identical results each time and after a resume, but slower; a CPU is always deterministic"
    )
    log_every: int = _updates(50, "updates between lines in metrics.jsonl", 1)

    def peak_rate(self, d_model: int) -> float:
        """Return the learning rate at the end of warm-up; if none is set, the paper's for a model of this width."""
        return float(self.learning_rate or (d_model * self.warmup_steps) ** -0.5)


@dataclass(frozen=True)
class Decoding:
    """Settings of the search for a translation; beam search is the default."""

    beam: int = about(
        5, "beam width (hypotheses kept at each step); 1: greedy", 1, 200, "more cost memory and do not help"
    )
    length_penalty: float = about(
        1.0, "alpha: a score is the sum of log-probabilities / length^alpha", 0, 10, "length^alpha must fit in float32"
    )
    length_formula: Literal["power", "paper"] = about("power", "length^alpha, or the paper's ((5 + length) / 6)^alpha")
    stop_against: StopAgainst = about(
        "worst",
        "beam search stops when `beam` hypotheses are finished and no open one scores higher than the worst of them; "
        "best: than the best of them, as in seq2see 0.1.0, which is faster and gives poorer n-best lists",
    )
    max_ratio: float = _growth(2.0, "an output has at most max_ratio * source tokens + max_extra tokens", 0, 100)
    max_extra: int = _growth(50, "number of output tokens allowed beyond max_ratio * source tokens", 1, 1000)
    max_source: int = _length(1024, "maximum source tokens of a line; the rest is cut off, with a warning")
    batch_tokens: int = about(8192, "batch size: source tokens times beam", 1, 10_000_000, "larger is no faster")


@dataclass(frozen=True)
class Settings:
    """All settings; `settings.toml` in a run folder has a value for each, including defaults."""

    data: Data = Data()
    model: Model = Model()
    training: Training = Training()
    decoding: Decoding = Decoding()


SECTIONS: dict[str, type] = {"data": Data, "model": Model, "training": Training, "decoding": Decoding}

TRANSFORMER_ONLY = ("heads", "d_key", "d_value", "d_ff", "activation", "norm", "norm_epsilon", "positions")


def foreign(architecture: str) -> tuple[str, ...]:
    """Return the names of the model settings that have no effect with an architecture."""
    others = {
        "transformer": ("cell", "d_hidden", "source_reversed", "kernel"),
        "convolutional": (*TRANSFORMER_ONLY, "cell", "source_reversed"),
        "rnn": (*TRANSFORMER_ONLY, "max_positions", "kernel"),
    }
    return others.get(architecture, (*others["rnn"], "source_reversed"))  # all other RNNs read both ways


# Reading and writing

PRESETS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
"""Presets by name: settings by section, a description, and the name of the preset that it extends, if any."""


def preset(name: str) -> dict[str, dict[str, Any]]:
    """Return the settings of a preset by name, merged into those of the preset that it extends."""
    if name not in PRESETS:
        raise SettingError(f"unknown preset '{name}'. {nearest(name, PRESETS)}")
    own = PRESETS[name]
    below = PRESETS.get(own.get("extends", ""), {})
    return {section: below.get(section, {}) | own.get(section, {}) for section in SECTIONS if section in below | own}


MOST_BYTES, MOST_IN_LINE = 64 * 1024, 10_000
"""Maximum size of a settings file in bytes, and of its lines in characters; larger ones are refused. All settings take
3 kB, and a pattern of 4,000 characters may double by backslashes. `tomllib` takes minutes for a key of 50,000 parts."""


def read_toml(path: Path) -> Overlay:
    """Return the settings in a TOML file; raise an error if it is missing, too large or not TOML."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SettingError(f"{path}: {path.stat().st_size:,} bytes, a settings file has at most {MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8")
        if any(len(line) > MOST_IN_LINE for line in text.splitlines()):
            raise SettingError(f"{path}: a line has more than {MOST_IN_LINE:,} characters, too long for settings")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise SettingError(f"{path}: no such settings file") from None
    except (ValueError, RecursionError) as problem:
        raise SettingError(f"{path}: not TOML: {str(problem)[:200]}") from None


def write_toml(settings: Settings, path: Path) -> None:
    """Write all settings to a TOML file, including those with default values."""
    import tomli_w

    storage.write_text(path, tomli_w.dumps(asdict(settings)))


EARLIER_RULES: Overlay = {"decoding": {"stop_against": "best"}}
"""Values of settings that an old run folder does not mention: the behaviour of the releases that did not have the
setting yet. A new run folder contains every setting, so these values apply to old run folders alone."""


def read_settings(folder: Path) -> Settings:
    """Return the settings of a run; an old run keeps the behaviour of the release that made it (`EARLIER_RULES`)."""
    try:
        return resolve(EARLIER_RULES, read_toml(folder / "settings.toml"))
    except (SettingError, OSError) as problem:
        raise RunError(f"{folder}: the settings cannot be read ({problem}). Copy the run again") from None


def keys(*overlays: Overlay) -> set[str]:
    """Return the names of the settings that overlays contain: `{"model.d_model"}`."""
    return {f"{section}.{key}" for overlay in overlays for section, values in overlay.items() for key in values}


# Checking


def resolve(*overlays: Overlay) -> Settings:
    """Merge overlays into the defaults, later ones over earlier ones, and check the result."""
    settings = check_keys(*overlays)
    _check_together(settings)
    return settings


def check_keys(*overlays: Overlay) -> Settings:
    """Merge overlays into the defaults and check each value, but not whether values contradict each other, since more
    overlays may follow. A new tokenizer or architecture discards settings of earlier overlays that it does not use."""
    merged: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for overlay in overlays:
        for section, values in overlay.items():
            if section not in SECTIONS:
                raise SettingError(f"unknown section '{section[:60]}'. {nearest(section[:60], SECTIONS)}")
            if not isinstance(values, Mapping):
                raise SettingError(f"'{section}' is a section: write {section}.key=value")
            for side in ("source", "target"):  # another kind of tokenizer has no use for the pattern below
                if section == "data" and values.get(f"{side}_tokenizer", "pattern") != "pattern":
                    merged["data"].pop(f"{side}_pattern", None)
            if section == "model" and "architecture" in values:  # nor another architecture for what was of the first
                for key in foreign(str(values["architecture"])):
                    merged["model"].pop(key, None)
            merged[section].update(values)
    settings = Settings(**{name: _build(name, kind, merged[name]) for name, kind in SECTIONS.items()})
    for side, _, pattern in _sides(settings.data):
        if pattern:
            patterns.compiled(pattern, f"data.{side}_pattern")
    return settings


def _sides(data: Data) -> Iterable[tuple[str, TokenizerKind, str]]:
    yield "source", data.source_tokenizer, data.source_pattern
    yield "target", data.target_tokenizer, data.target_pattern


def _build(section: str, kind: type, values: Mapping[str, Any]) -> Any:
    """Return one section as a dataclass, with each value checked."""
    known = {each.name: each for each in fields(kind)}
    types = typing.get_type_hints(kind)
    built = {}
    for key, value in values.items():
        if key not in known:
            raise SettingError(f"unknown setting '{section}.{key[:60]}'. {nearest(key[:60], known)}")
        built[key] = _convert(f"{section}.{key}", value, types[key], known[key].metadata)
    return kind(**built)


_IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _convert(name: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """Return a raw value as type `kind`; raise an error if it is of another type, too long or out of range."""

    def refuse(why: str) -> NoReturn:
        raise SettingError(f"{name} = {shown(value)}: {why}")

    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        return value if value in choices else refuse(f"unknown. {nearest_of_few(shown(value), choices)}")
    low, high, why = metadata["minimum"], metadata["maximum"], metadata["why"]
    if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
        value = float(value)
    if type(value) is not kind and not (kind is float and type(value) is int):
        refuse(f"expected {_IN_WORDS[kind]}")
    if kind is str and len(value) > MOST_CHARACTERS:
        raise SettingError(f"{name}: {len(value):,} characters are too many, at most {MOST_CHARACTERS:,}")
    if type(value) is float and not math.isfinite(value):
        refuse("expected a finite number")
    below, above = low is not None and value < low, high is not None and value > high
    if (below or above) and high is not None and not why:
        refuse(f"expected between {low:g} and {high}")
    if below or above:
        refuse(f"expected at least {low:g}" if below else f"expected at most {high:,} ({why})")
    return value


def _check_together(settings: Settings) -> None:
    """Raise an error if settings contradict each other."""
    data, model = settings.data, settings.model
    _check_model(model)
    if model.longest <= data.max_length:
        raise SettingError(
            f"model.max_positions must be larger than data.max_length = {data.max_length} (for the end token)"
        )
    for side, kind, pattern in _sides(data):
        if kind == "pattern" and not pattern:
            choice = f"a regular expression, or one of {', '.join(patterns.NAMED)}"
            raise SettingError(f"data.{side}_tokenizer = 'pattern' needs data.{side}_pattern: {choice}")
        if pattern and kind != "pattern":
            raise SettingError(
                f"data.{side}_pattern = {pattern!r} has no effect with data.{side}_tokenizer = {kind!r}: "
                f"set data.{side}_tokenizer=pattern, too"
            )
    if data.shared and data.source_tokenizer != data.target_tokenizer:
        raise SettingError("data.shared needs the same kind of tokenizer on both sides: set data.shared=false")
    if data.shared and data.source_pattern != data.target_pattern:
        raise SettingError("data.shared needs the same pattern on both sides: set data.shared=false")
    check_decoding(settings.decoding)
    if model.tie == "all" and not data.shared and {data.source_tokenizer, data.target_tokenizer} != {"imported"}:
        raise SettingError('model.tie = "all" needs data.shared = true: set model.tie=decoder')


def _check_model(model: Model) -> None:
    for key in foreign(model.architecture):
        if getattr(model, key) != getattr(Model, key):
            raise SettingError(
                f"model.{key} = {getattr(model, key)!r} has no effect with model.architecture = "
                f"'{model.architecture}': leave it out"
            )
    if model.architecture.startswith("rnn"):
        if model.encoder_layers != model.decoder_layers:
            raise SettingError(
                f"model.encoder_layers = {model.encoder_layers}, model.decoder_layers = {model.decoder_layers}: an RNN "
                "needs the same number in both, since its decoder starts from the state of its encoder"
            )
        width = model.d_hidden or model.d_model
        if model.architecture != "rnn" and width % 2:
            name = "d_hidden" if model.d_hidden else "d_model"
            raise SettingError(
                f"model.{name} = {width}: each direction of the encoder has half of the state, so it must be even"
            )
    elif model.architecture == "convolutional":
        return
    elif not model.d_key and model.d_model % model.heads:
        raise SettingError(
            f"model.d_model = {model.d_model} is not divisible by model.heads = {model.heads}: "
            "change one, or set model.d_key"
        )
    elif model.positions == "sinusoid" and model.d_model % 2:
        raise SettingError(f"model.d_model = {model.d_model}: sinusoid positions need an even width")
    elif model.positions == "rotary" and (model.d_key or model.d_model // model.heads) % 2:
        raise SettingError("rotary positions need an even width per head: change model.d_key, d_model or heads")


MOST_OUTPUT, MOST_GROWN = 1_000_000, 50_000
"""Maximum numbers of tokens that the settings of `decoding` may allow; settings that allow more are an error.
`MOST_OUTPUT` is for one output, and limits the table of positions. `MOST_GROWN` is for all `beam` hypotheses of a
source of 8 tokens together, since a model that never outputs the end token extends each hypothesis to its limit."""


def check_decoding(decoding: Decoding) -> None:
    """Raise an error if a value is out of range, or if outputs could exceed `MOST_OUTPUT` or `MOST_GROWN` tokens."""
    _build("decoding", Decoding, asdict(decoding))
    longest = decoding.max_ratio * (decoding.max_source + 8) + decoding.max_extra
    if longest > MOST_OUTPUT:
        raise SettingError(
            f"decoding.max_ratio = {decoding.max_ratio:g} and decoding.max_source = {decoding.max_source:,} allow "
            f"outputs of {longest:,.0f} tokens, more than {MOST_OUTPUT:,}: lower one"
        )
    shortest = int(decoding.max_ratio * 8) + decoding.max_extra
    if decoding.beam * shortest > MOST_GROWN:
        raise SettingError(
            f"decoding.beam = {decoding.beam:,} hypotheses of up to {shortest:,} tokens (decoding.max_ratio, "
            f"decoding.max_extra) for a text of 8 tokens are more than {MOST_GROWN:,} tokens: lower one of the three"
        )


def describe() -> Iterable[tuple[str, str, str, str]]:
    """Yield (key, type or choices, default, description) of every setting, for help pages and docs."""
    for section, kind in SECTIONS.items():
        types = typing.get_type_hints(kind)
        for each in fields(kind):
            values = " | ".join(typing.get_args(types[each.name])) or types[each.name].__name__
            yield f"{section}.{each.name}", values, str(each.default), each.metadata["about"]


def model_in_words(model: Model) -> str:
    """Return the size of a model as text: `3 + 3 layers, width 256, 4 heads`; `1 + 1 LSTM, width 168, attention`."""
    layers, width = f"{model.encoder_layers} + {model.decoder_layers}", model.d_hidden or model.d_model
    if model.architecture == "transformer":
        return f"{layers} layers, width {model.d_model}, {model.heads} heads"
    if model.architecture == "convolutional":
        return f"{layers} convolutions of {model.kernel} tokens, width {width}, attention"
    seen = {"rnn": "", "rnn-bidirectional": ", both directions", "rnn-attention": ", attention"}
    attends = f", {ALIGNMENTS.get(model.architecture)} attention"
    return f"{layers} {model.cell.upper()}, width {width}{seen.get(model.architecture, attends)}"
