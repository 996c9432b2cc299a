"""ONNX graphs give our greedy translations in onnxruntime, for every norm, kind of positions, activation and tie."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marian
from conftest import TINY, random_words
from seq2see import api
from seq2see.interop import onnx_graph
from seq2see.interop.export import export
from seq2see.interop.importing import import_model
from seq2see.interop.onnx_export import OnnxModel, greedy
from seq2see.run import load

pytest.importorskip("onnx", reason="the extra `export` is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")

MODELS: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rotary", "norm": "pre", "activation": "gelu", "output_bias": True},
    "learned": {"positions": "learned", "norm": "post", "activation": "silu", "tie": "none", "d_value": 12},
    "none": {"positions": "none", "norm": "pre", "d_key": 6},
}


@pytest.mark.parametrize(
    "name", ["rotary", *(pytest.param(name, marks=pytest.mark.slow) for name in ("learned", "none"))]
)
def test_any_transformer_is_exported(tmp_path: Path, name: str) -> None:
    pairs = tmp_path / "upper.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(200, 1)), encoding="utf-8")
    few = {"max_steps": 30, "validate_every": 30, "batch_tokens": 500, "average": 1, "warmup_steps": 10}
    data = {"source_tokenizer": "characters", "target_tokenizer": "characters"}
    settings = {"model": TINY["model"] | MODELS[name], "training": few, "data": data}
    run = api.train(pairs, tmp_path / "run", settings=settings)
    parity = export(run.folder, tmp_path / "out", "onnx", "float32")
    assert parity.same == parity.sentences


def test_500_of_500_and_the_tokenizer_of_tokenizers(trained: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    export(trained, tmp_path / "out", "onnx", "float32")
    run = load(trained)
    words = random_words(500, 13, 7)
    ours = run.search(words, 1, engine=run.engine("torch"))
    sources = [list(each.source) for each in ours]
    results = greedy(tmp_path / "out", run.settings, run.tokenizers, words)
    found = [each.translations[0].tokens for each in results]
    assert found == [each.translations[0].tokens for each in ours]
    reader = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert [reader.encode(word).ids for word in words] == sources
    writer = Tokenizer.from_file(str(tmp_path / "out" / "target" / "tokenizer.json"))
    assert [writer.decode(ids) for ids in found] == [each.text for each in ours]


def test_the_separate_decoders_agree_with_the_merged_one(trained: Path, tmp_path: Path) -> None:
    export(trained, tmp_path / "out", "onnx", "float32")
    encoder, first, later, _ = (
        onnxruntime.InferenceSession(str(tmp_path / "out" / "onnx" / f"{kind}.onnx")) for kind in onnx_graph.KINDS
    )
    ids = np.array([[5, 6, 7, 3]], np.int64)
    mask = np.ones_like(ids)
    (memory,) = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    token, fixed = np.array([[2]], np.int64), {"encoder_attention_mask": mask}
    logits, *present = first.run(None, {"input_ids": token, "encoder_hidden_states": memory, **fixed})
    names = [each.name.replace("present", "past_key_values") for each in first.get_outputs()[1:]]
    tokens = []
    past = dict(zip(names, present, strict=True))
    while len(tokens) < 20:
        logits[..., [0, 2]] = -1e9
        tokens.append(int(logits[0, -1].argmax()))
        if tokens[-1] == 3:
            break
        logits, *present = later.run(None, {"input_ids": np.array([[tokens[-1]]]), **fixed, **past})
        names = [each.name.replace("present", "past_key_values") for each in later.get_outputs()[1:]]
        past |= dict(zip(names, present, strict=True))
    assert OnnxModel(tmp_path / "out").search([[5, 6, 7, 3]], [20]) == [tokens[:-1] if tokens[-1] == 3 else tokens]


def test_int8_and_an_imported_model(cli, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tokenizers import Tokenizer

    marian.make(tmp_path / "model")
    import_model(tmp_path / "model", tmp_path / "run")
    ended = cli("export", tmp_path / "run", tmp_path / "out", "--to", "onnx", "--precision", "int8", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["same"] > 150  # of 200 random sentences, whose outputs are near ties
    names = sorted(path.name for path in (tmp_path / "out" / "onnx").iterdir())
    assert names == ["decoder_model_merged_quantized.onnx", "encoder_model_quantized.onnx"]
    reader = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    lines = [*marian.sentences(50, 8), "Ａ  é x"]
    ours = load(tmp_path / "run").tokenizers.source.encode(lines)
    assert [reader.encode(line).ids[:-1] for line in lines] == ours


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source_tokenizer", "symbols"),
        ("source_tokenizer", "bpe"),
        ("normalization", "nfkc"),
        ("source_tags", "first"),
        ("target_tags", "last"),
    ],
)
def test_what_tokenizer_json_cannot_hold_is_refused(cli, trained: Path, tmp_path: Path, key: str, value: str) -> None:
    shutil.copytree(trained, tmp_path / "run")
    text = (trained / "settings.toml").read_text()
    lines = [f'{key} = "{value}"' if line.startswith(f"{key} =") else line for line in text.splitlines()]
    (tmp_path / "run" / "settings.toml").write_text("\n".join(lines).replace("shared = true", "shared = false"))
    ended = cli("export", tmp_path / "run", tmp_path / "out", "--to", "onnx")
    assert (ended.code, f"data.{key}" in ended.err, "tokenizer.json" in ended.err) == (2, True, True), ended.err


def test_transformers_js_in_node_translates_as_we_do(trained: Path, tmp_path: Path) -> None:
    """Runs where `npm install --ignore-scripts @huggingface/transformers` was done in the folder TRANSFORMERS_JS."""
    place = Path(os.environ.get("TRANSFORMERS_JS", "/nowhere"))
    if not (place / "node_modules" / "@huggingface" / "transformers").is_dir() or not shutil.which("node"):
        pytest.skip("transformers.js is not installed in the folder TRANSFORMERS_JS")
    export(trained, tmp_path / "out", "onnx", "float32")
    words = random_words(100, 17)
    script = (Path(__file__).parent / "translate.mjs").read_text(encoding="utf-8")
    (place / "seq2see-test.mjs").write_text(script, encoding="utf-8")
    given = "".join(f"{word}\n" for word in words)
    ended = subprocess.run(
        ["node", "seq2see-test.mjs", str(tmp_path), "out"], cwd=place, input=given, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    run = load(trained)
    assert ended.stdout.splitlines() == [each.text for each in run.search(words, 1, engine=run.engine("torch"))]
