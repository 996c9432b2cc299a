"""The scores that `bench.regimes` keeps give the numbers of the outputs themselves, and its page needs nothing else."""

import gzip
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bench import regimes, regimes_scores

from seq2see.evaluation import compare, metrics

WORDS = ["하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟"]
CHOSEN = {
    "model": {"encoder_layers": 2, "decoder_layers": 3, "d_model": 96, "dropout": 0.3, "heads": 4},
    "training": {"agreement": 2.0, "weight_decay": 0.5, "max_steps": 3000, "batch_tokens": 1024, "seed": 1},
}
Pairs = list[tuple[str, str]]


def invented(seed: int, items: int = 30) -> Pairs:
    dice = random.Random(seed)
    return [(f"source {item}", " ".join(dice.choices(WORDS, k=dice.randint(1, 7)))) for item in range(items)]


def result(corpus: str, test: Pairs, seed: int, right: float, label: str = "now", **other: Any) -> dict[str, Any]:
    """Return a row of `run` whose outputs have each word right with a probability."""
    dice = random.Random(f"{corpus} {seed} {label}")
    outputs = [
        " ".join(word if dice.random() < right else dice.choice(WORDS) for word in target.split()) for _, target in test
    ]
    row = {"label": label, "corpus": corpus, "seed": seed, "on": "test", "settings": [], "outputs": outputs}
    row |= {"test_set": regimes_scores.fingerprint(test), "device": "CPU", "seconds": 10.0 * seed, "steps": 3000}
    return row | {"trials": {"relative_cost": 0.25, "tried": []}, "chosen": CHOSEN} | other


def by_texts(runs: Sequence[dict[str, Any]], tests: Sequence[Pairs], metric: str) -> metrics.Scores:
    outputs = [[text] for row in runs for text in row["outputs"]]
    return metrics.score(outputs, [[target] for test in tests for _, target in test], names=[metric])


