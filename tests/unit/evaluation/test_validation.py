"""Which validation pairs are translated: all, or so many of a large set that it takes little of the time."""

from pathlib import Path

import pytest
import torch

from seq2see import special
from seq2see.config import Model, Training
from seq2see.evaluation.validation import losses, searched
from seq2see.model.build import build
from seq2see.text.pair import Pair
from seq2see.tokens import store, tokenizers


def many(count: int) -> list[Pair]:
    return [Pair(str(number), str(number), "") for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 999, 1000])
def test_a_set_of_the_usual_size_is_translated_whole(count: int) -> None:
    assert searched(many(count), 50 * count, Training(validate_every=1, batch_tokens=60)) == many(count)


def test_a_large_set_is_translated_whole_if_validations_are_rare() -> None:
    assert searched(many(5000), 125_000, Training(validate_every=2100, batch_tokens=8192)) == many(5000)


def test_of_a_large_set_a_regular_part_is_translated() -> None:
    """At most 0.75 % of the tokens that are trained on between two validations."""
    training = Training(validate_every=1000, batch_tokens=8192)
    found = searched(many(50_000), 1_250_000, training)
    assert 1000 < len(found) <= 0.0075 * 1000 * 8192 / 25
    assert found == many(50_000)[::21]
    assert len(searched(many(50_000), 1_250_000, Training(validate_every=1, batch_tokens=60))) == 1000


def test_an_unknown_character_costs_as_much_as_naming_it(tmp_path: Path) -> None:
    """Otherwise a tokenizer that writes neither character would seem better than one that can."""
    letters = tokenizers.train("characters", ["ab"], 100)
    source, known, unknown = letters.encode(["a", "ab", "aé"])
    written = store.write(tmp_path / "valid", [(source, known), (source, unknown)], len(letters))
    small = Model(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2, tie="decoder")
    model = build(small, len(letters), len(letters)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()  # every token is as probable as any other
    one, other = losses(model, written)
    assert special.UNKNOWN in unknown
    assert other - one == pytest.approx(13.9, abs=0.1)
