"""What is taken out is out, and nothing else has changed."""

import math

import numpy as np
import pytest
import torch

from seq2see.lab import ablations, learning
from seq2see.lab.tasks import Task

TASK = Task("reverse", symbols=5, shortest=2, longest=5)


def fresh(**changes):
    sizes = {"d_model": 8, "heads": 2, "d_ff": 12, "encoder_layers": 2, "decoder_layers": 2}
    return learning.small_model(1, (TASK.vocabulary, TASK.vocabulary), **(sizes | changes)).eval()


def decode(model, inputs: list[int]) -> torch.Tensor:
    memory = model.encode(torch.tensor([4, 5, 6, 3]), torch.tensor([0, 4]))
    return model.decode(torch.tensor(inputs), torch.tensor([0, len(inputs)]), memory)


def test_without_the_mask_the_future_is_seen():
    one, other = [2, 4, 5, 6], [2, 4, 5, 7]
    model = fresh()
    assert torch.allclose(decode(model, one)[:3], decode(model, other)[:3], atol=1e-6)
    ablations.without_look_ahead_mask(model)
    assert not torch.allclose(decode(model, one)[:3], decode(model, other)[:3], atol=1e-3)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_without_residuals_silent_parts_leave_nothing(norm):
    model = fresh(norm=norm)
    for layer in model.encoder:
        torch.nn.init.zeros_(layer.feed_forward.w_2.weight)
    with_sum = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3])).states_ND
    ablations.without_residuals(model)
    without = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3])).states_ND
    assert without.abs().max() < 1e-6
    assert with_sum.abs().max() > 0.1


def test_without_norms_there_are_none():
    model = fresh(norm="pre")
    ablations.without_residuals(model)
    ablations.without_norm(model)
    assert not [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert torch.isfinite(decode(model, [2, 4])).all()


def test_tasks_have_the_answer_they_promise():
    dice = np.random.default_rng(1)
    for source, target in Task("reverse", 5, 2, 4).draw(dice, 20):
        assert target == source[::-1]
        assert 2 <= len(source) <= 4
        assert all(4 <= token < 9 for token in source)
    assert TASK.test(1, 5) == TASK.test(1, 5) != TASK.test(2, 5)


def test_a_small_model_learns_and_is_scored():
    task = Task("copy", symbols=3, shortest=1, longest=2)
    model = learning.small_model(1, (task.vocabulary, task.vocabulary), d_model=32, d_ff=32)
    before = learning.accuracy(model, task.test(1, 50))[1]
    course = learning.train(model, task.batches(1, 32), 120, learning_rate=5e-3)
    whole, tokens = learning.accuracy(model, task.test(1, 50))
    assert tokens > max(before, 0.9)
    assert whole <= tokens
    assert course.final_loss(task.vocabulary) < course.losses[0] / 3
    assert learning.accuracy(model, task.test(1, 50), beam=3)[1] > 0.9


def test_who_diverged_knows_no_less_than_one_who_guesses():
    course = learning.Course([5.0, math.inf, math.inf])
    assert course.final_loss(10) == pytest.approx(math.log(10))
