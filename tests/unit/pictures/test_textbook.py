"""The paper's pictures show the numbers that the model computes with."""

import math
import re

import numpy as np
import pytest
from PIL import Image

from seq2see.pictures import textbook
from seq2see.pictures.drawing import BLUE
from seq2see.training.schedule import noam


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=float)


def count_of(colour, path):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels(path) - wanted).max(axis=-1) < 1.5).sum())


def test_waves_by_hand():
    waves = textbook.waves(50, 128)
    assert waves.shape == (50, 128)
    for place, column in ((0, 0), (3, 0), (49, 20), (7, 126)):
        angle = place / 10_000 ** (column / 128)
        assert waves[place, column] == pytest.approx(math.sin(angle), abs=1e-12)
        assert waves[place, column + 1] == pytest.approx(math.cos(angle), abs=1e-12)


def test_dot_products_depend_on_the_distance_alone():
    products = textbook.dot_products(12, 16)
    for distance in range(12):
        diagonal = np.diagonal(products, distance)
        assert np.allclose(diagonal, sum(math.cos(distance / 10_000 ** (i / 16)) for i in range(0, 16, 2)))
    assert products.max() == pytest.approx(8)


def test_masks_of_the_tutorial():
    padding, _ = textbook.masks([False, False, False, True, True])  # 1, 21, 777, 0, 0
    assert padding.astype(int).tolist() == [[1, 1, 1, 0, 0]] * 5
    _, past = textbook.masks([False, False, True, False, False])  # 1, 2, 0, 4, 5
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
    assert past.astype(int).tolist() == expected


def test_masks_are_drawn_cell_by_cell(tmp_path):
    """Half an inch a cell at 160 dpi, less the white lines: the blue area counts the cells that may be seen."""
    textbook.draw_masks(list("12045"), [False, False, True, False, False], tmp_path / "masks.png")
    seen = 20 + 11
    assert count_of(BLUE, tmp_path / "masks.png") == pytest.approx(seen * 80 * 80, rel=0.1)


def test_warm_up_has_its_peak(tmp_path):
    textbook.draw_warm_up([(512, 4000), (512, 30_000)], 20_000, tmp_path / "warm-up.svg")
    svg = (tmp_path / "warm-up.svg").read_text(encoding="utf-8")
    assert ">peak 0.0006988 at step 4,000<" in svg
    assert "30,000" not in svg  # its peak is not in the picture
    assert svg.count(">d_model 512<") == 1
    steps = textbook.steps_to_draw(4000, 20_000)
    assert {4000, 20_000} <= set(steps)
    assert max(steps, key=lambda step: noam(step, 512, 4000)) == 4000


@pytest.mark.parametrize("size", [(50, 128), (1, 2), (2, 3), (300, 16)])
def test_any_size_is_drawn(tmp_path, size):
    textbook.draw_waves(*size, tmp_path / "waves.png")
    textbook.draw_dot_products(*size, tmp_path / "dots.png")
    for name in ("waves", "dots"):
        drawn = pixels(tmp_path / f"{name}.png")
        assert drawn.std() > 10
        assert (drawn[0] == 255).all()


def test_a_picture_as_a_page(tmp_path):
    textbook.draw_waves(5, 8, tmp_path / "waves.html")
    page = (tmp_path / "waves.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<title>Position waves, 5 × 8</title>" in page
    assert ">position in the sentence<" in page
    assert not re.findall(r"(?:src|href)=\"https?:", page)
