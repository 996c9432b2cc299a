"""Pictures of one attention sub-layer, and of one word in two contexts."""

from itertools import combinations
from pathlib import Path

import pytest

import seq2see
from seq2see.pictures import sublayers
from seq2see.pictures.drawing import Picture


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_scores_before_and_after_the_softmax(trained, tmp_path):
    seen = seq2see.load(trained).sublayer("bad", "decoder")
    sublayers.scores(seen, 1, "bad", tmp_path / "scores.svg")
    text = text_of(tmp_path / "scores.svg")
    assert "before the softmax" in text
    assert "after the softmax" in text
    assert "grey: masked" in text
    assert f"{seen.weights[1, 0, 0]:.2f}" in text


@pytest.mark.parametrize("place", ["encoder", "cross"])
def test_heads_are_merged_by_w_o(trained, tmp_path, place):
    seen = seq2see.load(trained).sublayer("bad", place)
    sublayers.merge(seen, "bad", tmp_path / "merge.svg")
    heads, length, width = seen.heads.shape
    text = text_of(tmp_path / "merge.svg")
    assert f"side by side: {length} × {heads * width}" in text
    assert f"times W_O: {heads * width} × {seen.output.shape[1]}" in text


@pytest.mark.parametrize("length", [2, 10, 18, 40])
def test_no_part_of_the_merged_heads_covers_another(trained, tmp_path, monkeypatch, length):
    panels = []
    finish = Picture.finish

    def keep_panels(picture: Picture, *args, **more):
        panels.extend(picture.figure.axes)
        return finish(picture, *args, **more)

    monkeypatch.setattr(Picture, "finish", keep_panels)
    seen = seq2see.load(trained).sublayer(("abcde" * 8)[:length], "encoder")
    sublayers.merge(seen, "long", tmp_path / "merge.svg")
    boxes = [each.get_position() for each in panels]
    assert len(boxes) > 4
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_the_residual_sum_and_the_norm(trained, tmp_path):
    seen = seq2see.load(trained).sublayer("bad")
    sublayers.residual(seen, "bad", tmp_path / "residual.svg")
    text = text_of(tmp_path / "residual.svg")
    assert ("layer norm of x" if seen.pre_norm else "layer norm of the sum") in text
    assert text.count("standard deviation") == 4


def test_a_word_in_two_contexts(trained, tmp_path):
    sublayers.word(seq2see.load(trained).word_in_contexts("bad", "bad", "bad fee"), tmp_path / "word.svg")
    text = text_of(tmp_path / "word.svg")
    assert "layer 1 head 1" in text
    assert "similarity of its two vectors" in text
