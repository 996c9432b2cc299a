"""A saved model: read and write its weights, and check them against the settings.

    RUN/manifest.json             format, version, facts about the training (`storage`)
        settings.toml             every setting, resolved (`config`)
        source.tokenizer.json     and target.tokenizer.json, unless both sides share one (`tokens.store`)
        model.safetensors         the best weights

Torch is imported only if it is needed: for CTranslate2, the weights are read without it.
"""

import contextlib
import errno
import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from seq2see import config, machine, storage
from seq2see.config import Model, Settings
from seq2see.errors import RunError
from seq2see.tokens.store import Tokenizers

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from seq2see.model.interface import Seq2Seq

Shapes = Mapping[str, tuple[int, ...]]
ROOM = 10_000_000
"""Loading fails at once if the settings require more weights than twice those in the file plus this number. Otherwise
names and shapes are compared, so that the error message can name the first weight that differs.
"""

LARGEST = 1e6
"""Maximum absolute value of a weight in a file; loading a file with a larger one, or with NaN, fails. Useful weights
are far smaller, larger ones could overflow float32 in a forward pass, and sorting scores that are NaN is undefined in
C++.
"""


@dataclass(frozen=True)
class Bundle:
    """A model in memory, on its device, with its settings and tokenizers."""

    settings: Settings
    tokenizers: Tokenizers
    model: "Seq2Seq"


def load(folder: Path, device: "torch.device | str" = "cpu") -> Bundle:
    """Load the model of a run onto `device`, in evaluation mode, with its settings and tokenizers."""
    from seq2see.model.build import build, count_parameters

    storage.read_manifest(folder)
    settings = config.read_settings(folder)
    tokenizers = Tokenizers.load(folder)
    path = weights_file(folder)
    sizes = tokenizers.sizes
    shapes = read_shapes(path)
    asked, there = count_parameters(settings.model, *sizes), sum(map(math.prod, shapes.values()))
    if asked > 2 * there + ROOM:
        raise RunError(f"{path}: has {there:,} parameters, the settings require {asked:,}. Copy the run again")
    if settings.model.architecture == "transformer":  # before time and memory are taken to build one
        check_fit(transformer_shapes(settings.model, *sizes), shapes, path)
    check_memory(path, asked + there)
    model = build(settings.model, *sizes)
    read_weights(model, path)
    return Bundle(settings, tokenizers, model.to(device).eval())


def weights_file(folder: Path) -> Path:
    """Return the file with the weights of a run; raise an error if there is none."""
    weights = folder / "model.safetensors"
    if not weights.exists():
        facts = storage.read_manifest(folder)
        if not is_unfinished(facts):
            raise RunError(f"{weights}: is missing. Copy the run again, or train anew with --force")
        raise RunError(
            f"{folder}: no model yet, training stopped before its first validation. Resume it with: "
            f"{resume_command(folder, facts)}"
        )
    return weights


def is_unfinished(facts: Mapping[str, Any]) -> bool:
    """Return whether the training of a run is not finished, given its manifest: it runs, or was interrupted."""
    return facts.get("state") in ("prepared", "training")


def resume_command(folder: Path, facts: Mapping[str, Any]) -> str:
    """Return the command that resumes the training of a run, given its manifest.

    The name of the corpus is enough, because its files are not read again; in a name with a dot, a suffix is missing.
    """
    corpus = str(facts.get("corpus", ""))
    pairs = shlex.quote(corpus) if corpus and "." not in corpus else "PAIRS"
    return f"seq2see train {pairs} --out {shlex.quote(str(folder))} --resume"


def save_weights(model: "nn.Module", path: Path) -> None:
    """Write the weights of a model to a safetensors file, which is replaced atomically."""
    write_tensors(path, named_weights(model))


def read_weights(model: "nn.Module", path: Path) -> None:
    """Load the weights of a file into a model; names and shapes must match, values must be float32 up to `LARGEST`."""
    own = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    load_weights(model, _read_checked(path, "pt", own))


def read_arrays(folder: Path, settings: Settings, tokenizers: Tokenizers) -> dict[str, Any]:
    """Read the weights of a Transformer as numpy arrays; check shapes and values, which CTranslate2 does not check."""
    path = weights_file(folder)
    numbers = sum(map(math.prod, read_shapes(path).values()))
    check_memory(path, 3 * numbers)  # as they are, as the engine wants them, and on the way
    own = transformer_shapes(settings.model, *tokenizers.sizes)
    return _read_checked(path, "np", own)


