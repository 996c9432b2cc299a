"""The aligners: known links are found, the time is bounded, and files of links are checked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.alignment import generated

import stores
from seq2see import config
from seq2see.config import Settings
from seq2see.errors import DataError, SettingError
from seq2see.tokens import aligner, store
from seq2see.tokens.store import NO_LINK, Store


def tokens_of(texts: list[str], first: int = 4) -> tuple[list[list[int]], int]:
    """Return words as ids from `first`, and the size of the vocabulary."""
    ids = {
        word: first + number for number, word in enumerate(sorted({word for text in texts for word in text.split()}))
    }
    return [[ids[word] for word in text.split()] for text in texts], first + len(ids)


def stored(folder: Path, pairs: list[tuple[str, str]], some: slice = slice(None)) -> Store:
    (sources, one), (targets, other) = (tokens_of([pair[side] for pair in pairs]) for side in (0, 1))
    stores.write(folder, zip(sources[some], targets[some], strict=True), max(one, other))
    return Store(folder, (one, other))


def test_links_of_two_made_up_languages_are_found(tmp_path):
    pairs, known = generated(1000, seed=5)
    corpus = stored(tmp_path, pairs)
    share = aligner.write_links(aligner.learn(corpus), corpus)
    found = Store(tmp_path).links(np.arange(len(pairs)))
    right = words = linked = start = 0
    for (_, target), links in zip(pairs, known, strict=True):
        sources = {output: source for source, output in links}  # a particle has none, and may be linked to an article
        length = len(target.split())
        words += len(sources)
        right += sum(found[start + output] == source for output, source in sources.items())
        linked += int((found[start : start + length] >= 0).sum())
        assert found[start + length] == -1, "the end comes from nowhere"
        start += length + 1
    assert right / words >= 0.95
    assert share == pytest.approx(linked / (start - len(pairs)))


def test_the_index_of_keys_finds_what_a_binary_search_finds():
    dice = np.random.default_rng(3)
    numbers = np.unique(np.append(dice.integers(0, 1000, 300), [0, 63, 64, 999]))
    wanted = np.arange(1000).reshape(10, 100)
    found, is_there = aligner.KeyIndex(numbers, 1000).find(wanted)
    assert np.array_equal(is_there, np.isin(wanted, numbers))
    assert np.array_equal(found[is_there], np.searchsorted(numbers, wanted[is_there]))


def test_vocabularies_that_are_too_large_for_an_index_give_the_same_links(tmp_path, monkeypatch):
    pairs, _ = generated(200, seed=5)
    corpus, part = stored(tmp_path / "all", pairs), stored(tmp_path / "part", pairs, slice(0, 150))
    every = np.arange(len(corpus))
    links = aligner.learn(part).align(corpus, every)  # some pairs of tokens are not in the part
    monkeypatch.setattr(aligner, "MOST_BITS", 0)
    assert np.array_equal(aligner.learn(part).align(corpus, every), links)


def test_a_corpus_of_one_pair_and_pairs_that_are_too_long(tmp_path):
    corpus = stored(tmp_path / "one", [("a", "b")])
    assert 0 <= aligner.write_links(aligner.learn(corpus), corpus) <= 1
    long = " ".join(["a"] * (aligner.LONGEST + 1))
    corpus = stored(tmp_path / "long", [(long, "b"), ("a", long.replace("a", "b"))])
    assert aligner.write_links(aligner.learn(corpus), corpus) == 0
    assert (Store(tmp_path / "long").links(np.arange(2)) == -1).all()


def test_of_a_large_corpus_a_part_is_aligned(tmp_path, monkeypatch):
    pairs, _ = generated(300, seed=5)
    corpus = stored(tmp_path, pairs)
    monkeypatch.setattr(aligner, "MOST_PAIRS", 100)
    monkeypatch.setattr(aligner, "MOST_CELLS", 4000)
    monkeypatch.setattr(aligner, "BLOCK", 7)
    aligner.write_links(aligner.learn(corpus), corpus)
    corpus = Store(tmp_path)
    linked = [bool((corpus.links(np.array([pair])) >= 0).any()) for pair in range(300)]
    assert {pair for pair in range(300) if linked[pair]} <= set(aligner.chosen(300))
    assert sum(linked) > 60


def test_one_of_each_few_neighbours_is_aligned_and_pairs_that_alternate_are_aligned_alike(monkeypatch):
    assert np.array_equal(aligner.chosen(300), np.arange(300)), "all of a small corpus"
    assert not len(aligner.chosen(0))
    monkeypatch.setattr(aligner, "MOST_PAIRS", 600)
    some = aligner.chosen(1001)
    assert np.array_equal(some // 2, np.arange(501))
    assert 200 < (some % 2).sum() < 300


def test_damaged_links_are_refused_and_a_new_store_has_none(tmp_path):
    corpus = stored(tmp_path, [("a b", "c d")])
    links = tmp_path / store.LINKS
    with pytest.raises(DataError, match=r"no target\.links"):
        corpus.links(np.array([0]))
    links.write_bytes(np.array([0, 7, NO_LINK], "<u2").tobytes())
    with pytest.raises(DataError, match="links is damaged"):
        Store(tmp_path).links(np.array([0]))
    links.write_bytes(b"\0")
    with pytest.raises(DataError, match=r"target\.links: 1 bytes, expected 6"):
        Store(tmp_path)
    assert not stored(tmp_path, [("a b", "c d")]).has_links


def test_a_training_gets_links_only_where_the_sides_are_translations(tmp_path):
    pairs, _ = generated(1000, seed=5)
    shuffled = [(source, target) for (source, _), (_, target) in zip(pairs, pairs[1:] + pairs[:1], strict=True)]
    said: list[str] = []
    asked = config.resolve({"training": {"alignment_weight": 0.05}})

    def prepared(name: str, pairs: list[tuple[str, str]], settings: Settings, *yours: str) -> tuple[float, bool]:
        train = stored(tmp_path / name / "train", pairs, slice(200, None))
        valid = stored(tmp_path / name / "valid", pairs, slice(200))
        nothing = [aligner.NONE] * valid.vocabularies[1]
        weight = aligner.prepare(settings, train, valid, nothing, said.append, yours).training.alignment_weight
        has_links = {Store(each.folder).has_links for each in (train, valid)}
        assert len(has_links) == 1
        return weight, has_links.pop()

    assert prepared("good", pairs, asked) == (0.05, True)
    assert prepared("bad", shuffled, asked) == (0, False)
    assert "no alignment loss" in said[-1]
    assert prepared("theirs", shuffled, asked, "training.alignment_weight") == (0.05, True)
    with pytest.raises(SettingError, match="'rnn' has no attention heads for the alignment loss"):
        prepared("rnn", pairs, replace(asked, model=replace(asked.model, architecture="rnn")))


def test_stretches_in_common_are_linked_in_any_order_longest_first(tmp_path):
    letters = tokens_of(["a b c d e f g x"])[1]

    def links(source: str, target: str) -> list[int]:
        ids = {letter: number for number, letter in enumerate("abcdefgx", 4)}
        stores.write(tmp_path, [([ids[one] for one in source], [ids[one] for one in target])], letters)
        corpus = Store(tmp_path, (letters, letters))
        return aligner.CopyAligner([aligner.NONE] * 4 + [*range(4, letters)]).align(corpus, np.array([0])).tolist()

    none = aligner.NONE
    assert links("abcxdefg", "defgabc") == [4, 5, 6, 7, 0, 1, 2, none], "the end comes from nowhere"
    assert links("abcdabc", "xabcdx") == [none, 0, 1, 2, 3, none, none], "the longest stretch is taken"
    assert links("abcabc", "abcabcabc")[:6] == [0, 1, 2, 3, 4, 5], "a token is linked once"
    assert links("abcabc", "abcabcabc")[6:] == [none] * 4
    assert links("abxcd", "abcd") == [none] * 5, "two tokens may be in common by chance"


def test_copied_tokens_are_linked_if_they_are_spelled_alike_and_statistics_find_too_little(tmp_path):
    dice = np.random.default_rng(5)

    def written(name: str, pairs: int) -> Path:
        made = dice.integers(4, 6, (pairs, 40))  # two letters in any order, and two halves swapped: nothing to learn
        swapped = 2 + np.concatenate([made[:, 20:], made[:, :20]], axis=1)  # the ids of target letters begin at 6
        stores.write(tmp_path / name, zip(made.tolist(), swapped.tolist(), strict=True), 8)
        return tmp_path / name

    train, valid = written("train", 400), written("valid", 100)
    none = [aligner.NONE] * 8
    assert aligner.link(train, valid, (6, 8), none, least=0.4) < 0.4
    assert not (valid / store.LINKS).exists()
    assert aligner.link(train, valid, (6, 8), [*none[:6], 4, 5], least=0.4) > 0.95
    found = Store(train, (6, 8)).links(np.arange(400)).reshape(400, 41)
    assert (found[:, :20] == 20 + np.arange(20)).mean() > 0.9
    assert (found[:, 40] == -1).all()
    assert aligner.link(train, valid, (6, 8), none, least=0.0) < 0.4, "the user asked for the loss"
    assert Store(train, (6, 8)).has_links
