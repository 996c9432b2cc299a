"""Texts become blocks of a store, the same by one process and by several."""

import random
from pathlib import Path

import numpy as np
import pytest

from seq2see import machine, special
from seq2see.errors import DataError, RunError
from seq2see.text.pair import Pair
from seq2see.text.tags import tag_words
from seq2see.tokens import store, tokenizers

DICE = random.Random(7)
WORDS = ["Haus", "der", "한국", "값이", "ᄒ", "C(=O)", "naïve", "▁", "12", "…", "x" * 30]
TEXTS = [" ".join(DICE.choices(WORDS, k=DICE.randint(1, 9))) for _ in range(300)]
PAIRS = [Pair(f"<2de> {text}", text.upper(), "here") for text in TEXTS]


def saved(folder: Path, kind: str, shared: bool) -> tuple[Path, Path]:
    paths = folder / "source.json", folder / "target.json"
    pattern = "words" if kind == "pattern" else ""
    tokenizers.train(kind, TEXTS, 400, "nfkc", ["<2de>"], pattern).save(paths[0])
    tokenizers.train(kind, [pair.target for pair in PAIRS], 500, pattern=pattern).save(paths[1])
    return (paths[0], paths[0]) if shared else paths


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        pytest.param(kind, shared, marks=[pytest.mark.slow] if (place + shared) % 2 else [])  # each kind once
        for place, kind in enumerate(["unigram", "bpe", "characters", "jamo", "symbols", "marks", "pattern"])
        for shared in (True, False)
    ],
)
def test_several_processes_write_the_same_bytes_as_one(kind, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SENT", 17)
    files = saved(tmp_path, kind, shared)
    left_out = {}
    for cores in (1, 2):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        blocks, counts = zip(*store.tokenised(PAIRS, files, 25), strict=True)
        store.write_blocks(tmp_path / str(cores), blocks, 500)
        left_out[cores] = counts
    assert left_out[1] == left_out[2]
    for name in ("source.tokens", "source.offsets", "target.tokens", "target.offsets", "store.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_a_fault_while_pairs_are_read_is_reported_even_if_some_are_too_long(tmp_path):
    """As for a file that changes between the first and the second reading."""
    letters = tokenizers.train("characters", ["abc"], 100)
    both = store.Tokenizers(letters, letters)
    both.save(tmp_path)
    (tmp_path / "corpus").mkdir()
    long = Pair("abcabc", "abc", "here")

    def broken():
        yield from [long] * store.SENT * 3
        raise DataError("pairs.tsv, line 7: 1 column")

    with pytest.raises(DataError, match="line 7"):
        store.write_tokenised(tmp_path, "train", broken(), both, 4, "pairs.tsv")
    with pytest.raises(DataError, match="all 3 pairs are longer"):
        store.write_tokenised(tmp_path, "train", [long] * 3, both, 4, "pairs.tsv")


def test_blocks_hold_what_the_tokenizers_say(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SENT", 7)
    files = saved(tmp_path, "characters", shared=False)
    sources = tokenizers.load(files[0]).encode([pair.source for pair in PAIRS])
    targets = tokenizers.load(files[1]).encode([pair.target for pair in PAIRS])
    kept = [pair for pair in zip(sources, targets, strict=True) if len(pair[0]) <= 40 and len(pair[1]) <= 40]
    blocks, counts = zip(*store.tokenised(PAIRS, files, 40), strict=True)
    lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
    too_long = sum(counts, store.TooLong())
    assert too_long.total() == len(PAIRS) - len(kept) > 0
    assert too_long[64] == sum(40 < length <= 64 for length in lengths)
    written = store.write_blocks(tmp_path / "store", blocks, 500)
    found = written.gather(np.arange(len(kept)))
    assert len(written) == len(kept)
    assert found[0].tolist() == [id for source, _ in kept for id in (*source, special.END)]
    assert found[2].tolist() == [id for _, target in kept for id in (*target, special.END)]


@pytest.mark.parametrize(
    ("too_long", "pairs", "length"),
    [({64: 1}, 1, 64), ({64: 5, 128: 1}, 100, 64), ({64: 5, 128: 2}, 100, 128), ({512: 3, 64: 4, 8192: 1}, 8, 8192)],
)
def test_a_length_that_is_enough_for_nearly_all(too_long: dict[int, int], pairs: int, length: int) -> None:
    assert store.enough(store.TooLong(too_long), pairs) == length


def test_a_tokenizer_that_is_gone_is_said(tmp_path):
    with pytest.raises(RunError, match="no such tokenizer"):
        list(store.tokenised(PAIRS, (tmp_path / "a", tmp_path / "b"), 9))


def test_equal_tokens_of_both_sides_are_found_by_their_spelling():
    source, target = (tokenizers.train("characters", [text], 400) for text in ("abcd ", "cdef"))
    equal = store.Tokenizers(source, target).equal_tokens()
    assert len(equal) == len(target)
    spelled = {target.spellings()[there]: source.spellings()[here] for there, here in enumerate(equal) if here >= 0}
    assert {one: other for one, other in spelled.items() if one in "abcdef"} == {"c": "c", "d": "d"}
    assert equal[: special.COUNT] == [-1] * special.COUNT
    assert store.Tokenizers(source, source).equal_tokens()[special.COUNT :] == [*range(special.COUNT, len(source))]


def test_tags_and_special_tokens_are_not_equal_to_letters_and_words_with_their_spelling():
    letters = tokenizers.train("characters", ["VN"], 400)
    texts = ["V;PST VN", "N;PL NV"]
    tagged = tokenizers.train("characters", texts, 400, words=tag_words(texts * 9, "first"))
    assert tagged.spellings().count("V") == 2, "a letter, and a part of a tag"
    equal = store.Tokenizers(tagged, letters).equal_tokens()
    (one, two), (there, after) = letters.encode(["VN"])[0], tagged.encode(["V;PST VN"])[0][-2:]
    assert (equal[one], equal[two]) == (there, after)
    plain, odd = (tokenizers.train("symbols", [text], 400) for text in ("a b", "a <unk>"))
    assert set(store.Tokenizers(plain, odd).equal_tokens()) == {-1, plain.encode(["a"])[0][0]}
