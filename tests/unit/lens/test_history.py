"""Attention during training: what is recorded is what the model computes, stays small, and never harms a training."""

import json
import re
import shutil
from itertools import pairwise

import numpy as np
import pytest

import stores
from seq2see import api
from seq2see.errors import RunError, SettingError
from seq2see.evaluation import report
from seq2see.lens import history
from seq2see.look import history as page
from seq2see.run import load
from seq2see.text.pair import Sides
from seq2see.tokens import store
from seq2see.training.events import Returned, Validated

SMALL = {
    "model": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "heads": 4, "d_ff": 32, "dropout": 0.1},
    "training": {"max_steps": 6, "validate_every": 2, "batch_tokens": 200, "average": 1, "log_every": 1, "keep": 3},
}


def pairs(path):
    path.write_text("".join(f"{number} {number}\t{number * 7}\n" for number in range(100, 220)), encoding="utf-8")
    return path


def train(folder, **model):
    settings = {**SMALL, "model": {**({} if "architecture" in model else SMALL["model"]), **model}}
    said = []
    run = api.train(pairs(folder / "pairs.tsv"), folder / "run", settings=settings, tune=0, watch=said.append)
    return run, [event.line for event in said if isinstance(event, api.Said)]


@pytest.fixture(scope="module")
def run(once):
    return load(once("recorded", lambda folder: train(folder)) / "run")


def test_the_last_weights_are_those_of_the_model(run):
    found = run.attention_history()
    assert found.steps == [2, 4, 6]
    assert len(found.pairs) == 2
    best = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert best["step"] == 6
    for pair in found.pairs:
        seen = run.look(pair.source, target=pair.target)
        T, S = len(pair.target_tokens), len(pair.source_tokens)
        assert pair.target_tokens == seen.target_tokens
        assert pair.cross.shape == (3, 2, T, S)
        assert pair.heads.shape == (3, 4, T, S)
        assert pair.encoder.shape == (3, S, S)
        if best["best"]:  # the model that was kept is that of the last validation
            assert np.abs(pair.heads[-1] - seen.cross[-1]).max() < 0.001
            assert np.abs(pair.cross[-1] - [layer.mean(0) for layer in seen.cross]).max() < 0.001
            assert np.abs(pair.encoder[-1] - seen.encoder[-1].mean(0)).max() < 0.001
    assert "6" in repr(found)
    assert found.json()["steps"] == [2, 4, 6]


