"""A part that is removed from a model is gone, and nothing else has changed."""

import math

import numpy as np
import pytest
import torch

from seq2see.lab import learning, models
from seq2see.lab.tasks import SymbolTask

TASK = SymbolTask("reverse", symbols=5, shortest=2, longest=5)


def fresh(**changes):
    sizes = {"d_model": 8, "heads": 2, "d_ff": 12, "encoder_layers": 2, "decoder_layers": 2}
    return models.small_model(1, TASK.vocabularies, **(sizes | changes)).eval()


def decode(model, inputs: list[int]) -> torch.Tensor:
    memory = model.encode(torch.tensor([4, 5, 6, 3]), torch.tensor([0, 4]))
    return model.decode(torch.tensor(inputs), torch.tensor([0, len(inputs)]), memory)


def test_without_the_mask_the_future_is_seen():
    one, other = [2, 4, 5, 6], [2, 4, 5, 7]
    model = fresh()
    assert torch.allclose(decode(model, one)[:3], decode(model, other)[:3], atol=1e-6)
    models.without_look_ahead_mask(model)
    assert not torch.allclose(decode(model, one)[:3], decode(model, other)[:3], atol=1e-3)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_without_residuals_silent_parts_leave_nothing(norm):
    model = fresh(norm=norm)
    for layer in model.encoder:
        torch.nn.init.zeros_(layer.feed_forward.w_2.weight)
    with_sum = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3])).states_ND
    models.without_residuals(model)
    without = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3])).states_ND
    assert without.abs().max() < 1e-6
    assert with_sum.abs().max() > 0.1


def test_without_norms_there_are_none():
    model = fresh(norm="pre")
    models.without_residuals(model)
    models.without_norm(model)
    assert not [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert torch.isfinite(decode(model, [2, 4])).all()


def test_tasks_have_the_answer_they_promise():
    dice = np.random.default_rng(1)
    for source, target in SymbolTask("reverse", 5, 2, 4).draw(dice, 20):
        assert target == source[::-1]
        assert 2 <= len(source) <= 4
        assert all(4 <= token < 9 for token in source)
    assert TASK.test(1, 5) == TASK.test(1, 5) != TASK.test(2, 5)


def test_a_small_model_learns_and_is_scored():
    task = SymbolTask("copy", symbols=3, shortest=1, longest=2)
    model = models.small_model(1, task.vocabularies, d_model=32, d_ff=32)
    before = learning.accuracy(model, task.test(1, 50))[1]
    losses = learning.train(model, task.batches(1, 32), 120, learning_rate=5e-3)
    whole, tokens = learning.accuracy(model, task.test(1, 50))
    assert tokens > max(before, 0.9)
    assert whole <= tokens
    assert learning.final_loss(losses, task.vocabularies) < losses[0] / 3
    assert learning.accuracy(model, task.test(1, 50), beam=3)[1] > 0.9


def test_the_loss_of_a_diverged_training_is_that_of_guessing():
    assert learning.final_loss([5.0, math.inf, math.inf], (12, 10)) == pytest.approx(math.log(10))
