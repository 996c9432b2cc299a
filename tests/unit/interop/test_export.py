"""An exported model is checked against our own engine, and other programs can read it."""

import json
from pathlib import Path

import pytest

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
    assert "".join(translator.translate_batch([[*"abc", "</s>"]])[0].hypotheses[0]) == "ABC"


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
