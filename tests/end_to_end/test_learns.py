"""The whole way through the command line: a task is learned, and unseen examples of it come out right."""

import json
import random
from pathlib import Path

import pytest

SETTINGS = [
    "data.validation_pairs=100",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=48",
    "model.d_ff=128",
    "model.dropout=0",
    "model.positions=sinusoid",
    "training.learning_rate=8e-3",
    "training.warmup_steps=50",
    "training.batch_tokens=800",
    "training.validate_every=100",
    "training.average=1",
    "decoding.beam=2",
]


@pytest.mark.parametrize(("task", "steps"), [("copy", 150), pytest.param("reverse", 350, marks=pytest.mark.slow)])
def test_a_task_is_learned_from_a_file(tmp_path: Path, task: str, steps: int, cli, monkeypatch) -> None:
    dice = random.Random(3)
    words: dict[str, None] = {}
    while len(words) < 3300:
        words["".join(dice.choices("abcdefghij", k=dice.randint(2, 4)))] = None
    lines = [f"{word}\t{word if task == 'copy' else word[::-1]}\n" for word in words]
    (tmp_path / "train.tsv").write_text("".join(lines[300:]))
    (tmp_path / "test.tsv").write_text("".join(lines[:300]))

    settings = [word for assignment in [*SETTINGS, f"training.max_steps={steps}"] for word in ("--set", assignment)]
    monkeypatch.chdir(tmp_path)
    trained = cli("train", "train.tsv", "--out", "run", *settings)
    assert trained.code == 0, trained.err
    assert trained.out == ""
    assert f"report {Path('run', 'report.html')}" in trained.err

    ended = cli("evaluate", "run", "test.tsv", "--json")
    assert ended.code == 0, ended.err
    scores = json.loads(ended.out)
    assert scores["pairs"] == 300
    exact = scores["scores"]["exact"]["value"]
    assert exact >= 98, exact