@pytest.mark.parametrize("metric", ["exact", "bleu"])
@pytest.mark.parametrize("corpora", [1, 3])
@pytest.mark.parametrize("seeds", [(1, 2), (2, 3), (4, 4)])
def test_kept_scores_give_the_numbers_of_the_outputs(
    metric: str, corpora: int, seeds: tuple[int, int], tmp_path: Path
) -> None:
    tests = [invented(number, items=20 + number) for number in range(corpora)]
    sides = [
        [
            [result(f"corpus {number}", test, seed, right, label) for number, test in enumerate(tests)]
            for seed in range(1, count + 1)
        ]
        for count, right, label in zip(seeds, (0.95, 0.85), ("now", "0.1.0"), strict=True)
    ]
    expected = [[by_texts(runs, tests, metric) for runs in side] for side in sides]
    kept = tmp_path / "scores.jsonl"
    regimes_scores.keep(
        [
            regimes_scores.without_texts(row, test, metric, "version")
            for side in sides
            for runs in side
            for row, test in zip(runs, tests, strict=True)
        ],
        kept,
    )
    rows = {(row["label"], row["seed"], row["corpus"]): row for row in regimes_scores.read(kept)}
    found = [
        [regimes_scores.joined([rows[row["label"], row["seed"], row["corpus"]] for row in runs]) for runs in side]
        for side in sides
    ]
    assert found == expected  # values, signatures and counts
    assert compare.compare(*found) == compare.compare(*expected)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with the test sets of the six small languages and of a corpus that is scored by BLEU."""
    folder = tmp_path / "data"
    for number, corpus in enumerate([*regimes.SMALL, "code/django"]):
        path = regimes.files(folder, corpus, "test")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(f"{source}\t{target}\n" for source, target in invented(number))
    return folder


def pairs_of(data: Path, corpus: str) -> Pairs:
    return regimes.read_pairs(regimes.files(data, corpus, "test")[2])


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["bench.regimes", *words, "--scores", str(folder / "scores.jsonl")])
    regimes.main()


def keep(
    monkeypatch: pytest.MonkeyPatch, folder: Path, rows: list[dict[str, Any]], *options: str
) -> list[dict[str, Any]]:
    """Keep results, and return the rows of the file."""
    results = folder / "results.jsonl"
    results.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    call(monkeypatch, folder, "keep", str(results), "--data", str(folder / "data"), *options)
    return regimes_scores.read(folder / "scores.jsonl")


def test_the_page_is_written_from_kept_scores_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        result(corpus, pairs_of(data, corpus), seed, right, label)
        for corpus in [*regimes.SMALL, "code/django"]
        for seed in range(1, 5)
        for label, right in (("now", 0.95), ("0.1.0", 0.8))
    ]
    groups = {"sounds, six languages of 800 words": regimes.SMALL, "code/django": ("code/django",)}
    expected = {}
    for title, names in groups.items():
        tests = [pairs_of(data, name) for name in names]
        runs = {
            label: [
                [row for row in rows if (row["label"], row["seed"]) == (label, seed) and row["corpus"] in names]
                for seed in range(1, 5)
            ]
            for label in ("now", "0.1.0")
        }
        metric = "bleu" if title == "code/django" else "exact"
        sides = [[by_texts(each, tests, metric) for each in runs[label]] for label in ("now", "0.1.0")]
        [expected[title]] = compare.compare(*sides)
    failed = {"label": "now", "corpus": "code/django", "seed": 5, "on": "test", "error": "out of memory"}
    kept = keep(monkeypatch, tmp_path, [*rows, failed, rows[0] | {"on": "dev", "seed": 6}], "--version", "abc")
    assert len(kept) == len(rows)
    text = (tmp_path / "scores.jsonl").read_text(encoding="utf-8")
    assert not any(word in text for word in [*WORDS, "source"])
    shutil.rmtree(data)
    (tmp_path / "results.jsonl").unlink()
    page = tmp_path / "page.md"
    earlier = "| japanese | BLEU | 1.00 (1 seed) | 2.00 (1 seed) | +1.00 | better |  | small | 5, none |"
    replaced = "| code/django | BLEU | 1.00 (1 seed) | 2.00 (1 seed) | +1.00 | better |  | small | 5, none |"
    page.write_text(f"{earlier}\n{replaced}\n", encoding="utf-8")
    call(monkeypatch, tmp_path, "page", "--write", str(page))
    small, django, japanese = page.read_text(encoding="utf-8").splitlines()[-3:]
    assert japanese == earlier
    found = expected["code/django"]
    assert f"| {found.theirs:.2f} (4 seeds) | {found.ours:.2f} (4 seeds) |" in django
    assert f"| {found.difference:+.2f} ({found.low:+.2f} to {found.high:+.2f}) | {found.verdict} |" in django
    assert "| 2 + 3 x 96, dropout 0.3, R-Drop 2, decay 0.5, 3,000 steps of 1,024 tokens | 25 (CPU), 0.25 |" in django
    found = expected["sounds, six languages of 800 words"]
    assert f"| {100 - found.theirs:.2f} (4 seeds) | {100 - found.ours:.2f} (4 seeds) |" in small
    assert f"| {-found.difference:+.2f} ({-found.high:+.2f} to {-found.low:+.2f}) | {found.verdict} |" in small


def test_a_joined_row_stays_until_all_of_its_corpora_are_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [
        result(name, pairs_of(data, name), 1, 0.9, label) for name in regimes.SMALL[1:] for label in ("now", "0.1.0")
    ]
    keep(monkeypatch, tmp_path, kept, "--version", "abc")
    page = tmp_path / "page.md"
    shutil.copy(regimes.ROOT / "docs" / "regimes.md", page)
    call(monkeypatch, tmp_path, "page", "--write", str(page))
    before = (regimes.ROOT / "docs" / "regimes.md").read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == before.partition("\nNewer runs")[0]


def test_runs_of_this_version_alone_are_named_below_the_table(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [result(name, pairs_of(data, name), seed, 1.0) for name in regimes.SMALL for seed in (1, 2)]
    keep(monkeypatch, tmp_path, kept, "--version", "abc")
    page = tmp_path / "page.md"
    shutil.copy(regimes.ROOT / "docs" / "regimes.md", page)
    call(monkeypatch, tmp_path, "page", "--write", str(page))
    newer = " ".join(page.read_text(encoding="utf-8").partition("\nNewer runs")[2].split())
    assert "- sounds, six languages of 800 words: word error 0.00 % (2 seeds, " in newer
    assert newer.endswith("2 + 3 x 96, dropout 0.3, R-Drop 2, decay 0.5, 3,000 steps of 1,024 tokens")


def test_a_kept_run_is_replaced_only_on_demand(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = pairs_of(data, "sounds/ita")
    before = keep(monkeypatch, tmp_path, [result("sounds/ita", test, 1, 1.0)], "--version", "abc")
    assert [(row["version"], row["value"]) for row in before] == [("abc", 100.0)]
    again = [result("sounds/ita", test, seed, 0.0) for seed in (1, 2)]
    added = keep(monkeypatch, tmp_path, again, "--version", "def")
    assert "runs written: 1; already there: 1" in capsys.readouterr().err
    assert [(row["seed"], row["version"]) for row in added] == [(1, "abc"), (2, "def")]
    assert added[0] == before[0]
    replaced = keep(monkeypatch, tmp_path, again, "--version", "def", "--replace")
    assert [(row["seed"], row["version"]) for row in replaced] == [(1, "def"), (2, "def")]


def test_a_label_other_than_now_is_the_version(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = result("sounds/ita", pairs_of(data, "sounds/ita"), 1, 1.0, "0.1.0")
    assert [kept["version"] for kept in keep(monkeypatch, tmp_path, [row])] == ["0.1.0"]


def test_scores_of_another_test_file_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = pairs_of(data, "sounds/ita")
    before = keep(monkeypatch, tmp_path, [result("sounds/ita", test, 1, 1.0, "0.1.0")])
    other = [*test[1:], ("source", "하나")]
    with pytest.raises(SystemExit, match="now sounds/ita seed 1: the run translated another test file"):
        keep(monkeypatch, tmp_path, [result("sounds/ita", other, 1, 1.0)], "--version", "abc")
    with gzip.open(regimes.files(data, "sounds/ita", "test")[2], "wt", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in other)
    with pytest.raises(SystemExit, match="different test files or scores"):
        keep(monkeypatch, tmp_path, [result("sounds/ita", other, 1, 1.0)], "--version", "abc")
    assert regimes_scores.read(tmp_path / "scores.jsonl") == before
    [replaced] = keep(monkeypatch, tmp_path, [result("sounds/ita", other, 1, 1.0, "0.1.0")], "--replace")
    assert replaced["test_set"] == regimes_scores.fingerprint(other) != before[0]["test_set"]
