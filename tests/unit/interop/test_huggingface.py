"""Folders of strangers: ids are renumbered, and what is damaged or dangerous is refused with one line."""

import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentencepiece import sentencepiece_model_pb2

import marian
from seq2see.errors import RunError
from seq2see.interop import huggingface

pytest.importorskip("transformers", reason="transformers is not installed")


def test_special_tokens_come_first_and_a_shared_row_is_muted() -> None:
    vocabulary = {"</s>": 0, "<unk>": 1, "a": 2, ">>fra<<": 4, "<pad>": 5}
    found = huggingface.renumbered(Path("vocab.json"), vocabulary, 6, pad=5, unknown=1, start=5, end=0)
    assert found.rows == [5, 1, 5, 0, 2, 3, 4]
    assert found.muted == [0]  # padding: the other program has one token for padding and begin
    assert found.spellings == ["<pad>", "<unk>", "<s>", "</s>", "a", "<unused3>", ">>fra<<"]
    assert found.languages == ["fra"]


def test_our_own_numbers_stay() -> None:
    vocabulary = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4}
    found = huggingface.renumbered(Path("vocab.json"), vocabulary, 5, pad=0, unknown=1, start=2, end=3)
    assert (found.rows, found.muted) == ([0, 1, 2, 3, 4], [])


@pytest.fixture
def folder(once: Callable[..., Path], tmp_path: Path) -> Path:
    """Return the folder of a model that may be changed."""
    made = once("marian", lambda folder: marian.make(folder / "model")) / "model"
    return Path(shutil.copytree(made, tmp_path / "model"))


class Harmful:
    """An object whose pickle creates a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = load_file(folder / "model.safetensors")
    return {name: weight.clone() for name, weight in found.items()}  # the file is mapped, and may be written to


def change(folder: Path, name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = weights(folder)
    found[name] = make(found[name]).contiguous()
    save_file(found, folder / "model.safetensors")


def change_vocabulary(folder: Path, **tokens: Any) -> None:
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(vocabulary | tokens))


def pickle_with_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Harmful(folder / "executed")}, folder / "pytorch_model.bin")


def plain_pickle_with_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful(folder / "executed")))


def pickle_of_a_list(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save([1, 2], folder / "pytorch_model.bin")


def zip_that_climbs(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("../../escaped", b"text")


def pickle_as_safetensors(folder: Path) -> None:
    torch.save(weights(folder), folder / "model.safetensors")


def link_outside(folder: Path) -> None:
    (folder / "vocab.json").rename(folder.parent / "vocab.json")
    (folder / "vocab.json").symlink_to(folder.parent / "vocab.json")


def table_that_leads_out(folder: Path) -> None:
    """Change one unit of the trie of the table, so that SentencePiece would read far outside of it."""
    model = bytearray((folder / "source.spm").read_bytes())
    place = model.index(b"nmt_nfkc") + len(b"nmt_nfkc")
    units = place + 12
    for unit in range(units, units + 4000, 4):
        model[unit : unit + 4] = struct.pack("<I", 0x7FFFFE00)
    (folder / "source.spm").write_bytes(model)


def change_header(folder: Path, make: Callable[[dict[str, Any]], object], length: int | None = None) -> None:
    """Change what the header of the weights says, and not the weights."""
    content = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.dumps(make(json.loads(content[8 : 8 + size]))).encode()
    stored = struct.pack("<Q", len(header) if length is None else length) + header + content[8 + size :]
    (folder / "model.safetensors").write_bytes(stored)


def overlapping(header: dict[str, Any]) -> dict[str, Any]:
    one, other, *_ = (name for name in header if name != "__metadata__")
    return header | {one: header[one] | {"data_offsets": header[other]["data_offsets"]}}


def change_pieces(folder: Path, change: Callable[[Any], object]) -> None:
    """Change the pieces of a SentencePiece model."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((folder / "source.spm").read_bytes())
    change(model.pieces)
    (folder / "source.spm").write_bytes(model.SerializeToString())


