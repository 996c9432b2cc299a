"""How documents are cut for a run, and translations that are kept."""

import contextlib
import dataclasses
import sqlite3

import pytest

from seq2see.config import Decoding, Settings
from seq2see.decoding import running_text
from seq2see.decoding.hypothesis import Constraint, Hypothesis, Task
from seq2see.text.pair import Pair, Sides


def settings(source="unigram", target="unigram"):
    data = dataclasses.replace(Settings().data, source_tokenizer=source, target_tokenizer=target)
    return dataclasses.replace(Settings(), data=data)


@pytest.mark.parametrize(
    ("kinds", "languages", "text", "expected"),
    [
        (("unigram", "unigram"), Sides(), "A man is riding a bike.", True),
        (("unigram", "unigram"), Sides(), "C1CC(=O)N2CC[C@H]2%12", False),
        (("pattern", "unigram"), Sides("en", "de"), "A man", False),
        (("characters", "symbols"), Sides(), "cab", False),
        (("characters", "characters"), Sides("en", "de"), "12 March", True),
        (("characters", "characters"), Sides(), "cab", False),
        (("jamo", "jamo"), Sides(), "안녕하세요", True),
    ],
)
def test_which_runs_translate_human_languages(kinds, languages, text, expected):
    pairs = [Pair(text, text, "here")]
    assert running_text.translates_language(settings(*kinds), languages, pairs) == expected


class Counting:
    name, constrains = "counting", True

    def __init__(self):
        self.asked = []

    def search(self, tasks, settings):
        self.asked += [task.source for task in tasks]
        return [[Hypothesis([*task.source, settings.beam], -1.0, -2.0)] for task in tasks]


def test_a_cache_is_bounded_and_depends_on_model_and_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"x")
    inner = Counting()

    def opened():
        return running_text.CachedEngine(inner, model, tmp_path / "seq2see" / "x.sqlite", most=3)

    def asked(number, beam=5, constraints=()):
        before = len(inner.asked)
        task = Task([number], 9, [], constraints)
        (found,) = opened().search([task], dataclasses.replace(Decoding(), beam=beam))
        assert found == [Hypothesis([number, beam], -1.0, -2.0)]
        return len(inner.asked) - before

    assert [asked(1), asked(1), asked(1, beam=2), asked(1, beam=2)] == [1, 0, 1, 0]
    assert [asked(2), asked(3), asked(4), asked(4), asked(1)] == [1, 1, 1, 0, 1]  # the first were the oldest
    constraint = (Constraint(((7,),), ()),)
    assert [asked(4, constraints=constraint), asked(4, constraints=constraint)] == [1, 1]
    model.write_bytes(b"xy")
    assert asked(4) == 1


def test_a_damaged_cache_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, path = tmp_path / "model.safetensors", tmp_path / "seq2see" / "x.sqlite"
    model.write_bytes(b"x")
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 100)
    engine = running_text.CachedEngine(Counting(), model, path)
    assert engine.search([Task([1], 9, [])], Decoding()) == [[Hypothesis([1, Decoding().beam], -1.0, -2.0)]]


def test_a_failed_write_does_not_block_later_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, path = tmp_path / "model.safetensors", tmp_path / "seq2see" / "x.sqlite"
    model.write_bytes(b"x")
    inner = Counting()
    engine = running_text.CachedEngine(inner, model, path)
    engine.search([Task([1], 9, []), Task([2], 9, [])], Decoding())
    engine._file.execute("PRAGMA busy_timeout = 0")
    with contextlib.closing(sqlite3.connect(path)) as other:
        reading = other.execute("SELECT * FROM found")
        reading.fetchone()  # its lock lets others write, but not commit
        engine.search([Task([3], 9, [])], Decoding())
        reading.close()
    for _ in range(2):
        engine.search([Task([4], 9, [])], Decoding())
        engine = running_text.CachedEngine(inner, model, path)
    assert inner.asked == [[1], [2], [3], [4]]
