"""A saved model: weights, settings, tokenizers and a manifest, in a folder that needs nothing else.

Torch is imported only where weights are touched: an engine without it reads settings and tokenizers here, too.

RUN/manifest.json             format, version, facts about the training
    settings.toml             every setting, resolved
    source.tokenizer.json     and target.tokenizer.json, unless one serves both sides
    model.safetensors         the best weights
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from seq2see import config
from seq2see.config import Settings
from seq2see.data import tokenizer
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import RunError, SeqError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from seq2see.model.transformer import Transformer

FORMAT = "seq2see run"
VERSION = 1


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
    def load(folder: Path) -> "Tokenizers":
        source = tokenizer.load(folder / "source.tokenizer.json")
        target = folder / "target.tokenizer.json"
        return Tokenizers(source, tokenizer.load(target) if target.exists() else source)


@dataclass(frozen=True)
class Bundle:
    """A model that can be used: in memory, ready for its device."""

    settings: Settings
    tokenizers: Tokenizers
    model: "Transformer"


def load(folder: Path, device: "torch.device | str" = "cpu") -> Bundle:
    """Read a run folder back."""
    from safetensors.torch import load_file

    from seq2see.model.build import build

    read_manifest(folder)
    settings = read_settings(folder)
    tokenizers = Tokenizers.load(folder)
    model = build(settings.model, len(tokenizers.source), len(tokenizers.target))
    load_weights(model, read_weights(folder, load_file))
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


def read_weights(folder: Path, load_file: Callable[[Path], Any]) -> Any:
    """A run's weights by name, read by safetensors' loader for torch or for numpy."""
    path = weights_file(folder)
    try:
        return load_file(path)
    except (OSError, SafetensorError) as problem:
        raise RunError(f"{path}: cannot be read ({problem}); the file is cut short or not safetensors") from None


def read_settings(folder: Path) -> Settings:
    """The settings that a run was trained with."""
    try:
        return config.resolve(config.read_toml(folder / "settings.toml"))
    except SeqError as problem:
        raise RunError(f"{folder}: half written or damaged ({problem})") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Facts about a run; the first thing looked at, so that other folders are told apart in one line."""
    path = folder / "manifest.json"
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder. Train one with: seq2see train PAIRS --out {folder}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder}: not a run folder, or half written (it has no manifest.json)") from None
    except ValueError:
        raise RunError(f"{path}: not JSON; the run folder is damaged") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise RunError(f"{folder}: a folder of another format (manifest.json does not say '{FORMAT}')")
    if not isinstance(manifest.get("version"), int) or manifest["version"] > VERSION:
        raise RunError(
            f"{folder}: run format {manifest.get('version')!r}, this seq2see reads up to {VERSION}. Upgrade seq2see"
        )
    return manifest


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Replace the manifest in one move."""
    write_atomically(folder / "manifest.json", json.dumps({"format": FORMAT, "version": VERSION, **facts}, indent=1))


def save_weights(model: "nn.Module", path: Path) -> None:
    """Replace a weight file in one move."""
    from safetensors.torch import save_file

    beside = path.with_name(f".{path.name}.part")
    save_file(named_weights(model), beside)
    beside.chmod(0o644)  # safetensors makes files that only their maker can read
    beside.replace(path)


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old text or the new one, never half of it."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def named_weights(model: "nn.Module") -> "dict[str, Tensor]":
    """Weights by name; those that are tied appear once."""
    return {name: weight.detach().cpu().contiguous() for name, weight in model.named_parameters()}


def load_weights(model: "nn.Module", weights: "Mapping[str, Tensor]") -> None:
    """Copy weights by name into a model that has exactly these."""
    import torch

    own = dict(model.named_parameters())
    if own.keys() != weights.keys():
        missing, foreign = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
        raise RunError(f"the weights do not fit the settings: missing {missing[:3]}, unexpected {foreign[:3]}")
    with torch.no_grad():
        for name, weight in weights.items():
            if own[name].shape != weight.shape:
                raise RunError(f"weight {name} is {list(weight.shape)}, the settings ask for {list(own[name].shape)}")
            own[name].copy_(weight)