def test_recording_does_not_change_the_training(run, tmp_path, monkeypatch):
    monkeypatch.setattr(history.Recorder, "after", lambda self, event: None)
    other, _ = train(tmp_path)
    assert not (other.folder / history.FILE).exists()
    assert (other.folder / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()
    rows = [
        [json.loads(line) for line in (each.folder / "metrics.jsonl").read_text().splitlines()] for each in (run, other)
    ]
    assert [row.get("loss") for row in rows[0]] == [row.get("loss") for row in rows[1]]
    with pytest.raises(RunError, match="no attention was recorded"):
        other.attention_history()
    assert "attention-history" not in (other.folder / "report.html").read_text(encoding="utf-8")


def test_a_failure_ends_the_recording_and_not_the_training(tmp_path, monkeypatch):
    def fail(*given):
        raise MemoryError("no room\nfor it")

    monkeypatch.setattr(history, "attention_of", fail)
    run, said = train(tmp_path)
    told = [line for line in said if "no longer recorded" in line]
    assert told == ["warning: the attention during training is no longer recorded: no room"]
    assert (run.folder / "report.html").exists()
    assert not (run.folder / history.FILE).exists()


@pytest.mark.parametrize("architecture", ["rnn", "rnn-attention", "convolutional"])
def test_other_architectures(architecture, tmp_path):
    run, said = train(tmp_path, architecture=architecture, d_model=16, encoder_layers=1, decoder_layers=1)
    assert not [line for line in said if "recorded" in line]
    text = (run.folder / "report.html").read_text(encoding="utf-8")
    if architecture == "rnn":
        assert not (run.folder / history.FILE).exists()
        assert "attention-history" not in text
        assert "script-src" not in text
        with pytest.raises(SettingError, match="without attention"):
            run.attention_history()
    else:
        pair = run.attention_history().pairs[0]
        assert pair.encoder is None
        assert np.abs(pair.cross.sum(-1) - 1).max() < 0.02
        assert 'id="part:history"' in text


def recorder(run, folder, step=0):
    folder.mkdir(exist_ok=True)
    return history.Recorder(folder, run.bundle, store.Store(run.folder / "corpus" / "valid"), step)


def validated(step, what="model"):
    return Validated(step, {"loss": 1.0}, True, what)


def test_a_resumed_training_leaves_no_duplicates(run, tmp_path):
    first = recorder(run, tmp_path)
    for step in (2, 4, 6, 8):
        assert first.after(validated(step)) is None
    again = recorder(run, tmp_path, 4)  # the last checkpoint that was saved
    assert again.after(validated(6)) is None
    assert history.read(tmp_path).steps == [2, 4, 6]
    assert again.after(validated(6, "average of the last 2 checkpoints")) is None
    assert again.after(Returned(2, 9, 5, 1)) is None
    assert again.after(validated(4)) is None
    assert history.read(tmp_path).steps == [2, 4]
    assert run.model.training is False


def test_the_file_stays_small(run, tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST", 8)
    made = recorder(run, tmp_path)
    for step in range(100, 5001, 100):
        made.after(validated(step))
    steps = history.read(tmp_path).steps
    assert len(steps) == 8
    assert (steps[0], steps[-1]) == (100, 5000)
    ratios = [after / before for before, after in pairwise(steps)]
    assert max(ratios) < 3, steps  # early steps are closer together
    monkeypatch.setattr(history, "NUMBERS", 1)
    made.after(validated(5100))
    assert history.read(tmp_path).steps == [100, 5100]


def test_the_largest_file_is_below_a_megabyte():
    """Of all weights that sum to 1 in a row, equal ones take most digits."""
    width = history.LONGEST
    row = [round(history.UNIT / width)] * width
    assert history.NUMBERS * (len(json.dumps(row, separators=(",", ":"))) + 1) / width < 600_000


def test_short_pairs_are_chosen_and_no_sentence_twice(tmp_path):
    def written(name, lengths):
        rows = [([number + 4] * (length - 1), [5] * (length - 1)) for number, length in enumerate(lengths)]
        return stores.write(tmp_path / name, rows, 100)

    assert history.choose(written("usual", [30, 12, 3, 11, 13])) == [1, 3]
    assert history.choose(written("long", [33, 90])) == []
    same = [([7] * 11, [5] * 11), ([7] * 11, [6] * 11), ([8] * 6, [5] * 6)]
    assert history.choose(stores.write(tmp_path / "same", same, 100)) == [0, 2]


DAMAGES = {
    "no JSON": lambda kept: "{",
    "steps": lambda kept: json.dumps(kept | {"validations": kept["validations"][::-1]}),
    "shape": lambda kept: json.dumps(kept | {"pairs": [pair | {"source_tokens": ["a"]} for pair in kept["pairs"]]}),
    "text": lambda kept: json.dumps(kept | {"pairs": [pair | {"source": 5} for pair in kept["pairs"]]}),
    "numbers": lambda kept: re.sub(r'"cross": \[\[\[\d+', '"cross": [[[1e40', json.dumps(kept), count=1),
    "not finite": lambda kept: re.sub(r'"heads": \[\[\[\d+', '"heads": [[[NaN', json.dumps(kept), count=1),
    "a list": lambda kept: "[1]",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_recorded_anew(run, tmp_path, damage):
    kept = json.loads((run.folder / history.FILE).read_text(encoding="utf-8"))
    (tmp_path / history.FILE).write_text(DAMAGES[damage](kept), encoding="utf-8")
    with pytest.raises(RunError, match=r"attention\.json: damaged"):
        history.read(tmp_path)
    assert recorder(run, tmp_path, 100).after(validated(102)) is None
    assert history.read(tmp_path).steps == [102]


def test_the_report_has_the_maps_and_runs_only_its_own_script(run, tmp_path):
    text = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "Attention during training" in text
    assert "script-src 'sha256-" in text
    assert "unsafe-inline'; script-src" in text
    given = json.loads(text.split('id="part:history">')[1].split("</script>")[0])
    assert given["steps"] == [2, 4, 6]
    assert all("loss" in scores for scores in given["scores"])
    folder = shutil.copytree(run.folder, tmp_path / "run")
    scored = report.ScoredSet("test set", "10 pairs", [("bleu", 1.0, "x")])
    assert report.add_scores(folder / "report.html", scored)
    assert 'id="part:history"' in (folder / "report.html").read_text(encoding="utf-8")


def test_a_text_cannot_break_out_of_the_report(run):
    found = run.attention_history()
    nasty = "</script><script>alert(1)</script>"
    pair = history.PairHistory(**{**vars(found.pairs[0]), "source": nasty})
    section = page.section(history.AttentionHistory(found.steps, [pair]), {}, Sides())
    assert "alert(1)</script>" not in section.html
    assert "</script" not in section.script
