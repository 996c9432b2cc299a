"""A saved model: weights, settings, tokenizers and a manifest, in a folder that needs nothing else.

Torch is imported only where weights are touched: an engine without it reads settings and tokenizers here, too.

RUN/manifest.json             format, version, facts about the training
    settings.toml             every setting, resolved
    source.tokenizer.json     and target.tokenizer.json, unless one serves both sides
    model.safetensors         the best weights
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see import config, memory, storage
from seq2see.config import Data, Model, Settings
from seq2see.errors import RunError, SeqError
from seq2see.storage import FORMAT, VERSION
from seq2see.text.tags import language_tag
from seq2see.tokens import tokenizers
from seq2see.tokens.tokenizers import Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from seq2see.model.interface import Seq2Seq
    from seq2see.text.pair import Pair

ROOM = 10_000_000
"""Weights that settings may ask for beyond those of the file: enough to say in which of them it does not fit."""

LARGEST = 1e6
"""No training that learns anything makes a weight so large. With larger ones, products would leave the range of
float32, and to sort by scores that are NaN is undefined in C++."""

FACTS: dict[str, Callable[[Any], bool]] = {
    "corpus": lambda fact: isinstance(fact, str),
    "state": lambda fact: isinstance(fact, str),
    "pairs": lambda fact: type(fact) is int and 0 <= fact < 2**63,
    "held_out_by": lambda fact: fact in ("blake2b", "crc32"),
    "parameters": lambda fact: type(fact) is int and 0 <= fact < 2**63,
    "languages": lambda fact: (
        isinstance(fact, dict)
        and all(side in ("source", "target") and isinstance(code, str | None) for side, code in fact.items())
    ),
    "choices": lambda fact: (
        isinstance(fact, list)
        and all(isinstance(row, dict) and {"name", "why", "yours"} <= row.keys() for row in fact)
        and all(isinstance(row[key], str) for row in fact for key in ("name", "why"))
        and all(isinstance(row["yours"], list) and all(isinstance(key, str) for key in row["yours"]) for row in fact)
    ),
    "fine_tuning": lambda fact: isinstance(fact, dict),
}
"""Of a manifest, those that others build on, and what they must look like."""
EARLIER_RULES: config.Overlay = {"decoding": {"stop_against": "best"}}
"""What a run folder means by leaving a setting out: the rule of the releases that did not have that setting yet. A new
run folder says every setting, so these values apply to old run folders alone."""


@dataclass(frozen=True)
class Tokenizers:
    """One for each side; the same object where the sides share one."""

    source: Tokenizer
    target: Tokenizer

    def save(self, folder: Path) -> None:
        self.source.save(folder / "source.tokenizer.json")
        if self.target is not self.source:
            self.target.save(folder / "target.tokenizer.json")

    @staticmethod
    def learn(pairs: "Sequence[Pair]", data: Data) -> "Tokenizers":
        """Learn from pairs the tokenizers that the settings ask for."""
        tags = [language_tag(language) for language in data.tags.split()]
        texts = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
        if data.shared:
            texts[0] = [text for both in zip(*texts, strict=True) for text in both]
        source = tokenizers.train(
            data.source_tokenizer, texts[0], data.source_vocabulary, data.normalization, tags, data.source_pattern
        )
        if data.shared:
            return Tokenizers(source, source)
        target = tokenizers.train(
            data.target_tokenizer, texts[1], data.target_vocabulary, data.normalization, pattern=data.target_pattern
        )
        return Tokenizers(source, target)

    @staticmethod
    def files(folder: Path) -> tuple[Path, Path]:
        """Where they were saved: twice the same file where one serves both sides."""
        source, target = folder / "source.tokenizer.json", folder / "target.tokenizer.json"
        return source, target if target.exists() else source

    @staticmethod
    def load(folder: Path) -> "Tokenizers":
        """Load both, or one for both sides, as the settings say."""
        files, shared = Tokenizers.files(folder), read_settings(folder).data.shared
        if files[0] == files[1] and files[0].exists() and not shared:
            raise RunError(f"{folder / 'target.tokenizer.json'}: is missing. Copy the run again")
        if files[0] != files[1] and shared:
            raise RunError(f"{files[1]}: is there, though data.shared = true. Copy the run again")
        source = tokenizers.load(files[0])
        return Tokenizers(source, source if files[0] == files[1] else tokenizers.load(files[1]))


@dataclass(frozen=True)
class Bundle:
    """A model that can be used: in memory, ready for its device."""

    settings: Settings
    tokenizers: Tokenizers
    model: "Seq2Seq"


def load(folder: Path, device: "torch.device | str" = "cpu") -> Bundle:
    """Read a run folder back."""
    from seq2see.model.build import build, count_parameters

    read_manifest(folder)
    settings = read_settings(folder)
    tokenizers = Tokenizers.load(folder)
    path = weights_file(folder)
    sizes = len(tokenizers.source), len(tokenizers.target)
    shapes = storage.read_shapes(path)
    asked, there = count_parameters(settings.model, *sizes), sum(map(math.prod, shapes.values()))
    if asked > 2 * there + ROOM:
        raise RunError(f"{path}: {there:,} weights, the settings ask for {asked:,}. Copy the run again")
    if settings.model.architecture == "transformer":  # before time and memory are taken to build one
        check_fit(transformer_shapes(settings.model, *sizes), shapes)
    _check_memory(path, asked + there)
    model = build(settings.model, *sizes)
    read_weights(model, path)
    return Bundle(settings, tokenizers, model.to(device).eval())


def pick_device() -> "torch.device":
    """The card where there is one, set up for batches whose shapes never repeat; else the processor."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans each new shape anew
    return torch.device("cuda")


