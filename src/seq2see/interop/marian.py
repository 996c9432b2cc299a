"""Read Marian's own files: weights with settings in `.npz`, vocabularies in `.yml`, SentencePiece models in `.spm`."""

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see import bundle, storage
from seq2see.config import Model
from seq2see.errors import RunError, shown
from seq2see.interop import huggingface, names
from seq2see.interop.huggingface import ACTIVATIONS, MUTED, Foreign, SideVocabulary, renumbered
from seq2see.interop.names import refuse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seq2see.interop.names import Weights

SETTINGS, BIAS, OUTPUT = "special:model.yml", "decoder_ff_logit_out_b", "decoder_ff_logit_out_W"
POSITIONS = 1024
"""Number of positions in the table of the imported model; Marian computes sinusoids for any position instead."""
EPSILON = 1e-6
"""Epsilon of layer norm in Marian's Transformer."""
MUST_BE = {
    "type": "transformer",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-ffn-depth": "2",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-train-position-embeddings": "false",
    "transformer-no-projection": "false",
    "factors-combine": "sum",
    "right-left": "false",
}
"""Settings of Marian that change the model, each with the only value that our model supports."""


def read(folder: Path) -> Foreign:
    """Convert a folder with one Marian model; `source.spm` and `target.spm` are its SentencePiece models."""
    path = _one(folder, "*.npz", "model")
    stored, text = _read_weights(path)
    about = flat_yaml(text)
    for key, value in MUST_BE.items():
        if about.get(key, value) != value:
            raise refuse(path, f"{key} = {shown(about[key])}")
    if about.get("transformer-ffn-activation", "swish") not in ("swish", "relu"):
        raise refuse(path, f"transformer-ffn-activation = {shown(about['transformer-ffn-activation'])}")
    shared = about.get("tied-embeddings-all") == "true" or about.get("tied-embeddings-src") == "true"
    tied = about.get("tied-embeddings-all") == "true" or about.get("tied-embeddings") == "true"
    tables = _tables(path, stored, shared, tied)
    one = [] if shared else sorted(folder.glob("*src.vocab.yml"))
    lists = [one[0], _one(folder, "*trg.vocab.yml", "target vocabulary")] if one else [_vocabulary(folder)] * 2
    source, target = (_side(each, len(table)) for each, table in zip(lists, tables, strict=False))
    model = _model(path, about, "none" if not tied else "all" if shared else "decoder")
    settings = huggingface.settings_of(path, model, {"num_beams": 6}, source, target)
    weights = _converted(path, stored, settings.model, tables, source, target)
    tokenizers = huggingface.tokenizers_of(folder, source, target)
    return Foreign(settings, tokenizers, weights, {"languages": {"source": None, "target": None}, "weights": path.name})


