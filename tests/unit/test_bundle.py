"""A saved model comes back the same, and what is not one is told in one line."""

import json
import math
import os
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from seq2see import bundle, config, storage
from seq2see.bundle import Bundle
from seq2see.errors import RunError
from seq2see.model.build import build
from seq2see.tokens import tokenizers
from seq2see.tokens.store import Tokenizers

SETTINGS = config.resolve(
    {
        "data": {"shared": False, "source_tokenizer": "characters", "target_tokenizer": "symbols"},
        "model": {"encoder_layers": 1, "decoder_layers": 2, "d_model": 8, "heads": 2, "d_ff": 12, "tie": "decoder"},
    }
)
SHARED = config.resolve({"model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "heads": 2, "d_ff": 12}})


def make(folder: Path, settings: config.Settings = SETTINGS) -> Bundle:
    """A run folder as training leaves it, with random weights."""
    torch.manual_seed(3)
    source = tokenizers.train("characters", ["abcde"], 20)
    target = source if settings.data.shared else tokenizers.train("symbols", ["X Y Z"], 20)
    both = Tokenizers(source, target)
    model = build(settings.model, len(source), len(target)).eval()
    folder.mkdir(parents=True, exist_ok=True)
    config.write_toml(settings, folder / "settings.toml")
    both.save(folder)
    bundle.save_weights(model, folder / "model.safetensors")
    storage.write_manifest(folder, {"corpus": "made", "state": "finished"})
    return Bundle(settings, both, model)


def refused(folder: Path) -> str:
    with pytest.raises(RunError) as raised:
        bundle.load(folder)
    message = str(raised.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("settings", [SETTINGS, SHARED], ids=["two vocabularies", "shared"])
def test_save_then_load_gives_the_same_scores(tmp_path: Path, settings: config.Settings) -> None:
    made = make(tmp_path / "run", settings)
    loaded = bundle.load(tmp_path / "run")
    assert loaded.settings == made.settings
    assert not loaded.model.training
    source_BS, inputs_BT = torch.tensor([[4, 6, 5, 8, 3], [7, 3, 0, 0, 0]]), torch.tensor([[2, 5, 4], [2, 6, 0]])
    with torch.inference_mode():
        assert torch.equal(loaded.model(source_BS, inputs_BT), made.model(source_BS, inputs_BT))
    for side in ("source", "target"):
        texts = ["abc", "X Y", "?"]
        assert getattr(loaded.tokenizers, side).encode(texts) == getattr(made.tokenizers, side).encode(texts)
    assert (loaded.tokenizers.source is loaded.tokenizers.target) == settings.data.shared
    assert (tmp_path / "run" / "target.tokenizer.json").exists() != settings.data.shared


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path: Path) -> None:
    make(tmp_path, SHARED)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert sum("tokens" in name or name == "output.weight" for name in names) == 1
    model = bundle.load(tmp_path).model
    assert model.output.weight is model.source_embedding.tokens.weight is model.target_embedding.tokens.weight


def test_a_run_folder_may_move(tmp_path: Path) -> None:
    make(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert bundle.load(tmp_path / "there").settings == SETTINGS


def test_the_manifest_keeps_facts_and_says_its_format(tmp_path: Path) -> None:
    storage.write_manifest(tmp_path, {"corpus": "코퍼스", "pairs": 3})
    assert storage.read_manifest(tmp_path) == {"format": "seq2see run", "version": 1, "corpus": "코퍼스", "pairs": 3}
    storage.write_manifest(tmp_path, {"pairs": 4})
    assert storage.read_manifest(tmp_path)["pairs"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_no_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none").startswith(f"{tmp_path / 'none'}: no such run folder. Train one with")


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "a file, not a run folder" in refused(tmp_path / "file")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (None, "half written (it has no manifest.json)"),
        ("", "not a JSON file; the run folder is damaged"),
        ('{"format": "seq2see run", "ver', "not a JSON file; the run folder is damaged"),
        ("[]", "not a run folder"),
        ('"seq2see run"', "not a run folder"),
        ('{"model_type": "marian"}', "not a run folder"),
        ('{"format": "other", "version": 1}', "not a run folder"),
        ('{"format": "seq2see run", "version": 2}', "run format 2, this seq2see reads up to 1. Upgrade seq2see"),
        ('{"format": "seq2see run", "version": "1"}', "run format '1'"),
        ('{"format": "seq2see run"}', "run format None"),
    ],
)
def test_manifests_of_others(tmp_path: Path, manifest: str | None, words: str) -> None:
    make(tmp_path)
    path = tmp_path / "manifest.json"
    path.unlink() if manifest is None else path.write_text(manifest)
    message = refused(tmp_path)
    assert words in message
    assert message.startswith(str(tmp_path))


def test_a_folder_that_is_no_run_is_not_looked_through(tmp_path: Path) -> None:
    """/tmp has sockets and links of others: advice about those would be wrong."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/")
    assert refused(tmp_path) == f"{tmp_path}: not a run folder, or half written (it has no manifest.json)"
    (tmp_path / "manifest.json").symlink_to(tmp_path / "gone")
    (tmp_path / "pipe").unlink()
    (tmp_path / "link").unlink()
    assert "damaged" in refused(tmp_path)


def test_a_manifest_that_is_not_text(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe\x00")
    assert "damaged" in refused(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_weights_cut_short(tmp_path: Path, share: float) -> None:
    make(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert re.match(rf"{re.escape(str(path))}: cannot be read \(.*\); the file is cut short", refused(tmp_path))


@pytest.mark.parametrize(
    ("corpus", "command"),
    [
        ("made", "seq2see train made --out {} --resume"),
        ("two words", "seq2see train 'two words' --out {} --resume"),
        ("v1.2", "seq2see train PAIRS --out {} --resume"),  # of v1.2.tsv; v1.2 would be the corpus v1
    ],
)
def test_no_weights_yet(tmp_path: Path, corpus: str, command: str) -> None:
    make(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    storage.write_manifest(tmp_path, {"corpus": corpus, "state": "training"})
    assert re.search(f"no model yet, .* Resume it with: {re.escape(command.format(tmp_path))}$", refused(tmp_path))


@pytest.mark.parametrize("state", ["finished", "imported"])
def test_weights_of_a_finished_run_are_missing(tmp_path: Path, state: str) -> None:
    make(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    storage.write_manifest(tmp_path, {"state": state})
    assert refused(tmp_path).startswith(f"{tmp_path / 'model.safetensors'}: is missing. Copy the run again")


def test_weights_of_another_shape(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "settings.toml"
    path.write_text(path.read_text().replace("d_ff = 12", "d_ff = 13"))
    message = refused(tmp_path)
    assert "feed_forward.w_1.bias has shape [12], the settings require [13]" in message


def test_weights_of_another_model(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "settings.toml"
    path.write_text(path.read_text().replace("decoder_layers = 2", "decoder_layers = 3"))
    message = refused(tmp_path)
    assert "the weights do not fit the settings: missing ['decoder.2." in message
    assert message.endswith("unexpected []")
    save_file({"foreign": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert "unexpected ['foreign']" in refused(tmp_path)


def test_a_setting_that_an_old_run_does_not_name_keeps_its_earlier_rule(tmp_path: Path) -> None:
    """A new run names every setting. One that lacks `stop_against` was made when there was one rule only."""
    make(tmp_path)
    path = tmp_path / "settings.toml"
    written = path.read_text()
    assert 'stop_against = "worst"' in written
    assert config.read_settings(tmp_path) == SETTINGS
    path.write_text(written.replace('stop_against = "worst"\n', ""))
    decoding = replace(SETTINGS.decoding, stop_against="best")
    assert config.read_settings(tmp_path) == replace(SETTINGS, decoding=decoding)
    path.write_text(written.split("[decoding]")[0])
    assert config.read_settings(tmp_path).decoding.stop_against == "best"
    assert config.resolve(config.read_toml(path)).decoding.stop_against == "worst", "as --config it begins a new run"


@pytest.mark.parametrize("name", ["settings.toml", "source.tokenizer.json"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    make(tmp_path)
    (tmp_path / name).unlink()
    assert name in refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [("[model", "not TOML"), ("[model]\nd_modle = 3", "d_modle"), ("[model]\nheads = 5", "divisible")],
)
def test_damaged_settings(tmp_path: Path, content: str, words: str) -> None:
    make(tmp_path)
    (tmp_path / "settings.toml").write_text(content)
    message = refused(tmp_path)
    assert message.startswith(f"{tmp_path}: the settings cannot be read (")
    assert words in message


def test_a_tokenizer_cut_short(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "source.tokenizer.json"
    path.write_text(path.read_text()[:40])
    assert refused(tmp_path).startswith(f"{path}: ")


def test_writing_replaces_in_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before the move leaves the old file whole."""
    path = tmp_path / "manifest.json"
    storage.write_manifest(tmp_path, {"state": "old"})

    def crash(self: Path, target: Path) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(RunError, match="power cut"):
        storage.write_manifest(tmp_path, {"state": "new"})
    assert json.loads(path.read_text())["state"] == "old"


def test_load_weights_changes_nothing_but_the_numbers() -> None:
    model = build(SETTINGS.model, 9, 7)
    before = dict(model.named_parameters())
    bundle.load_weights(model, {name: torch.ones_like(weight) for name, weight in before.items()})
    assert all(weight is before[name] and weight.requires_grad for name, weight in model.named_parameters())
    assert all(bool((weight == 1).all()) for weight in model.parameters())


KINDS = [
    {},
    {"norm": "pre", "positions": "learned", "output_bias": True},
    {"positions": "rotary", "heads": 4},
    {"d_key": 3, "d_value": 5, "encoder_layers": 3},
    {"d_value": 2, "positions": "none"},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_shapes_are_known_without_building(kind: dict[str, object], tie: str) -> None:
    """An engine in C++ reads as many numbers as it believes to be there: all shapes must be right."""
    model = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 8, "heads": 2, "d_ff": 12, "tie": tie}
    settings = config.resolve({"model": model | kind, "data": {"shared": tie == "all"}})
    sizes = (11, 11) if tie == "all" else (11, 13)
    built = build(settings.model, *sizes)
    shapes = {name: tuple(weight.shape) for name, weight in built.named_parameters()}
    assert bundle.transformer_shapes(settings.model, *sizes) == shapes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2e6])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    make(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["decoder.1.feed_forward.w_1.bias"][3] = value
    save_file(weights, tmp_path / "model.safetensors")
    assert "decoder.1.feed_forward.w_1.bias holds numbers that are not finite, or beyond 1e+06" in refused(tmp_path)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.complex64])
