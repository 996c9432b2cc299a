"""Run folders of every format that was ever released: they load, say the same to the token, and go on.

`run-format-N` was written by the release that brought format N, and never changes: a new one gets its own folder.
"""

import json
import shutil
from pathlib import Path

import pytest

from seq2see import api, bundle, run

FOLDERS = sorted(Path(__file__).parent.glob("run-format-*"))


def test_there_is_one_of_each_format() -> None:
    assert [path.name for path in FOLDERS] == [f"run-format-{number + 1}" for number in range(bundle.VERSION)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_same_to_the_token(folder: Path, tmp_path: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    old = run.load(shutil.copytree(folder, tmp_path / "run"))
    found = old.search(expected["lines"], beam=3, engine=old.engine("torch"))
    assert [list(each.translations[0].tokens) for each in found] == expected["tokens"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_goes_on(folder: Path, tmp_path: Path) -> None:
    """Up to its end from its last checkpoint but one: the losses that were written down then come again."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    *_, one, last = sorted((copy / "checkpoints").iterdir())
    shutil.rmtree(last)
    (copy / "manifest.json").write_text((copy / "manifest.json").read_text().replace('"finished"', '"training"'))
    seen: list[object] = []
    api.train("upper.tsv", copy, resume=True, watch=seen.append)
    (began,) = (event for event in seen if isinstance(event, api.Began))
    assert one.name == f"step-{began.step:08}"
    again = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in again] == [row["step"] for row in rows]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert [row["loss"] for row in again if "loss" in row] == pytest.approx(losses, rel=1e-3)