def weights_file(folder: Path) -> Path:
    """Where a run's weights are; an error where there are none yet."""
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise RunError(
            f"{folder}: no model yet, training has not validated once. Go on with: seq2see train ... --resume"
        )
    return weights


def read_settings(folder: Path) -> Settings:
    """Return the settings that a run was trained with; an old run keeps the rules of the release that made it."""
    try:
        return config.resolve(EARLIER_RULES, config.read_toml(folder / "settings.toml"))
    except (SeqError, OSError) as problem:
        raise RunError(f"{folder}: half written or damaged ({problem})") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Facts about a run; the first thing looked at, so that other folders are told apart in one line."""
    path = folder / "manifest.json"
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder. Train one with: seq2see train PAIRS --out {folder}")
    if not path.is_symlink() and not path.exists():  # before all else of it is looked at: it may be any folder
        raise RunError(f"{folder}: not a run folder, or half written (it has no manifest.json)")
    storage.refuse_tricks(folder)
    try:
        manifest = storage.read_json(path)
    except (ValueError, IsADirectoryError, FileNotFoundError):
        raise RunError(f"{path}: not JSON; the run folder is damaged") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise RunError(f"{folder}: a folder of another format (manifest.json does not say '{FORMAT}')")
    if not isinstance(manifest.get("version"), int) or manifest["version"] > VERSION:
        raise RunError(
            f"{folder}: run format {config.shown(manifest.get('version'))}, this seq2see reads up to {VERSION}. "
            "Upgrade seq2see"
        )
    for fact, is_right in FACTS.items():
        if fact in manifest and not is_right(manifest[fact]):
            raise RunError(f"{path}: '{fact}' is {str(manifest[fact])[:40]!r}; the run folder is damaged")
    return manifest


def save_weights(model: "nn.Module", path: Path) -> None:
    """Replace a weight file in one move."""
    storage.write_tensors(path, named_weights(model))


def read_weights(model: "nn.Module", path: Path) -> None:
    """Give a model the weights of a file that has exactly these."""
    own = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    load_weights(model, _read_checked(path, "pt", own))


def read_arrays(folder: Path, settings: Settings, tokenizers: Tokenizers) -> dict[str, Any]:
    """Read the weights of a run's Transformer as numpy arrays, for an engine that believes their shapes."""
    path = weights_file(folder)
    numbers = sum(map(math.prod, storage.read_shapes(path).values()))
    _check_memory(path, 3 * numbers)  # as they are, as the engine wants them, and on the way
    own = transformer_shapes(settings.model, len(tokenizers.source), len(tokenizers.target))
    return _read_checked(path, "np", own)


