"""Where numbers stop being finite: the layer is named, and the pairs that suffice for it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from seq2see.training import bad_numbers


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def loss_with(net: nn.Module, inputs: dict[int, float]):
    return lambda pairs: net(torch.tensor([[inputs[int(pair)], 1.0] for pair in pairs])).sum()


def test_pairs_that_suffice_alone_are_named() -> None:
    net = model()
    found = bad_numbers.find(net, [np.array([7, 3]), np.array([9])], loss_with(net, {7: 1.0, 3: math.inf, 9: 2.0}))
    assert found == ("0", [3])
    assert all(weight.grad is None for weight in net.parameters())


def test_a_batch_whose_pairs_are_fine_alone_passes_in_its_micro_batches() -> None:
    net, seen = model(), []

    def loss(pairs):
        seen.append(pairs.tolist())
        return net(torch.ones(1, 2)).sum() * (math.inf if len(pairs) == 2 else 1.0)

    assert bad_numbers.find(net, [np.array([5]), np.array([6, 7])], loss) == ("the loss itself", [])
    assert seen == [[5], [6], [7], [5], [6, 7]]


def test_no_more_than_three() -> None:
    net = model()
    pairs = np.arange(6)
    assert bad_numbers.find(net, [pairs[:2], pairs[2:]], loss_with(net, dict.fromkeys(range(6), math.nan)))[1] == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize(("layer", "name"), [(0, "0"), (2, "2")])
def test_the_first_layer_is_named(layer: int, name: str) -> None:
    net = model()
    with torch.no_grad():
        net[layer].weight[0, 0] = math.nan
    place, pairs = bad_numbers.find(net, [np.array([4])], loss_with(net, {4: 1.0}))
    assert (place, pairs) == (name, [4])


def test_a_gradient_alone() -> None:
    net = model()
    place = bad_numbers.place(
        net, np.array([0]), lambda pairs: net(torch.ones(1, 2)).sum().sub(net(torch.ones(1, 2)).sum().detach()).sqrt()
    )
    assert place.startswith("the gradient of ")


def test_nothing_wrong() -> None:
    net = model()
    assert bad_numbers.place(net, np.array([0]), loss_with(net, {0: 1.0})) == ""
