"""Which validation pairs are translated: all, or so many of a large set that it takes little of the time."""

from pathlib import Path

import pytest
import torch

import stores
from seq2see import special
from seq2see.config import Model, Training
from seq2see.evaluation.validation import losses, searched
from seq2see.model.build import build
from seq2see.text.pair import Pair
from seq2see.tokens import tokenizers


def many(count: int) -> list[Pair]:
    return [Pair(str(number), str(number), "") for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 999, 1000])
def test_a_set_of_the_usual_size_is_translated_whole(count: int) -> None:
    assert searched(many(count), 50 * count, Training(validate_every=1, batch_tokens=60)) == many(count)


def test_a_large_set_is_translated_whole_if_validations_are_rare() -> None:
    assert searched(many(5000), 125_000, Training(validate_every=2100, batch_tokens=8192)) == many(5000)


@pytest.mark.parametrize("count", [1001, 1999, 2001, 50_000])
def test_of_a_large_set_as_many_pairs_are_translated_as_of_one_of_the_usual_size(count: int) -> None:
    found = searched(many(count), 25 * count, Training(validate_every=1, batch_tokens=60))
    assert len(found) == 1000
    numbers = [int(pair.source) for pair in found]
    assert all(at * count // 1000 <= number < (at + 1) * count / 1000 for at, number in enumerate(numbers))


def test_at_most_0_75_percent_of_the_tokens_trained_on_between_two_validations_are_translated() -> None:
    found = searched(many(50_000), 1_250_000, Training(validate_every=1000, batch_tokens=8192))
    assert len(found) == int(0.0075 * 1000 * 8192 / 25)


def test_pairs_of_both_kinds_are_translated_if_a_large_set_alternates() -> None:
    found = searched(many(2000), 50_000, Training(validate_every=1, batch_tokens=60))
    assert 400 < sum(int(pair.source) % 2 for pair in found) < 600


def test_an_unknown_character_costs_as_much_as_naming_it(tmp_path: Path) -> None:
    """Otherwise a tokenizer that writes neither character would seem better than one that can."""
    letters = tokenizers.train("characters", ["ab"], 100)
    source, known, unknown = letters.encode(["a", "ab", "aé"])
    written = stores.write(tmp_path / "valid", [(source, known), (source, unknown)], len(letters))
    small = Model(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2, tie="decoder")
    model = build(small, len(letters), len(letters)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()  # every token is as probable as any other
    one, other = losses(model, written)
    assert special.UNKNOWN in unknown
    assert other - one == pytest.approx(13.9, abs=0.1)
