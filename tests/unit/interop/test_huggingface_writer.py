"""Runs as Hugging Face's Marian folders: `transformers` reads them and translates as we do, and back again."""

import json
import logging
import shutil
import warnings
from dataclasses import asdict
from pathlib import Path

import pytest

import marian
from conftest import TINY, random_words
from seq2see import api, bundle, config
from seq2see.cli.options import parse_assignments
from seq2see.interop.export import export
from seq2see.interop.huggingface_writer import sentencepiece_model
from seq2see.interop.importing import import_model
from seq2see.run import Run, load
from seq2see.tokens import tokenizers

pytest.importorskip("transformers", reason="transformers is not installed")


def same_weights(one: Path, other: Path) -> bool:
    first, second = (bundle.read_tensors(run / "model.safetensors") for run in (one, other))
    return first.keys() == second.keys() and all(bool((first[name] == second[name]).all()) for name in first)


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run like the fixture `trained`, with characters, that Marian can hold."""
    folder = tmp_path_factory.mktemp("post")
    pairs = folder / "upper.tsv"
    pairs.write_text("".join(f"{word}\t{word.upper()}\n" for word in random_words(500, 1)), encoding="utf-8")
    settings = {**TINY, "model": {**TINY["model"], "norm": "post"}}
    return api.train(pairs, folder / "run", settings=settings).folder


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with shared subwords and an output bias, just trained enough that its outputs end."""
    folder = tmp_path_factory.mktemp("tied")
    lines = [" ".join(random_words(3, seed, 4)) for seed in range(200)]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    data = {"source_tokenizer": "unigram", "target_tokenizer": "unigram", "shared": True, "source_vocabulary": 300}
    settings = {"data": data, "model": TINY["model"] | {"output_bias": True}, "training": {"max_steps": 80}}
    settings["training"] |= {"validate_every": 80, "batch_tokens": 800, "average": 1, "learning_rate": 5e-3}
    return api.train(folder / "pairs.tsv", folder / "run", settings=settings, preset="marian")


def test_there_and_back_again_are_the_same_bits(post: Path, tied: Run, tmp_path: Path) -> None:
    for number, run in enumerate((post, tied.folder)):
        parity = export(run, tmp_path / f"out{number}", "huggingface", "float32")
        assert parity.same == parity.sentences > 10
        import_model(tmp_path / f"out{number}", tmp_path / f"back{number}")
        assert same_weights(run, tmp_path / f"back{number}")
        words = random_words(100, 7) if run is post else [" ".join(random_words(3, 7, 4))]
        first, second = (load(each).search(words, 1) for each in (run, tmp_path / f"back{number}"))
        assert [each.translations[0].tokens for each in first] == [each.translations[0].tokens for each in second]


def test_transformers_loads_it_without_a_warning_and_translates_500_of_500(post: Path, tmp_path: Path) -> None:
    from transformers import MarianMTModel
    from transformers.utils import logging as their_logging

    export(post, tmp_path / "out", "huggingface", "float32")
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    their_logging.add_handler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = MarianMTModel.from_pretrained(tmp_path / "out").eval()
    finally:
        their_logging.remove_handler(handler)
    assert [line for line in said if "progress" not in line.lower()] == []
    tokenizer = marian.tokenizer(tmp_path / "out")
    words = random_words(500, 11, 7)
    theirs = []
    for begin in range(0, 500, 100):
        batch = tokenizer(words[begin : begin + 100], return_tensors="pt", padding=True)
        found = model.generate(**batch, num_beams=1, do_sample=False, max_length=60)
        theirs += tokenizer.batch_decode(found, skip_special_tokens=True)
    run = load(post)
    ours = [result.text for result in run.search(words, 1, engine=run.engine("torch"))]
    assert ours == theirs


@pytest.mark.slow
def test_an_imported_model_can_be_exported_again(tmp_path: Path) -> None:
    marian.make(tmp_path / "model", tags=[">>fra<<"])
    import_model(tmp_path / "model", tmp_path / "run")
    parity = export(tmp_path / "run", tmp_path / "out", "huggingface", "float32")
    assert parity.same == parity.sentences == 200
    assert json.loads((tmp_path / "out" / "vocab.json").read_text())[">>fra<<"] > 3


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.norm=pre", "model.norm = 'pre'"),
        ("model.positions=rotary", "model.positions = 'rotary'"),
        ("data.normalization=nfkc", "data.normalization"),
        ("data.target_tokenizer=symbols", "data.target_tokenizer"),
        ("model.d_key=4", "model.d_key"),
        ("model.norm_epsilon=1e-6", "model.norm_epsilon"),
    ],
)
def test_another_run_is_refused_with_the_setting(cli, tied: Run, tmp_path: Path, assignment: str, message: str) -> None:
    shutil.copytree(tied.folder, tmp_path / "run")
    assignments = [assignment]
    if "tokenizer" in assignment:
        assignments += ["data.shared=false", "model.tie=decoder"]
        tied.tokenizers.target.save(tmp_path / "run" / "target.tokenizer.json")
    overlay = parse_assignments(assignments)
    settings = config.resolve(asdict(tied.settings), overlay)
    config.write_toml(settings, tmp_path / "run" / "settings.toml")
    ended = cli("export", tmp_path / "run", tmp_path / "out", "--to", "huggingface")
    assert (ended.code, message in ended.err, "--for huggingface" in ended.err) == (2, True, True)
    assert not (tmp_path / "out").exists()


def test_characters_become_a_sentencepiece_model() -> None:
    import sentencepiece

    made = tokenizers.train("characters", ["ab c", "é▁"], 20)
    reader = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(made))
    assert reader.encode(" ab  é", out_type=str) == ["▁", "a", "b", "▁", "▁", "é"]


def test_train_for_huggingface(cli, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    lines = [" ".join(random_words(3, seed, 4)) for seed in range(60)]
    pairs.write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    few = ["--set", "training.max_steps=2", "--set", "model.d_model=16", "--set", "model.d_ff=16"]
    ended = cli("train", pairs, "--out", tmp_path / "run", "--for", "huggingface", *few)
    assert ended.code == 0, ended.err
    assert cli("export", tmp_path / "run", tmp_path / "out", "--to", "huggingface").code == 0
    refused = cli("train", pairs, "--out", tmp_path / "x", "--for", "hugginface")
    assert (refused.code, "Did you mean 'huggingface'" in refused.err) == (2, True)