def change_settings(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


HARMFUL: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pickle with code": (pickle_with_code, "could execute code"),
    "a plain pickle with code": (plain_pickle_with_code, "could execute code"),
    "a pickle of something else": (pickle_of_a_list, "expected a dictionary of tensors"),
    "a zip whose paths climb": (zip_that_climbs, "could execute code"),
    "a pickle called safetensors": (pickle_as_safetensors, "a pickle"),
    "a link to a file outside": (link_outside, "a link to a place outside"),
    "a pipe": (lambda folder: os.mkfifo(folder / "README.md"), "neither a file nor a folder"),
    "weights of another shape": (lambda folder: change(folder, "model.shared.weight", lambda w: w[1:]), "requires"),
    "weights that are not numbers": (
        lambda folder: change(folder, "model.encoder.layers.0.fc1.bias", lambda w: w * float("nan")),
        "not finite",
    ),
    "a table of positions of another length": (
        lambda folder: save_file(
            weights(folder) | {"model.encoder.embed_positions.weight": torch.zeros(3, 32)}, folder / "model.safetensors"
        ),
        "embed_positions",
    ),
    "a huge id": (lambda folder: change_vocabulary(folder, huge=10**12), "the id of a token is not a number"),
    "a negative id": (lambda folder: change_vocabulary(folder, less=-1), "the id of a token is not a number"),
    "an id that is text": (lambda folder: change_vocabulary(folder, text="1"), "the id of a token is not a number"),
    "an id that occurs twice": (lambda folder: change_vocabulary(folder, again=2), "the same id"),
    "broken JSON": (lambda folder: (folder / "vocab.json").write_text('{"a": '), "not JSON"),
    "JSON nested deeply": (lambda folder: (folder / "vocab.json").write_text("[" * 100_000), "not JSON"),
    "JSON that is a list": (lambda folder: (folder / "config.json").write_text("[1]"), "not a JSON object"),
    "JSON in another encoding": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe{"), "not JSON"),
    "no SentencePiece model": (lambda folder: (folder / "source.spm").write_bytes(b"abc" * 99), "SentencePiece"),
    "half a SentencePiece model": (
        lambda folder: (folder / "target.spm").write_bytes((folder / "target.spm").read_bytes()[:-3]),
        "SentencePiece",
    ),
    "a table that leads out of it": (table_that_leads_out, "table"),
    "half of the weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:9000]),
        "cut short",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "neither model.safetensors"),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), "no such file"),
    "a header of another length": (lambda folder: change_header(folder, dict, 10**17), "header too large"),
    "a header with overlapping weights": (lambda folder: change_header(folder, overlapping), "cannot be read"),
    "a header with a huge shape": (
        lambda folder: change_header(
            folder, lambda found: {name: about | {"shape": [2**40] * 2} for name, about in found.items() if "." in name}
        ),
        "cannot be read",
    ),
    "a header that is a list": (lambda folder: change_header(folder, list), "cannot be read"),
    "complex numbers": (
        lambda folder: change(folder, "model.encoder.layers.0.fc1.bias", lambda w: w.to(torch.complex64)),
        "floating-point",
    ),
    "scores that are not numbers": (
        lambda folder: change_pieces(folder, lambda pieces: [setattr(each, "score", float("nan")) for each in pieces]),
        "SentencePiece",
    ),
    "a piece without a letter": (
        lambda folder: change_pieces(folder, lambda pieces: pieces.add(piece="", score=-1.0)),
        "SentencePiece",
    ),
    "half of a surrogate pair": (lambda folder: change_vocabulary(folder, **{"\ud800": 3}), "surrogate"),
    "a token of a million letters": (lambda folder: change_vocabulary(folder, **{"a" * 10**6: 3}), "very long"),
    "an activation that is a list": (
        lambda folder: change_settings(folder, activation_function=["relu"]),
        "activation",
    ),
    "more positions than memory": (lambda folder: change_settings(folder, max_position_embeddings=10**9), "at most"),
    "a folder called vocab.json": (
        lambda folder: [(folder / "vocab.json").unlink(), (folder / "vocab.json").mkdir()],
        "vocab.json",
    ),
    "no unknown token": (lambda folder: (folder / "vocab.json").write_text('{"</s>": 0}'), "no <unk>"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_harmful_folder_is_refused_with_one_line(cli, folder: Path, name: str) -> None:
    harm, message = HARMFUL[name]
    harm(folder)
    ended = cli("import", folder, folder.parent / "run")
    assert ended.code == 2, ended.err
    assert message in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not (folder / "executed").exists()
    assert not (folder.parent / "run").exists()
    assert not list(folder.parents[1].glob("**/escaped"))


def test_what_only_looks_dangerous_is_not_used(folder: Path) -> None:
    """Paths and code that other programs would follow, and a million positions for which no table is made."""
    paths = {"source_spm": "/etc/passwd", "vocab": "../../vocab.json", "source_lang": "../x", "target_lang": "\x1b[31m"}
    (folder / "tokenizer_config.json").write_text(json.dumps(paths))
    change_settings(folder, auto_map={"AutoModel": "modeling.Harmful"}, max_position_embeddings=10**6)
    (folder / "modeling.py").write_text("raise SystemExit('executed')")
    found = huggingface.read(folder)
    assert found.facts["languages"] == {"source": None, "target": None}
    assert found.settings.decoding.max_source == 8192


def test_weights_in_pytorchs_format_and_half_precision_are_read(folder: Path) -> None:
    before = huggingface.read(folder).weights
    halved = {name: weight.half() for name, weight in weights(folder).items()}
    (folder / "model.safetensors").unlink()
    torch.save(halved, folder / "pytorch_model.bin")
    after = huggingface.read(folder).weights
    assert after.keys() == before.keys()
    assert all(abs(after[name] - before[name]).max() < 0.01 for name in before)


def test_positions_that_are_no_sinusoids_become_a_table(folder: Path) -> None:
    table = torch.randn(128, 32)
    save_file(weights(folder) | {"model.decoder.embed_positions.weight": table}, folder / "model.safetensors")
    found = huggingface.read(folder)
    assert found.settings.model.positions == "learned"
    assert found.weights["target_embedding.places.weight"][:, 1].tolist() == table[:, 16].tolist()
    with pytest.raises(RunError, match="no such file"):
        huggingface.read(folder.parent)