def _read_checked(path: Path, framework: str, own: storage.Shapes) -> dict[str, Any]:
    weights = storage.read_tensors(path, framework, lambda shapes: check_fit(own, shapes), only_float32=True)
    for name, weight in weights.items():
        if not (float(weight.min()) >= -LARGEST and float(weight.max()) <= LARGEST):  # NaN is neither
            raise RunError(
                f"{path}: {name} holds numbers that are not finite, or beyond {LARGEST:g}: the file is damaged, or the "
                "training has diverged. Copy the run again, or train anew"
            )
    return weights


def _check_memory(path: Path, numbers: int) -> None:
    """Refuse to read more numbers than memory has room for."""
    needed, free = 4 * numbers, memory.free()
    if needed > free:
        raise RunError(
            f"{path}: needs {needed / 2**30:,.1f} GiB of memory to load, {free / 2**30:,.1f} GiB are free. "
            "Use a machine with more memory"
        )


def transformer_shapes(model: Model, source_vocabulary: int, target_vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a Transformer by name, without building it; tied weights appear once."""
    D, F, H = model.d_model, model.d_ff, model.heads
    key = model.d_key or D // H
    value = model.d_value or key
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (D,)

    sides = [("encoder", model.encoder_layers, {"self_attention": "around_attention"})]
    sides += [("decoder", model.decoder_layers, {"self_attention": "around_self", "cross_attention": "around_cross"})]
    for side, layers, attentions in sides:
        for layer in (f"{side}.{number}" for number in range(layers)):
            for attention, around in attentions.items():
                linear(f"{layer}.{attention}.w_qkv", H * (2 * key + value), D)
                linear(f"{layer}.{attention}.w_o", D, H * value)
                norm(f"{layer}.{around}.norm")
            linear(f"{layer}.feed_forward.w_1", F, D)
            linear(f"{layer}.feed_forward.w_2", D, F)
            norm(f"{layer}.around_feed_forward.norm")
        if model.norm == "pre":
            norm(f"{side}_norm")
    for side, vocabulary in (("source", source_vocabulary), ("target", target_vocabulary)):
        if side == "source" or model.tie != "all":
            shapes[f"{side}_embedding.tokens.weight"] = (vocabulary, D)
        if model.positions == "learned":
            shapes[f"{side}_embedding.places.weight"] = (model.max_positions, D)
    if model.tie == "none":
        shapes["output.weight"] = (target_vocabulary, D)
    if model.output_bias:
        shapes["output.bias"] = (target_vocabulary,)
    return shapes


def named_weights(model: "nn.Module") -> "dict[str, Tensor]":
    """Weights by name; those that are tied appear once."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def load_weights(model: "nn.Module", weights: "Mapping[str, Tensor]") -> None:
    """Copy weights by name into a model that has exactly these."""
    import torch

    own = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    check_fit(own, {name: tuple(weight.shape) for name, weight in weights.items()})
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name])


def check_fit(own: storage.Shapes, shapes: storage.Shapes) -> None:
    """Refuse other weights than a model's own."""
    if own.keys() != shapes.keys():
        missing, foreign = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
        foreign = [name[:80] for name in foreign[:3]]
        raise RunError(f"the weights do not fit the settings: missing {missing[:3]}, unexpected {foreign}")
    for name, shape in shapes.items():
        if own[name] != shape:
            raise RunError(f"weight {name} is {list(shape)}, the settings ask for {list(own[name])}")
