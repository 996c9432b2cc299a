"""Run folders of every format that was ever released: they load, say the same to the token, and go on.

`run-format-N` was written by the release that brought format N, and never changes: a new one gets its own folder.
"""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seq2see import api, bundle, config, run, storage
from seq2see.decoding import translator
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.session import resume

FOLDERS = sorted(Path(__file__).parent.glob("run-format-*"))


def test_there_is_one_of_each_format() -> None:
    assert [path.name for path in FOLDERS] == [f"run-format-{number + 1}" for number in range(storage.VERSION)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_same_to_the_token(folder: Path, tmp_path: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    old = run.load(shutil.copytree(folder, tmp_path / "run"))
    found = old.search(expected["lines"], beam=3, engine=old.engine("torch"))
    assert [list(each.translations[0].tokens) for each in found] == expected["tokens"]


def test_a_run_of_format_1_stops_by_the_rule_of_its_release() -> None:
    """Release 0.1.0 had no `decoding.stop_against`. The lists were written down with that release."""
    used = bundle.load(Path(__file__).parent / "run-format-1")

    def texts(settings: config.Settings) -> list[str]:
        (found,) = translator.translate(TorchEngine(used.model), used.tokenizers, settings, ["cba"], n_best=5)
        return [each.text for each in found.translations]

    assert texts(used.settings) == ["CBA", "CBB", "CBC", "ACB", ""]
    newer = replace(used.settings, decoding=replace(used.settings.decoding, stop_against="worst"))
    assert texts(newer) == ["CBA", "CBBA", "CABA", "ACBA", "CBB"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_goes_on(folder: Path, tmp_path: Path) -> None:
    """Up to its end from its last checkpoint but one: the losses that were written down then come again."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    *_, one, last = sorted((copy / "checkpoints").iterdir())
    shutil.rmtree(last)
    (copy / "manifest.json").write_text((copy / "manifest.json").read_text().replace('"finished"', '"training"'))
    seen: list[object] = []
    decoding = config.read_settings(copy).decoding
    api.train("upper.tsv", copy, resume=True, watch=seen.append)
    assert config.read_settings(copy).decoding == decoding, "the rules that it was made with stay"
    (began,) = (event for event in seen if isinstance(event, api.Began))
    assert one.name == f"step-{began.step:08}"
    again = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in again] == [row["step"] for row in rows]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert [row["loss"] for row in again if "loss" in row] == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_fine_tuning_on_the_same_corpus_validates_on_the_same_pairs(folder: Path, tmp_path: Path) -> None:
    """The model has learned all others: a later way of choosing validation pairs would choose some of those."""
    before = resume.reopen(folder, [])
    _, _, tokens, offsets = before.train.gather(np.arange(len(before.train)))
    cut = before.tokenizers.target
    targets = [cut.decode(tokens[begin:end]) for begin, end in itertools.pairwise(offsets)]
    corpus = tmp_path / "upper.tsv"
    lines = [(text.lower(), text) for text in targets] + [(pair.source, pair.target) for pair in before.valid_pairs]
    corpus.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
    for start, out in ((folder, "once"), (tmp_path / "once", "twice")):
        api.train(corpus, tmp_path / out, from_run=start, settings={"training": {"max_steps": 1}})
        after = resume.reopen(tmp_path / out, [])
        assert {pair.source for pair in after.valid_pairs} == {pair.source for pair in before.valid_pairs}