def _read_checked(path: Path, framework: str, own: Shapes) -> dict[str, Any]:
    weights = read_tensors(path, framework, lambda shapes: check_fit(own, shapes, path), only_float32=True)
    for name, weight in weights.items():
        if not (float(weight.min()) >= -LARGEST and float(weight.max()) <= LARGEST):  # NaN is neither
            raise RunError(
                f"{path}: {name} holds numbers that are not finite, or beyond {LARGEST:g}: the file is damaged, or the "
                "training has diverged. Copy the run again, or train anew"
            )
    return weights


def check_memory(path: Path, numbers: int) -> None:
    """Raise an error if free memory cannot hold `numbers` float32 numbers; the message names `path`."""
    needed, free = 4 * numbers, machine.free_memory()
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
    """Return the weights by name; tied weights appear once."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def load_weights(model: "nn.Module", weights: "Mapping[str, Tensor]") -> None:
    """Copy weights into a model by name; names and shapes must match exactly."""
    import torch

    own = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    check_fit(own, {name: tuple(weight.shape) for name, weight in weights.items()})
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name])


def check_fit(own: Shapes, shapes: Shapes, path: Path | None = None) -> None:
    """Raise an error if weights to be loaded differ in names or shapes from those of the model.

    Args:
        own: shapes of the weights of the model, by name.
        shapes: shapes of the weights to be loaded, by name.
        path: file of the weights to be loaded, for the error message.
    """
    where = "" if path is None else f"{path}: "
    if own.keys() != shapes.keys():
        missing, foreign = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
        foreign = [name[:80] for name in foreign[:3]]
        raise RunError(f"{where}the weights do not fit the settings: missing {missing[:3]}, unexpected {foreign}")
    for name, shape in shapes.items():
        if own[name] != shape:
            raise RunError(f"{where}weight {name} has shape {list(shape)}, the settings require {list(own[name])}")


# Files of tensors: safetensors, with a checksum


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Write tensors to a safetensors file, which is replaced atomically, with a checksum of their names and values."""
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with storage.replacing(path) as beside:
        save_file(whole, beside, metadata={"crc32": _checksum(whole)})
        beside.chmod(0o644)  # safetensors makes files that only their maker can read


def read_tensors(
    path: Path,
    framework: str = "pt",
    accept: Callable[[Shapes], None] = lambda shapes: None,
    only_float32: bool = False,
) -> dict[str, Any]:
    """Read a safetensors file as tensors of torch ("pt") or numpy ("np"), and verify its checksum if it has one.

    Args:
        accept: called with names and shapes before memory is allocated; raises an error if they do not fit.
        only_float32: refuse numbers of any other type.
    """
    with _opened(path, framework) as file:
        names = list(file.keys())
        for name in names if only_float32 else ():
            if (kind := file.get_slice(name).get_dtype()) != "F32":
                raise RunError(f"{path}: the tensor {name[:80]} has type {kind}, expected F32. Copy the run again")
        accept({name: tuple(file.get_slice(name).get_shape()) for name in names})
        tensors = {name: file.get_tensor(name) for name in names}
        stamp = (file.metadata() or {}).get("crc32")
        if stamp not in (None, _checksum(tensors)):
            raise ValueError("its checksum is wrong")
    return tensors


def read_shapes(path: Path) -> Shapes:
    """Return the shape of each tensor in a safetensors file by name, without reading the values."""
    with _opened(path, "np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in list(file.keys())}


@contextlib.contextmanager
def _opened(path: Path, framework: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        _refuse_pickle(path)
        with safe_open(path, framework=framework) as file:
            yield file
    except (OSError, SafetensorError, ValueError, TypeError, MemoryError) as problem:
        why = " ".join(str(getattr(problem, "strerror", None) or problem).split())[:200]
        raise RunError(f"{path}: cannot be read ({why}); the file is cut short, damaged or not safetensors") from None


def _refuse_pickle(path: Path) -> None:
    """Raise an error if a file is missing, or is a pickle or zip file as `torch.save` writes (reading those may execute
    code); the safetensors loader's own error would be unclear.
    """
    if not path.is_file():
        raise OSError(errno.ENOENT, "not a file" if path.exists() else "no such file")
    with path.open("rb") as file:
        begin = file.read(9)
    of_pickle = begin[:1] == b"\x80" and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if (of_pickle or begin[:4] == b"PK\x03\x04") and begin[8:] != b"{":  # where a header of safetensors begins
        raise RunError(f"{path}: a pickle, as torch.save writes: reading it could execute code. Refused")


def _checksum(tensors: Mapping[str, Any]) -> str:
    """Return a checksum of the names and values of tensors, which is the same for torch tensors and numpy arrays."""
    total = 0
    for name, each in sorted(tensors.items()):
        array = each.numpy() if hasattr(each, "numpy") else each
        total = crc32(array.reshape(-1).view("u1"), crc32(name.encode(), total))
    return f"{total:08x}"