def test_weights_of_another_kind_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    make(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = "encoder.0.around_attention.norm.weight"
    save_file(weights | {name: weights[name].to(kind)}, tmp_path / "model.safetensors")
    assert "expected F32" in refused(tmp_path)


def test_a_model_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path)
    monkeypatch.setattr("seq2see.machine.free_memory", lambda: 1000)
    assert "GiB of memory to load, 0.0 GiB are free" in refused(tmp_path)
    with pytest.raises(RunError, match="GiB of memory to load"):
        bundle.read_arrays(tmp_path, made.settings, made.tokenizers)


def test_a_second_tokenizer_where_one_serves_both_sides_is_refused(tmp_path: Path) -> None:
    made = make(tmp_path, SHARED)
    made.tokenizers.source.save(tmp_path / "target.tokenizer.json")
    assert "exists, although data.shared = true" in refused(tmp_path)


TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b.step": torch.tensor(3.0), "c": torch.zeros(4, dtype=torch.uint8)}


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_tensors_come_back(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "a.safetensors"
    bundle.write_tensors(path, TENSORS)
    found = bundle.read_tensors(path, framework)
    assert found.keys() == TENSORS.keys()
    assert all(np.array_equal(np.asarray(found[name]), each.numpy()) for name, each in TENSORS.items())
    assert sum(math.prod(shape) for shape in bundle.read_shapes(path).values()) == 11
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["a.safetensors"]


def test_any_wrong_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    bundle.write_tensors(path, TENSORS)
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        try:
            found = bundle.read_tensors(path)
        except RunError:
            continue
        assert found.keys() == TENSORS.keys(), place  # in the blanks of the header, or in its name for a checksum
        assert all(torch.equal(found[name], each) for name, each in TENSORS.items()), place


def test_files_without_a_checksum_are_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors")
    assert bundle.read_tensors(tmp_path / "a.safetensors").keys() == TENSORS.keys()


def test_names_and_shapes_are_seen_before_anything_is_read(tmp_path: Path) -> None:
    bundle.write_tensors(tmp_path / "a.safetensors", TENSORS)

    def accept(shapes: bundle.Shapes) -> None:
        assert shapes == {"a": (2, 3), "b.step": (), "c": (4,)}
        raise RunError("no")

    with pytest.raises(RunError, match=r"^no$"):
        bundle.read_tensors(tmp_path / "a.safetensors", accept=accept)


class Bomb:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps({"weights": Bomb(tmp_path / "ran")}, protocol))
    with pytest.raises(RunError, match=r"a pickle, as torch\.save writes: reading it could execute code\. Refused"):
        bundle.read_tensors(path)
    torch.save({"weights": torch.zeros(2), "bomb": Bomb(tmp_path / "ran")}, path)
    with pytest.raises(RunError, match="Refused"):
        bundle.read_tensors(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff" * 8, b"\xff" * 8 + b"{", (2**40).to_bytes(8, "little") + b"{}"]
)
def test_what_is_not_safetensors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(RunError, match="cannot be read"):
        bundle.read_tensors(path)


def test_a_folder_or_nothing_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be read \(not a file\)"):
        bundle.read_tensors(tmp_path)
    with pytest.raises(RunError, match=r"cannot be read \(no such file\)"):
        bundle.read_tensors(tmp_path / "none")
