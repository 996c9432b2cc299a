"""Pictures are written, show the numbers, and say what they cannot draw."""

import itertools
import re

import matplotlib
import numpy as np
import pytest
from PIL import Image

from seq2see.errors import SettingError
from seq2see.lens import drawing, pictures

ROWS = ["▁Das", "▁ist", "</s>"]
COLUMNS = ["▁This", "▁is", "$5", "<b>", "\n"]
METRICS = [
    {"step": 50, "loss": 3.25, "rate": 1e-4, "tokens_per_second": 9000.0},
    {"step": 100, "loss": 2.5, "rate": 2e-4, "tokens_per_second": 9000.0},
    {"step": 100, "validation": {"loss": 2.25, "exact": 41.5}},
    {"step": 150, "loss": float("nan"), "rate": 1e-4},
]


def weights(H, L, M):
    generator = np.random.default_rng(1)
    return generator.dirichlet(np.full(M, 0.3), size=(H, L))


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=float)


def test_png_shows_the_weights(tmp_path):
    path = tmp_path / "attention.png"
    assert pictures.attention(weights(2, 3, 5), ROWS, COLUMNS, "layer 1", path) is None
    drawn = pixels(path)
    assert drawn.std() > 10
    assert (drawn[0] == 255).all()  # white paper, nothing cut off at the edge

    other = tmp_path / "other.png"
    pictures.attention(weights(2, 3, 5)[:, ::-1], ROWS, COLUMNS, "layer 1", other)
    assert np.abs(drawn - pixels(other)).max() > 50


def test_darkest_colour_is_one_and_paper_is_zero(tmp_path):
    path = tmp_path / "one.png"
    weights_HLM = np.zeros((1, 2, 2))
    weights_HLM[0, 0, 1] = 1
    pictures.attention(weights_HLM, ["a", "b"], ["c", "d"], "corner", path)
    dark = np.array(matplotlib.colors.to_rgb(drawing.PAPER_TO_INK(1.0))) * 255
    dark_pixels = int((np.abs(pixels(path) - dark).max(axis=-1) < 1.5).sum())
    # half an inch a cell at 160 dpi, and the dark end of the colour bar
    assert 75 * 75 <= dark_pixels <= 85 * 85
    assert drawing.PAPER_TO_INK(0.0)[:3] == (1, 1, 1)


def test_svg_keeps_text_as_text(tmp_path):
    path = tmp_path / "attention.svg"
    pictures.attention(weights(2, 3, 5), ROWS, COLUMNS, "layer 1: $a$ & 여우", path)
    svg = path.read_text(encoding="utf-8")
    for label in (
        "▁Das",
        "&lt;/s&gt;",
        "▁This",
        "$5",
        "&lt;b&gt;",
        "↵",
        "layer 1: $a$ &amp; 여우",
        "head 2",
        "mean of 2",
    ):
        assert f">{label}" in svg, label


def test_pdf_and_one_head(tmp_path):
    path = tmp_path / "attention.pdf"
    pictures.attention(weights(1, 3, 5), ROWS, COLUMNS, "layer 1", path)
    assert path.read_bytes().startswith(b"%PDF")


def test_unknown_format(tmp_path):
    for draw in (
        lambda path: pictures.attention(weights(1, 3, 5), ROWS, COLUMNS, "layer 1", path),
        lambda path: pictures.curves(METRICS, path),
        lambda path: pictures.lengths(np.array([1]), np.array([2]), path),
    ):
        with pytest.raises(SettingError, match=r"unknown picture format '.bmp'. Choose from: .png, .svg, .pdf, .html"):
            draw(tmp_path / "picture.bmp")
    assert list(tmp_path.iterdir()) == []


def test_letters_without_a_font_are_named_and_do_not_warn(tmp_path):
    path = tmp_path / "attention.png"
    note = pictures.attention(weights(2, 1, 2), ["a"], ["b", "\ue000"], "private use", path)
    assert note is not None
    assert "'U+E000'" in note
    assert "apt-get install fonts-noto" in note
    assert path.exists()


@pytest.mark.parametrize(
    ("H", "L", "M"), [(8, 10, 25), (8, 40, 40), (16, 26, 3), (3, 1, 9), (16, 2, 40), (2, 100, 100), (5, 1, 1)]
)
def test_heads_do_not_overlap_and_keep_their_proportions(H, L, M):
    width, height = M * 0.25, L * 0.25
    places = [(0.0, 0.0, width, height), *pictures._places(H, L, M, width, height)]
    assert len(places) == H + 1
    for x, y, w, h in places:
        assert w > 0
        assert w / h == pytest.approx(M / L)
        assert y + h <= height + 1e-9
        assert x >= 0
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in itertools.combinations(places, 2):
        assert x1 + w1 <= x2 + 1e-9 or x2 + w2 <= x1 + 1e-9 or y1 + h1 <= y2 + 1e-9 or y2 + h2 <= y1 + 1e-9


def test_curves_one_panel_each_as_inline_svg():
    svg = pictures.curves(METRICS)
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


def test_curves_follow_the_numbers():
    changed = [dict(row, loss=row["loss"] * 3) if row.get("step") == 100 and "loss" in row else row for row in METRICS]
    assert pictures.curves(METRICS) == pictures.curves(METRICS)
    assert pictures.curves(METRICS) != pictures.curves(changed)


def test_curves_as_a_file(tmp_path):
    path = tmp_path / "curves.png"
    pictures.curves(METRICS, path)
    assert pixels(path).std() > 5


def test_curves_with_little_to_draw(tmp_path):
    assert pictures.curves([], tmp_path / "curves.png") == ""
    assert list(tmp_path.iterdir()) == []
    assert pictures.curves([{"step": 1, "loss": 3.0}]).count("<svg") == 1
    assert pictures.curves([{"step": 1, "validation": {"loss": float("nan")}}]).count("<svg") == 1


def test_nothing_global_is_left_behind(tmp_path):
    before = dict(matplotlib.rcParams)
    pictures.attention(weights(2, 3, 5), ROWS, COLUMNS, "layer 1", tmp_path / "attention.svg")
    pictures.curves(METRICS)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_lengths_are_drawn(tmp_path, count):
    source = np.random.default_rng(1).integers(1, 300, count).astype(np.uint16)
    pictures.lengths(source, source // 2, tmp_path / "lengths.svg")
    svg = (tmp_path / "lengths.svg").read_text(encoding="utf-8")
    for label in ("characters", "target / source", "source", "target"):
        assert f">{label}" in svg, label
    if count:
        assert f">source, median {np.median(source):,.0f}<" in svg


def test_longer_texts_make_another_picture(tmp_path):
    short, long = np.full(50, 10, np.uint16), np.full(50, 40, np.uint16)
    pictures.lengths(short, long, tmp_path / "one.png")
    pictures.lengths(long, short, tmp_path / "other.png")
    one, other = pixels(tmp_path / "one.png"), pixels(tmp_path / "other.png")
    assert one.shape != other.shape or np.abs(one - other).max() > 50
