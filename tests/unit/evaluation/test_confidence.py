"""Confidence: calibrated where probabilities are not, monotone, bounded, and checked when it is read."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from seq2see.decoding.translator import Translation
from seq2see.evaluation import confidence
from seq2see.evaluation.confidence import CurvePoint
from seq2see.run import load
from seq2see.session import finish


def sample(count: int, seed: int = 1) -> tuple[list[float], list[int], list[float]]:
    """Return translations of an overconfident model: it is right less often than it says."""
    dice = np.random.default_rng(seed)
    lengths = dice.integers(3, 30, count)
    logs = -dice.exponential(0.05, count) * lengths
    right = 1 / (1 + np.exp(-(0.5 * (logs - np.log(-np.expm1(logs))) - 1)))
    return logs.tolist(), lengths.tolist(), (dice.random(count) < right).astype(float).tolist()


def said(log: float, tokens: int = 5) -> Translation:
    return Translation("text", log / (tokens + 1), tuple(range(tokens)), float(np.exp(log)))


def test_confidence_is_calibrated_where_the_probability_is_not():
    found = confidence.fit("exact", *sample(500))
    assert found is not None
    assert found.pairs == 500
    assert found.error_before > 0.2
    assert found.error_after < 0.06
    logs, lengths, qualities = sample(2000, seed=2)  # others, of the same kind
    values = [found.of(said(log, length - 1)) for log, length in zip(logs, lengths, strict=True)]
    curve = confidence.reliability(np.array([each.value for each in values]), np.array(qualities))
    assert confidence.calibration_error(curve) < 0.06
    assert {each.weak for each in values} == {True, False}


def test_expected_chrf_and_the_weakest_tenth():
    logs, lengths, _ = sample(300)
    quality = [0.2 + 0.6 * float(np.exp(log / length)) for log, length in zip(logs, lengths, strict=True)]
    found = confidence.fit("chrf", logs, lengths, quality)
    assert found.error_after < 0.02
    values = [found.of(said(log, length - 1)) for log, length in zip(logs, lengths, strict=True)]
    assert sum(each.weak for each in values) / len(values) == pytest.approx(0.1, abs=0.02)
    assert all(each.measures == "chrf" for each in values)


def test_a_higher_probability_never_lowers_the_confidence():
    logs, lengths, qualities = sample(200)
    for qualities_like in (qualities, [1 - each for each in qualities], [0.0] + [1.0] * 199, [1.0] + [0.0] * 199):
        found = confidence.fit("exact", logs, lengths, qualities_like)
        values = [found.of(said(log)).value for log in (-800.0, -30.0, -3.0, -0.1, -1e-9, 0.0)]
        assert values == sorted(values)
        assert 0 <= values[0] <= values[-1] <= 1
    assert confidence.fit("exact", logs, lengths, [0.0] + [1.0] * 199).of(said(-0.1)).value > 0.95


@pytest.mark.parametrize("quality", [0.0, 1.0])
def test_outputs_that_are_all_right_show_nothing_about_others(quality: float):
    """A fit would be constant, and give nonsense the confidence of a right output."""
    logs, lengths, _ = sample(200)
    assert confidence.fit("exact", logs, lengths, [quality] * 200) is None


def test_few_pairs_empty_lines_and_unknown_probabilities_have_no_confidence():
    assert confidence.fit("exact", *(each[:99] for each in sample(100))) is None
    found = confidence.fit("exact", *sample(100))
    assert found.of(Translation("", 0.0)) is None
    assert found.of(Translation("a", -1.0, (5,), None)) is None


def test_what_a_manifest_keeps_is_checked():
    found = confidence.fit("chrf", *sample(150))
    kept = json.loads(json.dumps(found.json()))
    again = confidence.from_json(kept)
    assert again.of(said(-1.0)) == found.of(said(-1.0))
    assert again.curve_after == found.curve_after
    assert confidence.from_json(None) is None
    for name, value in (
        ("measures", "bleu"),
        ("coefficients", [1, 2]),
        ("coefficients", [0, -1, 0]),
        ("coefficients", [0, float("nan"), 0]),
        ("coefficients", "abc"),
        ("weak_below", 2),
        ("pairs", "many"),
        ("error_after", -1),
        ("curve_after", [[0.1, 0.2, "x"]]),
        ("curve_after", [[0.1, 0.2, 3]] * 11),
        ("curve_before", 7),
        ("unknown", 1),
    ):
        assert confidence.from_json(kept | {name: value}) is None, (name, value)
    assert confidence.from_json([kept]) is None


def test_the_curve_by_hand():
    curve = confidence.reliability(np.array([0.9, 0.1] * 20), np.array([1.0, 0.5] * 20))
    assert curve == [CurvePoint(0.1, 0.5, 20), CurvePoint(0.9, 1.0, 20)]
    assert confidence.calibration_error(curve) == pytest.approx(0.25)


def test_a_training_calibrates_and_every_output_says_its_confidence(trained, tmp_path, monkeypatch, cli):
    """Both engines, the command line, and a run whose manifest was damaged."""
    shutil.copytree(trained, tmp_path / "run")
    run = load(tmp_path / "run")
    pairs = run.validation_pairs
    assert len(pairs) < confidence.FEWEST
    assert "not calibrated" in (run.folder / "report.html").read_text(encoding="utf-8")
    monkeypatch.setattr(confidence, "FEWEST", 20)
    trained_on = SimpleNamespace(valid_pairs=pairs, facts={"validated_on_training_pairs": True})
    assert finish.calibrate(run, trained_on) is None
    assert finish.calibrate(run, SimpleNamespace(valid_pairs=pairs, facts={})) is not None
    kept = load(run.folder).manifest["confidence"]
    assert kept["pairs"] == len(pairs)

    def printed() -> list[dict[str, object]]:
        ended = cli("translate", run.folder, "--json", stdin=b"cab\n\n")
        assert ended.code == 0, ended.err
        return [json.loads(line)["translations"][0] for line in ended.out.splitlines()]

    word, empty = printed()
    assert set(word["confidence"]) == {"value", "measures", "weak"}
    assert 0 <= word["confidence"]["value"] <= 1
    assert "confidence" not in empty
    ours = confidence.from_json(kept).of(run.search(["cab"], engine=run.engine("torch"))[0].translations[0])
    assert ours.value == pytest.approx(word["confidence"]["value"], abs=0.05), "the other engine computes in int8"
    path = run.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"confidence": {"measures": "exact"}}))
    assert "confidence" not in printed()[0]
