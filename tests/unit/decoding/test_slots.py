"""Search in fixed shapes finds what `search.py` finds, whatever company a sentence keeps."""

import random

import pytest
import torch

from seq2see.config import Decoding
from seq2see.decoding import slots
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.slots import SlotSearch
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.model.transformer import Transformer

KINDS = [("sinusoid", "post"), ("rotary", "pre"), ("learned", "post")]


def model(positions: str, norm: str) -> Transformer:
    """With weights that make it say something, and an end that is not too rare."""
    torch.manual_seed(1)
    options = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "heads": 2, "d_ff": 64}
    made = Transformer(30, 30, positions=positions, norm=norm, output_bias=True, **options).eval()
    with torch.no_grad():
        made.output.weight.mul_(4)
        made.output.bias[3] += 1.0
    return made


def some_tasks() -> list[Task]:
    """Of mixed length, limit and prefix."""
    dice = random.Random(2)

    def tokens(count: int) -> list[int]:
        return [dice.randint(4, 29) for _ in range(count)]

    return [
        Task([*tokens(dice.randint(1, 40)), 3], dice.randint(1, 60), tokens(dice.choice([0, 0, 2]))) for _ in range(23)
    ]


@pytest.mark.parametrize(("positions", "norm"), KINDS)
@pytest.mark.parametrize(("beam", "length_penalty"), [(1, 1.0), (2, 0.0), (4, 1.0)])
@pytest.mark.parametrize("most_rows", [8, 2048])
def test_slots_find_what_the_search_finds(monkeypatch, positions, norm, beam, length_penalty, most_rows) -> None:
    monkeypatch.setattr(slots, "MOST_ROWS", most_rows)  # few: slots are filled anew while others are still at work
    made, settings, tasks = model(positions, norm), Decoding(beam=beam, length_penalty=length_penalty), some_tasks()
    expected = TorchEngine(made).search(tasks, settings)
    search = SlotSearch(made)
    for _ in range(2):  # the second time in storage that was used before
        found = search.search(tasks, settings)
        assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
            assert [each.log_probability for each in one] == pytest.approx(
                [each.log_probability for each in other], abs=1e-3
            )


def test_models_whose_values_have_another_width_are_left_to_the_search() -> None:
    made = Transformer(30, 30, encoder_layers=1, decoder_layers=1, d_model=32, heads=2, d_ff=64, d_value=8)
    assert not SlotSearch.can(made)
