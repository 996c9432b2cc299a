"""The models that the Transformer replaced, through the program: they do what it does, or say why not."""

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from seq2see import api
from seq2see.errors import SettingError
from seq2see.run import load
from seq2see.training.events import Trained

KINDS = ("rnn", "rnn-attention", "rnn-dot", "convolutional")
LAYERS = {"convolutional": {"encoder_layers": 2, "decoder_layers": 2}}
TRAINING = {
    "max_steps": 110,
    "warmup_steps": 20,
    "learning_rate": 1e-2,
    "batch_tokens": 1000,
    "validate_every": 50,
    "average": 2,
    "log_every": 10,
}
SETTINGS = {"model": {"d_model": 24, "d_hidden": 48, "dropout": 0.0}, "training": TRAINING}


def pairs(folder: Path, count: int = 600) -> Path:
    """Numbers from 100 to 999, to be written backwards with a letter in front."""
    path = folder / "pairs.tsv"
    lines = [f"{number}\tn{str(number)[::-1]}\n" for number in range(100, 1000)]
    path.write_text("".join(np.random.default_rng(1).permutation(lines)[:count]), encoding="utf-8")
    return path


def settings_of(kind: str) -> dict[str, dict[str, object]]:
    return SETTINGS | {"model": SETTINGS["model"] | LAYERS.get(kind, {})}


@pytest.fixture(scope="module")
def runs(once) -> dict[str, Path]:
    """One of each, trained for seconds; copy before changing anything."""

    def make(folder: Path) -> None:
        for kind in KINDS:
            api.train(pairs(folder), folder / kind, preset=kind, settings=settings_of(kind))

    folder = once("recurrent", make)
    return {kind: folder / kind for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_all_searches_find_it(cli, runs: dict[str, Path], kind: str) -> None:
    unseen = load(runs[kind]).validation_pairs
    said = {}
    for words in ([], ["--beam", "1"], ["--engine", "torch", "--precision", "int8"], ["--sample", "--top-k", "1"]):
        source = "".join(f"{pair.source}\n" for pair in unseen).encode()
        ended = cli("translate", runs[kind], *words, stdin=source)
        assert ended.code == 0, ended.err
        right = np.mean([line == pair.target for line, pair in zip(ended.out.splitlines(), unseen, strict=True)])
        assert right >= 0.9, (words, right)
        said[" ".join(words)] = ended.out
    assert said["--beam 1"] == said["--sample --top-k 1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnn-bidirectional", "rnn-general"])
def test_the_others_learn_too(kind: str, tmp_path: Path) -> None:
    run = api.train(pairs(tmp_path), tmp_path / kind, preset=kind, settings=settings_of(kind))
    unseen = run.validation_pairs
    said = run.translate([pair.source for pair in unseen])
    assert np.mean([line == pair.target for line, pair in zip(said, unseen, strict=True)]) >= 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_scored_and_talked_to(cli, runs: dict[str, Path], kind: str) -> None:
    ended = cli("evaluate", runs[kind], runs[kind] / "validation.jsonl", "--json")
    assert ended.code == 0, ended.err
    score = json.loads(ended.out)["scores"]["exact"]
    assert score["value"] >= 90
    assert "engine:torch-float32" in score["signature"]
    ended = cli("chat", runs[kind], stdin=b"123\n\n")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "n321")


@pytest.mark.parametrize("kind", KINDS)
def test_ctranslate2_refuses_it(cli, runs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
    for words in (("translate", runs[kind], "--engine", "ctranslate2"), ("export", runs[kind], tmp_path / "out")):
        ended = cli(*words, stdin=b"123\n")
        assert (ended.code, ended.out) == (2, "")
        assert f"ctranslate2 runs Transformers only (model.architecture = '{kind}')" in ended.err
        assert ended.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["rnn-attention", "rnn-dot", "convolutional"])
def test_alignments_are_the_attention(cli, runs: dict[str, Path], kind: str) -> None:
    ended = cli("translate", runs[kind], "--alignments", "--json", stdin=b"123\n987\n")
    assert ended.code == 0, ended.err
    for line in ended.out.splitlines():
        links = json.loads(line)["translations"][0]["alignment"]["links"]
        assert [link["target"] for link in links] == [[place, place + 1] for place in range(4)]
        assert all(0 <= link["source"][0] < 3 for link in links)
    heads = json.loads((runs[kind] / "manifest.json").read_text())["alignment"]["heads"]
    assert all(head == 0 and layer < (2 if kind == "convolutional" else 1) for layer, head in heads)


