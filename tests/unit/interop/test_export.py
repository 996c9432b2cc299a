"""An exported model is checked against our own engine, and other programs can read it."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import random_words
from seq2see import api
from seq2see.interop.export import export
from seq2see.run import load

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")


@pytest.mark.parametrize(("precision", "share"), [("float32", 1.0), ("int8", 0.95)])  # int8 may turn a near tie
def test_ctranslate2_alone_runs_it(cli, trained: Path, tmp_path: Path, precision: str, share: float) -> None:
    out = tmp_path / "exported"
    ended = cli("export", trained, out, "--to", "ctranslate2", "--precision", precision, "--json")
    assert ended.code == 0, ended.err
    facts = json.loads(ended.out)
    assert facts["same"] >= share * facts["sentences"]
    assert facts["bleu_after"] == pytest.approx(facts["bleu_before"], abs=1)
    translator = ctranslate2.Translator(str(out), compute_type=precision)
    assert "".join(translator.translate_batch([[*"abc"]])[0].hypotheses[0]) == "ABC"


@pytest.mark.parametrize(("beam", "engine"), [(1, "torch"), (5, "ctranslate2")])  # our own beam search stops later
def test_pieces_alone_give_our_translations(trained: Path, tmp_path: Path, beam: int, engine: str) -> None:
    """CTranslate2's documented call has the tokens of the text and nothing else: it must append the end by itself."""
    export(trained, tmp_path / "out", "ctranslate2", "float32")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["add_source_eos"], config["add_source_bos"]) == (True, False)
    assert (config["decoder_start_token"], config["eos_token"]) == ("<s>", "</s>")
    words = random_words(400, 9, 6)
    run = load(trained)
    ours = [result.text for result in run.search(words, beam, engine=run.engine(engine, "float32"))]
    translator = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    found = translator.translate_batch([[*word] for word in words], beam_size=beam, patience=2 if beam > 1 else 1)
    theirs = ["".join(each.hypotheses[0]) for each in found]
    different = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other and len(one) < 20]
    # Near ties may fall either way, since we hand over batches of another size; longer ones are cut off by our limit.
    assert len(different) <= 4
    assert sum(len(one) < 20 for one in ours) > 380


def test_sentencepiece_and_ctranslate2_as_in_the_documentation(tmp_path: Path) -> None:
    """The example of docs/export.md, on a model with subwords: both programs read what was exported."""
    lines = [" ".join(random_words(3, seed, 4)) for seed in range(300)]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    data = {"source_tokenizer": "unigram", "target_tokenizer": "unigram", "shared": True}
    data |= {"source_vocabulary": 300, "target_vocabulary": 300}
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "heads": 2, "d_ff": 64, "dropout": 0.0}
    training = {"max_steps": 60, "warmup_steps": 20, "batch_tokens": 1000, "validate_every": 60, "average": 1}
    settings = {"data": data, "model": sizes, "training": training, "decoding": {"max_ratio": 1.0, "max_extra": 10}}
    run = api.train(pairs, tmp_path / "run", settings=settings)
    export(tmp_path / "run", tmp_path / "DIR", "ctranslate2", "float32")
    text = (Path(__file__).parents[3] / "docs" / "export.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0].replace('"DIR', f'"{tmp_path}/DIR')
    example = example.replace("a sentence", lines[0])
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["translations"][0].isupper()
    ours = run.search(lines, 1, engine=run.engine("torch"))
    found = names["translator"].translate_batch(names["source"].encode(lines, out_type=str), beam_size=1)
    ended = different = 0
    for result, their in zip(ours, found, strict=True):
        if len(result.translations[0].tokens) < 15:  # not cut off by our limits, which CTranslate2 does not know
            ended += 1
            different += result.text != names["target"].decode(their.hypotheses[0])
    assert ended > 100
    assert different <= 1


def test_nothing_is_overwritten(cli, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("years of work")
    for words, message in (([], "exists already"), (["--force"], "not an exported model")):
        ended = cli("export", trained, tmp_path, *words)
        assert (ended.code, message in ended.err) == (2, True)
    assert (tmp_path / "mine.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--to", "ctranslate"], "Did you mean 'ctranslate2'?"), (["--precision", "int4"], "Did you mean 'int8'?")],
)
def test_unknown_words(cli, trained: Path, tmp_path: Path, words: list[str], message: str) -> None:
    ended = cli("export", trained, tmp_path / "out", *words)
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "out").exists()
