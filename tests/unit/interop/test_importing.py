"""Models of Hugging Face's Marian become runs that compute the same: compared with `transformers` itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import marian
from seq2see import storage
from seq2see.errors import RunError
from seq2see.interop.importing import import_model
from seq2see.run import load
from seq2see.text.pair import Pair

pytest.importorskip("transformers", reason="transformers is not installed")

MODELS: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "no output bias": {"bias": False, "activation_function": "relu", "d_model": 16, "heads": 2},
    "two vocabularies": {"separate": True, "decoder_layers": 2},
    "not scaled": {"scale_embedding": False, "activation_function": "gelu"},
    "not tied": {"tie_word_embeddings": False, "encoder_layers": 1, "decoder_layers": 3},
    "own embeddings": {"share_encoder_decoder_embeddings": False, "width": 20},
}


QUICK = ("as OPUS-MT", "two vocabularies")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name not in QUICK)]
)
def test_logits_and_greedy_search_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    model = marian.make(tmp_path / "model", **MODELS[name])
    import_model(tmp_path / "model", tmp_path / "run")
    both = marian.Comparison(model, tmp_path / "model", load(tmp_path / "run"))
    lines = [*marian.sentences(198, 3), "Ａ  ½ é €", "ﬁ ~ abc"]  # normalised by the table; unknown characters
    assert both.logits_differ(lines) < 1e-5
    assert both.searched(lines, 1) == both.generated(lines, 1)


def generation(folder: Path, **changes: Any) -> None:
    """Change the settings of `generate` in a folder."""
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_beam_search_is_that_of_transformers(tmp_path: Path) -> None:
    model = marian.make(tmp_path / "model")
    model.final_logits_bias[0, 0] += 2  # so that outputs end
    marian.save(model, tmp_path / "model")
    generation(tmp_path / "model", num_beams=3, length_penalty=0.5, max_length=25)
    import_model(tmp_path / "model", tmp_path / "run")
    run = load(tmp_path / "run")
    decoding = run.settings.decoding
    assert (decoding.beam, decoding.length_penalty, decoding.max_ratio, decoding.max_extra) == (3, 0.5, 0.0, 24)
    both = marian.Comparison(model, tmp_path / "model", run)
    lines = marian.sentences(60, 8)
    model.generation_config.length_penalty = 0.5
    theirs = both.generated(lines, 3, 25)
    assert sum(len(ids) < 24 for ids in theirs) > 5  # some end by themselves, some at the limit
    assert sum(one == other for one, other in zip(both.searched(lines, 3), theirs, strict=True)) >= 59


def test_forbidden_tokens_are_not_written(tmp_path: Path) -> None:
    model = marian.make(tmp_path / "model", bias=False)
    pad, lines = model.config.pad_token_id, marian.sentences(40, 8)
    import_model(tmp_path / "model", tmp_path / "free")
    both = marian.Comparison(model, tmp_path / "model", load(tmp_path / "free"))
    ours = {ids[0] for ids in both.searched(lines, 1)}
    banned = [[their] for their, our in both.ours.items() if our in ours and our > 3]
    assert banned
    generation(tmp_path / "model", bad_words_ids=[[pad], *banned, [5, 6]])
    found = import_model(tmp_path / "model", tmp_path / "run")
    assert found.notes == ("bad_words_ids: 1 words of several tokens are not forbidden",)
    both = marian.Comparison(model, tmp_path / "model", load(tmp_path / "run"))
    model.generation_config.bad_words_ids = [[pad], *banned]
    assert both.searched(lines, 1) == both.generated(lines, 1)


def test_settings_of_a_search_that_we_lack_are_named(cli, tmp_path: Path) -> None:
    marian.make(tmp_path / "model")
    generation(tmp_path / "model", no_repeat_ngram_size=3, early_stopping=True, min_length=0, forced_eos_token_id=0)
    ended = cli("import", tmp_path / "model", tmp_path / "run")
    assert ended.code == 0
    assert "no_repeat_ngram_size = 3 is not used" in ended.err
    assert "early_stopping = True is not used" in ended.err
    assert len(ended.err.splitlines()) == 2
    assert len(storage.read_manifest(tmp_path / "run")["imported"]["notes"]) == 2
    assert load(tmp_path / "run").settings.decoding.max_extra == marian.LENGTH - 2  # the end takes the last place


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_beams", 10**9, "decoding.beam"),
        ("num_beams", "four", "decoding.beam"),
        ("length_penalty", float("nan"), "decoding.length_penalty"),
        ("length_penalty", -1.0, "decoding.length_penalty"),
        ("max_length", 1, "max_length = 1"),
        ("max_length", 10**30, "max_length"),
        ("max_new_tokens", "all", "max_new_tokens = 'all'"),
        ("bad_words_ids", [[10**12]], "bad_words_ids"),
        ("bad_words_ids", [5], "bad_words_ids"),
    ],
)
def test_wrong_settings_of_a_search_are_refused(cli, once, tmp_path: Path, key: str, value: Any, message: str) -> None:
    made = once("marian", lambda folder: marian.make(folder / "model")) / "model"
    changed = Path(shutil.copytree(made, tmp_path / "model"))
    generation(changed, **{key: value})
    ended = cli("import", changed, tmp_path / "run")
    assert (ended.code, len(ended.err.strip().splitlines())) == (2, 1), ended.err
    assert "generation_config.json" in ended.err
    assert message in ended.err
    assert not (tmp_path / "run").exists()


def test_tags_choose_the_language(cli, tmp_path: Path) -> None:
    model = marian.make(tmp_path / "model", tags=[">>fra<<", ">>cmn_Hans<<"])
    ended = cli("import", tmp_path / "model", tmp_path / "run")
    assert (ended.code, "2 languages" in ended.err + ended.out) == (0, True)
    run = load(tmp_path / "run")
    both = marian.Comparison(model, tmp_path / "model", run)
    lines = marian.sentences(20, 4)
    theirs = both.generated([f">>fra<< {line}" for line in lines], 1)
    ours = run.search(lines, 1, to="fra", engine=run.engine("torch"))
    assert [list(each.translations[0].tokens)[: marian.LENGTH - 1] for each in ours] == theirs
    assert both.searched([f">>fra<< {line}" for line in lines], 1) == theirs
    assert run.tags == ["cmn_Hans", "fra"]
    refused = cli("translate", tmp_path / "run", stdin=b"abc\n")
    assert (refused.code, "--to" in refused.err) == (2, True)


def test_all_verbs_work_on_it(cli, tmp_path: Path) -> None:
    marian.make(tmp_path / "model")
    pairs = tmp_path / "pairs.tsv"
    rows = zip(marian.sentences(60, 5), marian.sentences(60, 6, "klmnopqrstuvwxyz"), strict=True)
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    run = tmp_path / "run"
    ended = cli("import", tmp_path / "model", run, "--valid", pairs, "--json")
    assert ended.code == 0, ended.err
    facts = json.loads(ended.out)
    assert facts["languages"] == {"source": "xx", "target": "yy"}
    assert len(facts["imported"]["files"]["model.safetensors"]) == 64
    assert cli("translate", run, "--engine", "torch", stdin=b"abc de\n").code == 0
    assert cli("translate", run, "--engine", "ctranslate2", "--precision", "float32", stdin=b"abc de\n").code == 0
    assert cli("evaluate", run, pairs, "--json").code == 0
    assert cli("look", run, "abc de", "-o", tmp_path / "look.html").code == 0
    words = ["--from", run, "--out", tmp_path / "tuned", "--set", "training.max_steps=4"]
    tuned = cli("train", pairs, *words, "--set", "training.batch_tokens=300")
    assert tuned.code == 0, tuned.err
    about = storage.read_manifest(tmp_path / "tuned")["fine_tuning"]
    assert about["scores"].keys() == {"old", "new"}
    assert cli("export", run, tmp_path / "ct2").code == 0
    again = cli("import", tmp_path / "model", run)
    assert (again.code, "exists already" in again.err) == (2, True)
    assert cli("import", tmp_path / "model", run, "--force").code == 0


def test_it_is_tokenised_as_the_spans_say(tmp_path: Path) -> None:
    marian.make(tmp_path / "model")
    import_model(tmp_path / "model", tmp_path / "run", valid=[Pair("abc", "xyz", "here")])
    run = load(tmp_path / "run")
    look = run.look("abc  ½ de")
    assert "".join(look.source_tokens).startswith("▁")
    read = ["abc  ½ de"[slice(*span)] for span in look.source_spans]
    assert [each for each in read if each.strip()] == list("abc½de")
    assert len(run.validation_pairs) == 1


@pytest.mark.slow
def test_without_validation_pairs_an_export_is_compared_on_random_tokens(cli, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
    marian.make(tmp_path / "model")
    import_model(tmp_path / "model", tmp_path / "run")
    ended = cli("export", tmp_path / "run", tmp_path / "ct2")
    assert ended.code == 0, ended.err
    assert "200 random sentences" in ended.out


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "m2m_100", "model_type is 'm2m_100'"),
        ("normalize_before", True, "normalize_before"),
        ("activation_function", "gelu_new", "gelu_new"),
        ("decoder_attention_heads", 2, "decoder_attention_heads differ"),
        ("d_model", 10**9, "at most"),
        ("d_model", "many", "whole number"),
        ("vocab_size", 50, "the id of a token is not a number from 0 to 49"),
        ("vocab_size", 10**12, "vocab_size"),
        ("encoder_layers", 3, "no weight model.encoder.layers.2"),
        ("encoder_layers", 1, "a weight model.encoder.layers.1"),
        ("decoder_ffn_dim", 7, "differ"),
    ],
)
def test_features_that_we_lack_and_wrong_numbers_are_named(
    cli, once, tmp_path: Path, key: str, value: Any, message: str
) -> None:
    folder = once("marian", lambda folder: marian.make(folder / "model")) / "model"
    about = json.loads((folder / "config.json").read_text())
    changed = tmp_path / "model"
    changed.mkdir()
    for path in folder.iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    (changed / "config.json").write_text(json.dumps(about | {key: value}))
    ended = cli("import", changed, tmp_path / "run")
    assert ended.code == 2
    assert message in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_made_inside_or_over_the_model(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such folder"):
        import_model(tmp_path / "nothing", tmp_path / "run")
    (tmp_path / "model").mkdir()
    with pytest.raises(RunError, match="the model is in this folder"):
        import_model(tmp_path / "model", tmp_path)


@pytest.mark.slow
def test_a_trained_model_gives_the_same_outputs_in_every_engine(tmp_path: Path) -> None:
    """Trained by `transformers` until its outputs end by themselves; greedy, beam, `look` and CTranslate2 agree."""
    import torch

    model = marian.make(tmp_path / "model", d_model=64, width=128, decoder_layers=2)
    reader = marian.tokenizer(tmp_path / "model")
    shift = str.maketrans("abcdefghijklmnop", "klmnopqrstuvwxyz")
    optimizer = torch.optim.Adam(model.train().parameters(), 2e-3)
    for step in range(600):
        lines = marian.sentences(32, 1000 + step)
        batch = reader(lines, text_target=[line.translate(shift) for line in lines], return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == model.config.pad_token_id] = -100
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    marian.save(model, tmp_path / "model")
    import_model(tmp_path / "model", tmp_path / "run")
    run = load(tmp_path / "run")
    both = marian.Comparison(model, tmp_path / "model", run)
    lines = marian.sentences(200, 2)
    assert both.logits_differ(lines) < 1e-5
    greedy = both.generated(lines, 1)
    assert sum(len(ids) < marian.LENGTH - 1 for ids in greedy) > 180
    assert both.searched(lines, 1) == greedy
    assert both.searched(lines, 1, "ctranslate2") == greedy
    for beam in (4, 6):
        theirs = both.generated(lines, beam)
        # Hypotheses may tie to within float32 rounding (docs/log.md).
        assert sum(one == other for one, other in zip(both.searched(lines, beam), theirs, strict=True)) >= 199
        # CTranslate2 stops at the first `beam` finished hypotheses.
        fast = both.searched(lines, beam, "ctranslate2")
        assert sum(one == other for one, other in zip(fast, theirs, strict=True)) >= 194
    for line in lines[:5]:
        assert run.look(line).translation == run.search([line], engine=run.engine("torch"))[0].text
