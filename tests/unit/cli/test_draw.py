"""The verbs of `seq2see draw` as Python functions: a picture, or its numbers."""

import json
from pathlib import Path

import pytest
from PIL import Image

from seq2see.cli import draw
from seq2see.errors import SettingError


def test_a_picture_is_written_and_not_replaced_without_force(tmp_path: Path) -> None:
    path = tmp_path / "waves.png"
    draw.draw_waves(length=5, d_model=8, out=str(path))
    with Image.open(path) as image:
        assert min(image.size) > 100
    before = path.read_bytes()
    with pytest.raises(SettingError, match="--force"):
        draw.draw_waves(length=7, d_model=8, out=str(path))
    assert path.read_bytes() == before


def test_numbers_instead_of_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    draw.draw_masks(["1", "2", "0"], as_json=True)
    assert json.loads(capsys.readouterr().out)["tokens"] == ["1", "2", "0"]


def test_too_many_tokens_are_refused() -> None:
    with pytest.raises(SettingError, match="101 tokens"):
        draw.draw_masks(["1"] * 101)