def _one(folder: Path, pattern: str, what: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise RunError(f"{folder}: {len(found)} files {pattern}, expected one with the {what}")
    return found[0]


def _vocabulary(folder: Path) -> Path:
    found = sorted(folder.glob("*vocab.yml"))
    if not found:
        raise RunError(f"{folder}: no file *vocab.yml with the vocabulary")
    return found[0]


def _read_weights(path: Path) -> tuple["Weights", str]:
    """Return the weights, and the settings as YAML text. The archive is not unpacked to the disk."""
    import numpy as np

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(each.file_size for each in archive.infolist())
        bundle.check_memory(path, size // 2)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as problem:
        raise RunError(f"{path}: not a model of Marian, or damaged ({' '.join(str(problem).split())[:120]})") from None
    if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise RunError(f"{path}: {shown(strange[0])} is not an array. Refused")
    if SETTINGS not in arrays:
        raise RunError(f"{path}: not a model of Marian: it has no settings ({SETTINGS})")
    text = arrays.pop(SETTINGS).tobytes().rstrip(b"\0").decode("utf-8", errors="replace")
    kinds = {name: array.dtype.kind for name, array in arrays.items() if array.dtype.kind != "f"}
    if kinds:
        raise refuse(path, f"the weight {min(kinds)[:80]} is not of floating-point numbers (a quantized model)")
    return {name: array.astype(np.float32) for name, array in arrays.items()}, text


LINE = re.compile(r"""^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#'"-][^:]*|[^\s:]+):\s*(.*?)\s*$""")


def flat_yaml(text: str) -> dict[str, str]:
    """Return the top-level `key: value` lines of Marian's YAML files; lists and nested values are left out, and the
    value of their keys is empty.
    """
    found = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            found[_unquoted(match[1])] = _unquoted(match[2])
    return found


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", text)))
        except ValueError:
            return text[1:-1]
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def _side(path: Path, size: int) -> SideVocabulary:
    """Read a vocabulary of `size` ids, and add the id `size` for BEGIN and padding, which Marian does not have."""
    if path.stat().st_size > storage.MOST_TEXT:
        raise RunError(f"{path}: far too large for a vocabulary")
    listed = flat_yaml(path.read_text(encoding="utf-8", errors="replace"))
    if not listed.keys() >= {"</s>", "<unk>"} or not all(re.fullmatch("[0-9]{1,9}", id) for id in listed.values()):
        raise RunError(f"{path}: not a vocabulary: expected lines with a token and its id, </s> and <unk> among them")
    ids = {token: int(id) for token, id in listed.items()}
    if max(ids.values()) >= size:
        raise RunError(
            f"{path}: the id of a token is not a number from 0 to {size - 1:,}, the last row of the embeddings"
        )
    found = renumbered(path, ids, size + 1, pad=size, unknown=ids["<unk>"], start=size, end=ids["</s>"])
    return SideVocabulary(found.spellings, found.rows, sorted({*found.muted, 2}))


def _tables(path: Path, stored: "Weights", shared: bool, tied: bool) -> list["NDArray[np.float32]"]:
    """Return five tables: the embeddings of source and target as stored; the output layer and both embeddings with a
    row of zeros appended, for the id that `_side` adds.
    """
    import numpy as np

    wanted = ["Wemb", "Wemb"] if shared else ["encoder_Wemb", "decoder_Wemb"]
    for name in {*wanted, BIAS} | (set() if tied else {OUTPUT}):
        if name not in stored or stored[name].ndim != 2:
            raise RunError(f"{path}: no weight {name}, or it is not a matrix. Copy the folder again")
    source, target = (np.pad(stored[name], ((0, 1), (0, 0))) for name in wanted)
    output = target if tied else np.pad(stored[OUTPUT].T, ((0, 1), (0, 0)))
    if stored[BIAS].size != len(output) - 1 or len(output) != len(target):
        raise RunError(f"{path}: {BIAS} has {stored[BIAS].size:,} numbers, the output layer {len(output) - 1:,}")
    return [source[:-1], target[:-1], output, source, target]


def _model(path: Path, about: Mapping[str, str], tie: str) -> Model:
    def number(key: str) -> int | str:
        value = about.get(key, "")
        return int(value) if re.fullmatch("[0-9]{1,9}", value) else value

    values = {
        "encoder_layers": number("enc-depth"),
        "decoder_layers": number("dec-depth"),
        "d_model": number("dim-emb"),
        "heads": number("transformer-heads"),
        "d_ff": number("transformer-dim-ffn"),
        "activation": ACTIVATIONS[about.get("transformer-ffn-activation", "swish")],
        "positions": "learned",
        "max_positions": POSITIONS,
        "norm_epsilon": EPSILON,
        "tie": tie,
        "output_bias": True,
    }
    return huggingface.checked(path, {"model": values}).model


def waves(length: int, d_model: int) -> "NDArray[np.float32]":
    """Return Marian's positional encodings LD: sines, then cosines, whose wavelengths grow in d/2 - 1 equal ratios."""
    import numpy as np

    half = d_model // 2
    angle = np.arange(length)[:, None] * np.exp(np.arange(half) * -(np.log(10_000.0) / max(1, half - 1)))
    return np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)


def _converted(
    path: Path, stored: "Weights", model: Model, tables: list[Any], source: SideVocabulary, target: SideVocabulary
) -> "Weights":
    import numpy as np

    _, _, output, source_table, target_table = tables
    if source_table.shape[1] != model.d_model or target_table.shape[1] != model.d_model:
        raise RunError(f"{path}: the embeddings are {source_table.shape[1]} wide, dim-emb says {model.d_model}")
    weights = {"source_embedding.tokens.weight": source_table[source.rows]}
    if model.tie != "all":
        weights["target_embedding.tokens.weight"] = target_table[target.rows]
    if model.tie == "none":
        weights["output.weight"] = output[target.rows]
    weights["output.bias"] = np.append(stored[BIAS].reshape(-1), np.float32(0))[target.rows]
    weights["output.bias"][target.muted] += MUTED
    table = waves(model.max_positions, model.d_model)
    weights |= {f"{side}_embedding.places.weight": table for side in ("source", "target")}

    def read(name: str, shape: tuple[int, ...]) -> Any:
        if name not in stored:
            raise RunError(f"{path}: no weight {name}. Copy the folder again")
        found = stored[name].T if len(shape) == 2 else stored[name].reshape(-1)
        if found.shape != shape:
            raise RunError(f"{path}: {name} is {list(found.shape)}, its settings require {list(shape)}")
        return found

    own = bundle.transformer_shapes(model, len(source.rows), len(target.rows))
    layers = names.marian(model)
    weights |= names.gathered(layers, own, read, np.arange(model.d_model))
    used = {"Wemb", "encoder_Wemb", "decoder_Wemb", BIAS, OUTPUT}.union(*layers.values())
    if foreign := sorted(stored.keys() - used):
        raise refuse(path, f"a weight {foreign[0][:80]}")
    return weights
