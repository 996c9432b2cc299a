"""Numbers from the paper, from the tutorials that follow it, and by hand."""

import math

import pytest
import torch

from seq2see import config, special
from seq2see.model.attention import keep_padding, keep_past, scaled_dot_product_attention
from seq2see.model.build import build, count_parameters
from seq2see.model.layers import sinusoid
from seq2see.training import schedule
from seq2see.training.loss import smoothed_cross_entropy

KEY = torch.tensor([[10.0, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10]])
VALUE = torch.tensor([[1.0, 0], [10, 0], [100, 5], [1000, 6]])
WORKED = [
    ([0.0, 10, 0], [0.0, 1, 0, 0], [10.0, 0]),
    ([0.0, 0, 10], [0.0, 0, 0.5, 0.5], [550.0, 5.5]),
    ([10.0, 10, 0], [0.5, 0.5, 0, 0], [5.5, 0]),
]


@pytest.mark.parametrize(("query", "weights", "output"), WORKED)
def test_worked_attention_examples(query, weights, output):
    found, found_weights = scaled_dot_product_attention(torch.tensor([query]), KEY, VALUE)
    torch.testing.assert_close(found_weights, torch.tensor([weights]), rtol=0, atol=1e-6)
    torch.testing.assert_close(found, torch.tensor([output]), rtol=1e-5, atol=1e-5)


def test_the_three_queries_at_once():
    queries, weights, outputs = (torch.tensor(part) for part in zip(*WORKED, strict=True))
    found, found_weights = scaled_dot_product_attention(queries, KEY, VALUE)
    torch.testing.assert_close(found_weights, weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(found, outputs, rtol=1e-5, atol=1e-5)


def test_scores_are_divided_by_the_root_of_the_width():
    """Query and keys of width 4: scores 2 ln 3 and 0 become ln 3 and 0, so the weights are 3/4 and 1/4."""
    query, key = torch.ones(1, 4), torch.tensor([[0.5 * math.log(3)] * 4, [0.0] * 4])
    weights = scaled_dot_product_attention(query, key, torch.eye(2))[1]
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))


def test_padding_mask():
    keep = keep_padding(torch.tensor([[1, 21, 777, 0, 0]]))
    assert keep.shape == (1, 1, 1, 5)
    assert keep.int().flatten().tolist() == [1, 1, 1, 0, 0]


def test_look_ahead_mask_hides_the_padding_column_too():
    keep = keep_past(torch.tensor([[1, 2, 0, 4, 5]]))
    assert keep.shape == (1, 1, 5, 5)
    assert keep[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]


def test_peak_rate():
    assert schedule.noam(4000, 512, 4000) == pytest.approx(6.98771e-4, rel=1e-6)
    assert max(range(1, 20_000), key=lambda step: schedule.noam(step, 512, 4000)) == 4000


def test_the_rate_rises_in_a_line_and_falls_with_the_root():
    peak = schedule.noam(4000, 512, 4000)
    assert schedule.noam(1, 512, 4000) == pytest.approx(1.7469281e-7, rel=1e-6)
    assert schedule.noam(1000, 512, 4000) == pytest.approx(peak / 4)
    assert schedule.noam(16_000, 512, 4000) == pytest.approx(peak / 2)
    assert schedule.noam(100_000, 512, 4000) == pytest.approx(peak / 5)
    assert schedule.noam(4000, 128, 4000) == pytest.approx(2 * peak)


def test_waves_at_places_known_by_hand():
    waves = sinusoid(3, 4)
    assert waves[0].tolist() == [0, 1, 0, 1]
    by_hand = [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]  # 10000^(2/4) = 100
    assert waves[1].tolist() == pytest.approx(by_hand, abs=1e-7)
    assert waves[2, 0].item() == pytest.approx(0.9092974268, abs=1e-7)


def test_waves_against_a_double_loop():
    table = [
        [
            (math.sin if column % 2 == 0 else math.cos)(place / 10_000 ** (column // 2 * 2 / 128))
            for column in range(128)
        ]
        for place in range(50)
    ]
    torch.testing.assert_close(sinusoid(50, 128), torch.tensor(table), rtol=0, atol=1e-7)


def test_waves_far_out_are_exact():
    """Angles in float32 would miss this by more than is allowed."""
    by_hand = [math.sin(5001), math.cos(5001), math.sin(5001 / 10_000 ** (1 / 3)), math.cos(5001 / 10_000 ** (1 / 3))]
    assert sinusoid(5002, 6)[5001, :4].tolist() == pytest.approx(by_hand, abs=1e-7)


def test_waves_of_an_odd_width_have_as_many_columns_as_asked():
    assert sinusoid(3, 7).shape == (3, 7)


def test_parameters_of_tutorial_small():
    settings = config.resolve(config.preset("tutorial-small")).model
    assert count_parameters(settings, 9000, 9000) == 5_316_392
    assert sum(weight.numel() for weight in build(settings, 9000, 9000).parameters()) == 5_316_392


def test_parameters_of_paper_base():
    attention = 4 * (512 * 512 + 512)
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    layers = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    settings = config.resolve(config.preset("paper-base")).model
    assert count_parameters(settings, 37_000, 37_000) == 37_000 * 512 + layers == 63_082_496


def test_parameters_of_paper_big():
    settings = config.resolve(config.preset("paper-big")).model
    assert count_parameters(settings, 37_000, 37_000) == pytest.approx(214e6, rel=0.005)


@pytest.fixture
def identity():
    """An output layer that hands its input on, so that scores can be written down."""
    layer = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.eye_(layer.weight)
    return layer


SCORES = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.5, 0.125, 0.125], [0.7, 0.1, 0.1, 0.1]]))
LABELS = torch.tensor([3, 1, special.PAD])


def test_cross_entropy_by_hand_ignores_padding(identity):
    loss = smoothed_cross_entropy(SCORES, identity, LABELS)
    assert loss.total.item() == pytest.approx(-math.log(0.4) - math.log(0.5), rel=1e-6)
    assert loss.plain.item() == loss.total.item()
    assert loss.tokens.item() == 2


def test_label_smoothing_by_hand(identity):
    first = -0.9 * math.log(0.4) - 0.1 / 4 * math.log(0.1 * 0.2 * 0.3 * 0.4)
    second = -0.9 * math.log(0.5) - 0.1 / 4 * math.log(0.25 * 0.5 * 0.125 * 0.125)
    loss = smoothed_cross_entropy(SCORES, identity, LABELS, smoothing=0.1)
    assert loss.total.item() == pytest.approx(first + second, rel=1e-6)
    assert loss.plain.item() == pytest.approx(-math.log(0.2), rel=1e-6), "perplexity knows no smoothing"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_knowing_nothing_costs_the_logarithm_of_the_vocabulary(smoothing):
    layer = torch.nn.Linear(3, 7)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.ones_(layer.bias)
    loss = smoothed_cross_entropy(torch.randn(5, 3), layer, torch.tensor([1, 2, 3, 4, 6]), smoothing)
    assert loss.total.item() / 5 == pytest.approx(math.log(7), rel=1e-6)
