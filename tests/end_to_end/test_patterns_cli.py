"""Molecules and Korean letters through every verb that cuts text, and what is said of a faulty pattern."""

import json
import shutil
from pathlib import Path

import pytest
from quick import QUICK


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    atoms = ["C", "N", "Br", "[C@@H](O)", "c1ccccc1", "C(=O)"]
    pairs = [(f"C{one}{two}{three}O", f"{one}{two}C") for one in atoms for two in atoms for three in "NOS"]
    Path("molecules.tsv").write_text("".join(f"{one}>>{two}\t{two}\n" for one, two in pairs))
    words = ["한국", "각시", "나무", "바다", "하늘", "구름"]
    Path("korean.tsv").write_text("".join(f"{one}{two}\t{two}\n" for one in words for two in words), encoding="utf-8")


def test_molecules_are_trained_on_without_a_setting(cli) -> None:
    ended = cli("train", "molecules.tsv", "--out", "run", *QUICK)
    assert ended.code == 0, ended.err
    assert " (pattern smiles), for both sides " in ended.err
    assert "molecules in SMILES" in ended.err
    saved = json.loads(Path("run/source.tokenizer.json").read_text())
    assert saved["kind"] == "pattern"
    assert {"Br", "[C@@H]", ">>"} <= set(saved["symbols"])
    assert 'source_pattern = "smiles"' in Path("run/settings.toml").read_text()
    spoken = cli("translate", "run", stdin=b"CBrN>>C\n[13CH3]X\n")
    assert (spoken.code, spoken.out.count("\n")) == (0, 2), spoken.err
    assert cli("evaluate", "run", "molecules.tsv", "--beam", "1").code == 0


def test_patterns_of_ones_own_and_korean_letters(cli) -> None:
    words = ["data.source_tokenizer=pattern", "data.source_pattern=[가-깋]+|하.", "data.target_tokenizer=jamo"]
    sets = [word for assignment in words for word in ("--set", assignment)]
    ended = cli("train", "korean.tsv", "--out", "run", *QUICK, *sets)
    assert ended.code == 0, ended.err
    assert " tokens (regular expression) " in ended.err
    assert " Korean letters (jamo) " in ended.err
    assert json.loads(Path("run/source.tokenizer.json").read_text(encoding="utf-8"))["pattern"] == "[가-깋]+|하."
    assert "\u1112" in json.loads(Path("run/target.tokenizer.json").read_text(encoding="utf-8"))["symbols"]
    assert cli("translate", "run", stdin="한국바다\n".encode()).code == 0


def test_another_kind_or_a_preset_lies_over_the_suggestion(cli) -> None:
    other = ["--set", "data.source_tokenizer=characters"]
    assert cli("train", "molecules.tsv", "--out", "run", *QUICK, *other).code == 0
    assert 'source_pattern = ""' in Path("run/settings.toml").read_text()
    shutil.rmtree("run")
    ended = cli("train", "molecules.tsv", "--out", "run", "--preset", "tutorial-small", *QUICK)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["data.source_pattern=[a-"], "data.source_pattern = '[a-': not a regular expression: unterminated"),
        (["data.source_pattern=x*"], "data.source_pattern = 'x*': matches the empty text"),
        (["data.target_pattern=smile"], "Did you mean 'smiles'?"),
        (["data.source_tokenizer=patern"], "Did you mean 'pattern'?"),
    ],
)
def test_a_faulty_pattern_is_refused_before_the_corpus_is_read(cli, sets: list[str], said: str) -> None:
    ended = cli("train", "molecules.tsv", "--out", "run", *[word for each in sets for word in ("--set", each)])
    assert ended.code == 2
    assert ended.err.startswith("seq2see: ")
    assert ended.err.count("\n") == 1
    assert said in ended.err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["data.source_tokenizer=pattern"], "needs data.source_pattern: a regular expression, or one of smiles"),
        (["data.source_pattern=words"], "has no effect with data.source_tokenizer = 'jamo'"),
    ],
)
def test_a_pattern_and_its_kind_go_together(cli, sets: list[str], said: str) -> None:
    ended = cli("train", "korean.tsv", "--out", "run", *[word for each in sets for word in ("--set", each)])
    assert ended.code == 2
    assert said in ended.err.splitlines()[-1]
    assert not Path("run").exists()
