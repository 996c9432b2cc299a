"""Functions called in another process: results, errors, and the end of the process."""

import operator
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.alignment import generated

from seq2see.config import Data
from seq2see.errors import DataError
from seq2see.kernels import apart
from seq2see.session.survey import problems
from seq2see.text.pair import NOTHING, pair_of
from seq2see.tokens import aligner, tokenizers
from seq2see.tokens.store import LINKS, Tokenizers, write_tokenised


def refuse(words: str) -> None:
    raise DataError(words)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_function_is_called_in_another_process_which_then_ends():
    with apart.process(os.getpid) as call:
        there = call(os.getpid)
        assert there != os.getpid()
        assert call(divmod, 7, 2) == (3, 1)
        assert call(os.getpid) == there, "all calls are made in one process"
    assert not is_alive(there)


def test_or_in_this_one_if_python_cannot_be_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.executable", "")
    with apart.process(os.getpid) as call:
        assert call(os.getpid) == os.getpid()


def test_errors_come_back():
    with apart.process() as call, pytest.raises(DataError, match="no text"):
        call(refuse, "no text")
    with pytest.raises(DataError, match="no pairs"):
        apart.begin(refuse, "no pairs")()


def test_what_is_begun_is_computed_once_in_another_process():
    found = apart.begin(os.getpid)
    assert found() == found() != os.getpid()


@pytest.mark.parametrize("kind", [kind for kind in tokenizers.KINDS if kind != "imported"])
def test_tokenizers_are_the_same_from_another_process(tmp_path: Path, kind: str):
    pattern = "[a-z]" if kind == "pattern" else ""
    settings = {"source_tokenizer": kind, "source_pattern": pattern, "target_tokenizer": "characters"}
    data = Data(**settings, shared=False, source_vocabulary=400)
    pairs = [pair_of(texts, 1) for texts in generated(50, seed=2)[0]]
    with apart.process(Tokenizers.learn) as call:
        there = call(Tokenizers.learn, pairs, data)
    for name, made in (("here", Tokenizers.learn(pairs, data)), ("there", there)):
        (tmp_path / name).mkdir()
        made.save(tmp_path / name)
    for file in ("source.tokenizer.json", "target.tokenizer.json"):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    text = pairs[0].source
    assert there.source.encode([text]) == tokenizers.load(tmp_path / "here" / "source.tokenizer.json").encode([text])


def test_links_and_problems_are_the_same_from_another_process(tmp_path: Path):
    pairs = [pair_of(texts, 1) for texts in generated(300, seed=2)[0]]
    cut = Tokenizers.learn(pairs, Data(source_tokenizer="symbols", target_tokenizer="symbols", shared=False))
    cut.save(tmp_path)
    train, _ = write_tokenised(tmp_path, "train", pairs, cut, 100, "pairs")
    valid, _ = write_tokenised(tmp_path, "valid", pairs[:50], cut, 100, "pairs")
    stretches = [(0, [*pairs, *pairs])]
    begun = apart.begin(problems, stretches, 1, pairs[:50], NOTHING)
    found = []
    with apart.process(aligner.link) as there:
        for call in (operator.call, there):
            share = call(aligner.link, train.folder, valid.folder, cut.sizes, cut.equal_tokens(), 0.0)
            found.append((share, [(store.folder / LINKS).read_bytes() for store in (train, valid)]))
    assert found[0] == found[1]
    assert begun() == problems(stretches, 1, pairs[:50], NOTHING) != []


def test_a_program_that_ends_waits_for_nothing_that_it_has_begun():
    """As after Ctrl-C or an error while the corpus is prepared."""
    code = "import time; from seq2see.kernels import apart; apart.begin(time.sleep, 60); raise SystemExit(2)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 2


def test_one_core_needs_no_other_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(apart, "cores", lambda: 1)
    with apart.process(os.getpid) as call:
        assert call(os.getpid) == os.getpid()
