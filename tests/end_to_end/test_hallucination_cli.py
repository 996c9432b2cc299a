"""Training with artificial pairs: what is written, said, resumed and fine-tuned."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from quick import QUICK

from seq2see.tokens.store import Store, Tokenizers

DICE = random.Random(3)
WORDS = ["".join(DICE.choices("abcdefghijklmnop", k=7)) for _ in range(80)]
FORMS = [(word, *form) for word in WORDS for form in (("V;PST", "ed"), ("N;PL", "en"))]
LINES = [f"{word} {tag}\t{word}{ending}" for word, tag, ending in DICE.sample(FORMS, len(FORMS))]


def corpus(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def manifest(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "manifest.json").read_text())
    return found


def store(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "corpus" / "train").iterdir())}


@pytest.fixture
def trained(tmp_path: Path, cli) -> Path:
    ended = cli("train", corpus(tmp_path), "--out", tmp_path / "run", *QUICK, "--set", "data.max_length=30")
    assert ended.code == 0, ended.err
    assert "pairs with random letters for each pair" in ended.err
    return tmp_path / "run"


def test_facts_are_those_of_the_real_pairs(trained: Path) -> None:
    facts = manifest(trained)
    real, stored = facts["pairs"], facts["stored_pairs"]
    assert isinstance(real, int)
    assert isinstance(stored, int)
    assert real + int(facts["validation_pairs"]) == len(LINES)  # type: ignore[call-overload]
    assert stored > 10 * real
    assert facts["dropped_too_long"] == 0
    held_out = [json.loads(line)["source"] for line in (trained / "validation.jsonl").read_text().splitlines()]
    assert {*held_out} <= {line.split("\t")[0] for line in LINES}


def test_no_artificial_pair_comes_from_a_validation_pair(trained: Path) -> None:
    """All real sources are in the store, but for those of the validation set."""
    tokenizers = Tokenizers.load(trained)
    train = Store(trained / "corpus" / "train", tokenizers.sizes)
    tokens, offsets, *_ = train.gather(np.arange(len(train)))
    texts = {tokenizers.source.decode(ids[:-1].tolist()) for ids in np.split(tokens, offsets[1:-1])}
    sources = {line.split("\t")[0] for line in LINES}
    held_out = {json.loads(line)["source"] for line in (trained / "validation.jsonl").read_text().splitlines()}
    assert texts & sources == sources - held_out


def test_a_second_run_has_the_same_pairs_and_another_seed_others(trained: Path, tmp_path: Path, cli) -> None:
    words = ["train", tmp_path / "pairs.tsv", *QUICK, "--set", "data.max_length=30"]
    assert cli(*words, "--out", tmp_path / "again").code == 0
    assert store(tmp_path / "again") == store(trained)
    assert cli(*words, "--out", tmp_path / "other", "--set", "training.seed=2").code == 0
    assert store(tmp_path / "other") != store(trained)


def test_resuming_keeps_the_store(trained: Path, tmp_path: Path, cli) -> None:
    before = store(trained)
    more = ["--set", "training.max_steps=4", "--resume"]
    ended = cli("train", tmp_path / "pairs.tsv", "--out", trained, *QUICK, "--set", "data.max_length=30", *more)
    assert ended.code == 0, ended.err
    assert manifest(trained)["steps"] == 4
    assert store(trained) == before


def test_fine_tuning_makes_none_unless_asked(trained: Path, tmp_path: Path, cli) -> None:
    words = ["train", tmp_path / "pairs.tsv", "--from", trained, "--set", "training.max_steps=2"]
    assert cli(*words, "--out", tmp_path / "tuned").code == 0
    assert "stored_pairs" not in manifest(tmp_path / "tuned")
    ended = cli(*words, "--out", tmp_path / "more", "--set", "data.hallucination=2")
    assert ended.code == 0, ended.err
    facts = manifest(tmp_path / "more")
    assert facts["stored_pairs"] == 4 * facts["pairs"]  # type: ignore[operator]


def test_without_the_setting_there_are_none(tmp_path: Path, cli) -> None:
    ended = cli("train", corpus(tmp_path), "--out", tmp_path / "run", *QUICK, "--set", "data.hallucination=0")
    assert ended.code == 0, ended.err
    assert "random letters" not in ended.err
    assert "stored_pairs" not in manifest(tmp_path / "run")