def test_without_attention_there_is_nothing_to_align(cli, runs: dict[str, Path], tmp_path: Path) -> None:
    why = f"seq2see: {runs['rnn']}: a model without attention (model.architecture = 'rnn') has no"
    for words in (
        ("translate", runs["rnn"], "--alignments"),
        ("look", runs["rnn"], "123", "-o", tmp_path / "look.png"),
        ("look", runs["rnn"], "123", "-o", tmp_path / "look.png", "--picture", "alignment"),
        ("draw", "heads", runs["rnn"], "-o", tmp_path / "heads.png"),
    ):
        ended = cli(*words, stdin=b"123\n")
        assert (ended.code, ended.out) == (2, ""), words
        assert ended.err.startswith(why)
        assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_look_shows_what_there_is(cli, runs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    ended = cli("look", runs[kind], "123", "--json")
    assert ended.code == 0, ended.err
    parts = json.loads(ended.out)
    heads = {"rnn": 0, "convolutional": 2}.get(kind, 1)
    assert parts["summary"]["layers"] == {"encoder": 0, "decoder": 0, "cross": heads}
    assert [name for name in parts if name.startswith("attention/")] == [f"attention/cross/{n}" for n in range(heads)]
    assert parts["summary"]["translation"] == "n321"
    assert len(parts["alignment"]) == 4 * bool(heads)
    assert np.array(parts["importance"]["left_out"]).shape == (5, 4)
    words = "2 + 2 convolutions of 3 tokens, width 48" if kind == "convolutional" else "1 + 1 LSTM, width 48"
    assert parts["summary"]["model_in_words"].startswith(words)
    if heads:
        weights, inside = np.array(parts["attention/cross/0"]), parts["inside/cross/0"]
        assert weights.shape == (1, 5, 4)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-3)
        query, key = (np.array(inside[each])[0] for each in ("query", "key"))
        scores = query @ key.T / (1 if inside.get("unscaled") else query.shape[-1] ** 0.5)
        if "v" in inside:
            scores = np.tanh(query[:, None] + key[None]) @ np.array(inside["v"])
        assert ("v" in inside, inside.get("unscaled", False)) == (kind == "rnn-attention", kind == "rnn-dot")
        np.testing.assert_allclose(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True), weights[0], atol=0.01)
    for name in ("look.html", "beam.png", "layers.svg"):
        words = [] if name == "look.html" else ["--picture", name.partition(".")[0]]
        ended = cli("look", runs[kind], "123", "-o", tmp_path / name, *words)
        assert (ended.code, ended.out) == (0, "n321\n"), ended.err
        assert (tmp_path / name).stat().st_size > 1000


def test_pictures_of_its_one_head(cli, runs: dict[str, Path], tmp_path: Path) -> None:
    run = runs["rnn-attention"]
    for picture in ("attention", "heads", "alignment"):
        ended = cli("look", run, "123", "-o", tmp_path / f"{picture}.png", "--picture", picture)
        assert ended.code == 0, ended.err
    ended = cli("look", run, "123", "-o", tmp_path / "encoder.png", "--place", "encoder")
    assert (ended.code, ended.err) == (2, f"seq2see: --place encoder: {run} has cross attention only\n")
    ended = cli("draw", "heads", run, "--limit", "5", "-o", tmp_path / "worth.png", "--json")
    assert ended.code == 0, ended.err
    worth = json.loads(ended.out)["worth"]
    (without,) = worth["without"]
    assert without["heads"] == [{"place": "cross", "layer": 0, "head": 0}]
    assert without["loss"] > worth["whole"]["loss"] + 0.1, "it needs what it sees"


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_ends_to_the_bit_like_one_that_was_not_stopped(tmp_path: Path, kind: str) -> None:
    model = {"d_model": 8, "d_hidden": 12, "dropout": 0.2, "encoder_layers": 2}
    model |= {"kernel": 2, "decoder_layers": 3} if kind == "convolutional" else {"cell": "gru"}
    training = TRAINING | {"max_steps": 40, "validate_every": 15, "batch_tokens": 300, "log_every": 1}
    settings = {"model": model, "training": training}
    file = pairs(tmp_path, 200)
    api.train(file, tmp_path / "whole", preset=kind, settings=settings)

    def stop(event: object) -> None:
        if isinstance(event, Trained) and event.step == 22:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        api.train(file, tmp_path / "parts", preset=kind, settings=settings, watch=stop)
    api.train(file, tmp_path / "parts", preset=kind, settings=settings, resume=True)
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len(names) >= 3
    for name in names:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_the_preset_by_the_command_line(cli, tmp_path: Path) -> None:
    """The corpus suggests all but the architecture, and says so."""
    few = ["--set", "training.max_steps=2", "--set", "training.warmup_steps=1"]
    words = ["train", pairs(tmp_path, 100), "--out", tmp_path / "run", "--preset", "rnn-attention", *few]
    ended = cli(*words, "--set", "model.cell=gru")
    assert ended.code == 0, ended.err
    (line,) = re.findall(r"model +(.*)", ended.err)[:1]
    assert re.match(r"1 \+ 1 GRU, width \d+, attention: [\d,]+ parameters", line), line
    settings = load(tmp_path / "run").settings
    assert (settings.model.architecture, settings.model.cell) == ("rnn-attention", "gru")
    ended = cli(*words, "--force", "--set", "model.heads=2")
    assert ended.code == 2
    assert "model.heads = 2 has no effect with model.architecture = 'rnn-attention'" in ended.err


def test_fine_tuning_keeps_the_architecture(cli, runs: dict[str, Path], tmp_path: Path) -> None:
    new = tmp_path / "new.tsv"
    new.write_text("".join(f"{number}\tm{str(number)[::-1]}\n" for number in range(100, 200)), encoding="utf-8")
    ended = cli("train", new, "--out", tmp_path / "run", "--from", runs["rnn"], "--set", "training.max_steps=20")
    assert ended.code == 0, ended.err
    assert load(tmp_path / "run").settings.model == load(runs["rnn"]).settings.model


def test_weights_of_another_architecture_are_refused(cli, runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["rnn"], tmp_path / "run"))
    shutil.copy(runs["rnn-attention"] / "model.safetensors", run)
    ended = cli("translate", run, stdin=b"123\n")
    assert ended.code == 2
    assert "the weights do not fit the settings" in ended.err


def test_heads_that_are_not_there(runs: dict[str, Path]) -> None:
    from seq2see.lens.heads import Head

    run = load(runs["rnn-attention"])
    with pytest.raises(SettingError, match="no encoder attention in this model"):
        run.head_worth(run.validation_pairs[:2], groups=[[Head("encoder", 0, 0)]])
