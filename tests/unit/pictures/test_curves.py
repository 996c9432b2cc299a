"""Curves follow the numbers, in a page and as a file."""

import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from seq2see.errors import SettingError
from seq2see.pictures import curves, drawing
from seq2see.pictures.drawing import ORANGE

METRICS = [
    {"step": 50, "loss": 3.25, "rate": 1e-4, "tokens_per_second": 9000.0},
    {"step": 100, "loss": 2.5, "rate": 2e-4, "tokens_per_second": 9000.0},
    {"step": 100, "validation": {"loss": 2.25, "exact": 41.5}},
    {"step": 150, "loss": float("nan"), "rate": 1e-4},
]


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=float)


def test_curves_one_panel_each_as_inline_svg():
    svg = curves.curves(METRICS)
    assert svg.startswith("<svg")
    assert svg.count("<svg") == svg.count("</svg>") == 3
    for word in ("loss per token", "exact match, %", "learning rate", "training", "validation", "2.25", "41.5"):
        assert f">{word}</text>" in svg, word
    assert "<?xml" not in svg
    assert "<style" not in svg
    assert "currentColor" in svg
    assert drawing.INK not in svg
    assert "9000" not in svg
    sizes = [re.findall(r" (?:width|height|viewBox)=", opening) for opening in re.findall(r"<svg[^>]*>", svg)]
    assert sizes == [[" viewBox="]] * 3


def test_a_file_has_a_title(tmp_path):
    curves.curves(METRICS, tmp_path / "curves.svg", "dates: $5$ & how it learned")
    assert ">dates: $5$ &amp; how it learned<" in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_curves_follow_the_numbers():
    changed = [dict(row, loss=row["loss"] * 3) if row.get("step") == 100 and "loss" in row else row for row in METRICS]
    assert curves.curves(METRICS) == curves.curves(METRICS)
    assert curves.curves(METRICS) != curves.curves(changed)


def test_curves_as_a_file(tmp_path):
    path = tmp_path / "curves.png"
    curves.curves(METRICS, path)
    assert pixels(path).std() > 5


def test_curves_with_little_to_draw(tmp_path):
    assert curves.curves([], tmp_path / "curves.png") == ""
    assert list(tmp_path.iterdir()) == []
    assert curves.curves([{"step": 1, "loss": 3.0}]).count("<svg") == 1
    assert curves.curves([{"step": 1, "validation": {"loss": float("nan")}}]).count("<svg") == 1


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_lengths_are_drawn(tmp_path, count):
    source = np.random.default_rng(1).integers(1, 300, count).astype(np.uint16)
    curves.lengths(source, source // 2, tmp_path / "lengths.svg")
    svg = (tmp_path / "lengths.svg").read_text(encoding="utf-8")
    for label in ("characters", "target / source", "source", "target"):
        assert f">{label}" in svg, label
    if count:
        assert f">source, median {np.median(source):,.0f}, longest {source.max()}<" in svg


def test_a_few_very_long_texts_are_seen(tmp_path):
    """5 texts among 2,000 short ones change what is drawn at the right end of the first chart."""
    short = np.random.default_rng(1).integers(5, 40, 2000).astype(np.uint16)
    long = np.full(5, 10_000, np.uint16)
    curves.lengths(np.append(short, long), np.append(short, long), tmp_path / "few.svg")
    svg = (tmp_path / "few.svg").read_text(encoding="utf-8")
    assert ">pairs by length, logarithmic scale<" in svg
    assert ">pairs by ratio of lengths<" in svg
    curves.lengths(short, short, tmp_path / "none.svg")
    assert "logarithmic" not in (tmp_path / "none.svg").read_text(encoding="utf-8")


def test_a_single_long_text_has_a_bar_of_visible_height(tmp_path):
    short = np.random.default_rng(1).integers(5, 40, 2000).astype(np.uint16)
    curves.lengths(*2 * [np.append(short, np.uint16(10_000))], tmp_path / "one.png")
    drawn = pixels(tmp_path / "one.png")
    right = drawn[:, int(0.35 * drawn.shape[1]) : int(0.48 * drawn.shape[1])]
    orange = np.abs(right - 255 * np.array(to_rgb(ORANGE))).max(2) < 60
    assert np.ptp(np.flatnonzero(orange.any(1))) > 20


def test_longer_texts_make_another_picture(tmp_path):
    short, long = np.full(50, 10, np.uint16), np.full(50, 40, np.uint16)
    curves.lengths(short, long, tmp_path / "one.png")
    curves.lengths(long, short, tmp_path / "other.png")
    one, other = pixels(tmp_path / "one.png"), pixels(tmp_path / "other.png")
    assert one.shape != other.shape or np.abs(one - other).max() > 50


def test_unknown_format(tmp_path):
    for draw in (
        lambda path: curves.curves(METRICS, path),
        lambda path: curves.lengths(np.array([1]), np.array([2]), path),
    ):
        with pytest.raises(SettingError, match=r"unknown picture format '.bmp'"):
            draw(tmp_path / "picture.bmp")
    assert list(tmp_path.iterdir()) == []


def test_ticks_of_a_flat_curve_differ_and_shares_begin_at_0():
    rows = [{"step": step, "validation": {"loss": 2.49 + step / 1e4, "exact": 0.0}} for step in (1, 2, 3)]
    loss, exact, *_ = curves.curves(rows).split("</svg>")
    ticks = re.findall(r">(2\.49\d*)</text>", loss)
    assert len(ticks) > 2
    assert len({*ticks[:-1]}) == len(ticks[:-1])  # the last one is the value beside the curve
    assert "−" not in exact
    assert ">-0" not in exact
