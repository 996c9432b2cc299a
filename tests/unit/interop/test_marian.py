"""Marian's own files: compared with `transformers`, given Marian's positions and epsilon."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marian as folders
from seq2see.config import Model
from seq2see.interop import marian, names
from seq2see.interop.importing import import_model
from seq2see.run import load

pytest.importorskip("transformers", reason="transformers is not installed")

SETTINGS = """dec-depth: 1
dim-emb: 32
dim-vocabs:
  - 260
  - 260
enc-depth: 2
tied-embeddings-all: true
transformer-dim-ffn: 48
transformer-ffn-activation: swish
transformer-heads: 4
transformer-postprocess: dan
transformer-preprocess: ""
type: transformer
version: v1.9.0
"""


def as_marian(model: Any, folder: Path, settings: str = SETTINGS) -> None:
    """Write the weights of a model of `transformers` as Marian does: matrices the other way round, no padding row."""
    stored = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    sizes = Model(encoder_layers=2, decoder_layers=1, d_model=32, heads=4, d_ff=48)
    arrays = {"Wemb": stored["model.shared.weight"][:-1], "decoder_ff_logit_out_b": stored["final_logits_bias"][:, :-1]}
    theirs, own = names.huggingface(sizes), names.marian(sizes)
    for ours, parts in own.items():
        for name, source in zip(parts, theirs[ours], strict=True):
            arrays[name] = stored[source].T if stored[source].ndim == 2 else stored[source][None]
    arrays["special:model.yml"] = np.frombuffer(settings.encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    lines = [f"{json.dumps(token, ensure_ascii=False)}: {id}" for token, id in vocabulary.items() if token != "<pad>"]
    (folder / "opus.vocab.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in folder.glob("*.json"):
        path.rename(folder.parent / path.name)
    (folder / "model.safetensors").unlink()


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Return a model with Marian's positions and epsilon; its folder is `tmp_path / "model"`."""
    model = folders.make(tmp_path / "model")
    with torch.no_grad():
        model.model.shared.weight[-1] = 0
        model.final_logits_bias[0, -1] = 0
        table = torch.from_numpy(marian.waves(128, 32))
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_positions.weight.copy_(table)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    shutil.copytree(tmp_path / "model", tmp_path / "original")
    as_marian(model, tmp_path / "model")
    return model


def test_logits_and_greedy_search_are_the_same(made: Any, tmp_path: Path) -> None:
    import_model(tmp_path / "model", tmp_path / "run")
    run = load(tmp_path / "run")
    assert (run.settings.model.positions, run.settings.model.norm_epsilon) == ("learned", 1e-6)
    both = folders.Comparison(made, tmp_path / "original", run)
    lines = folders.sentences(200, 3)
    both.ours.pop(both.pad)
    both.ours[both.pad] = 2
    assert both.searched(lines, 1) == both.generated(lines, 1)


def test_marians_sinusoids_divide_by_one_less() -> None:
    table = marian.waves(3, 8)
    assert table[2, 3] == pytest.approx(np.sin(2 / 10_000))
    assert table[2, 1] == pytest.approx(np.sin(2 * 10_000 ** (-1 / 3)))
    assert table[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_flat_yaml() -> None:
    text = 'a-b: 1\n"\\"": 2\n"\\x41:": 3\n\'it\'\'s\': 4\nlist:\n  - 1\n"▁x": 5\n</s>: 0\n'
    found = marian.flat_yaml(text)
    assert found == {"a-b": "1", '"': "2", "A:": "3", "it's": "4", "list": "", "▁x": "5", "</s>": "0"}


def climbing(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.npz", "a") as archive:
        archive.writestr("../../escaped.npy", b"text")


def pickled(folder: Path) -> None:
    np.savez(folder / "model.npz", Wemb=np.array([{"a": 1}], dtype=object))


HARMFUL: dict[str, tuple[Callable[[Path], object], str]] = {
    "a path that climbs": (climbing, "model.npz"),
    "pickled objects": (pickled, "not a model of Marian"),
    "no archive": (lambda folder: (folder / "model.npz").write_bytes(b"PK" * 99), "not a model of Marian"),
    "a huge id": (lambda folder: (folder / "opus.vocab.yml").write_text("</s>: 0\n<unk>: 999999999\n"), "the id of a"),
    "no vocabulary": (lambda folder: (folder / "opus.vocab.yml").unlink(), "no file *vocab.yml"),
    "another vocabulary": (lambda folder: (folder / "opus.vocab.yml").write_text("a: b\n"), "not a vocabulary"),
    "two models": (lambda folder: shutil.copy(folder / "model.npz", folder / "more.npz"), "2 files *.npz"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_harmful_files_are_refused_with_one_line(cli, made: Any, tmp_path: Path, name: str) -> None:
    harm, message = HARMFUL[name]
    harm(tmp_path / "model")
    ended = cli("import", tmp_path / "model", tmp_path / "run")
    assert (ended.code, message in ended.err, len(ended.err.strip().splitlines())) == (2, True, 1), ended.err
    assert not list(tmp_path.parent.glob("**/escaped*"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("transformer-preprocess: n", "transformer-preprocess"),
        ("type: s2s", "type = 's2s'"),
        ("transformer-ffn-activation: gelu", "gelu"),
        ("dim-emb: 64", "wide"),
        ("enc-depth: 3", "encoder_l3"),
        ("dec-depth: many", "whole number"),
    ],
)
def test_features_that_we_lack_are_named(cli, tmp_path: Path, line: str, message: str) -> None:
    model = folders.make(tmp_path / "model")
    as_marian(model, tmp_path / "model", SETTINGS + line + "\n")
    ended = cli("import", tmp_path / "model", tmp_path / "run")
    assert (ended.code, message in ended.err) == (2, True), ended.err
