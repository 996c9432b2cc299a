"""`tutorial-small` computes what the equations say: its logits, and those of an implementation of its own in numpy.

The implementation below is written from the paper and from the tutorial's equations, in float64, for padded sequences
and with the tutorial's masks (1 = hidden); it shares no code with seq2see. Its weights are the list that Keras'
`get_weights()` gives, so that `from_keras` is tested by the same comparison.
"""

import math

import numpy as np
import pytest
import torch

import seq2see
from seq2see import config
from seq2see.errors import DataError, SettingError
from seq2see.model.build import build

SOURCE = np.array([[5, 9, 7, 3, 0], [4, 8, 0, 0, 0], [6, 10, 1, 2, 9]])
INPUTS = np.array([[2, 7, 5, 0], [2, 6, 8, 1], [2, 0, 0, 0]])
V, D, F, LAYERS, HEADS = 11, 8, 12, 2, 2


def weights_like_keras(vocabulary: int, d_model: int, d_ff: int, layers: int) -> list[np.ndarray]:
    """Return fixed weights in the order of the tutorial's `model.get_weights()`."""
    draw = np.random.default_rng(7).normal
    dense = lambda inputs, outputs: [draw(0, inputs**-0.5, (inputs, outputs)), draw(0, 0.1, outputs)]  # noqa: E731
    norm = lambda: [draw(1, 0.1, d_model), draw(0, 0.1, d_model)]  # noqa: E731
    attention = lambda: [*(w for _ in range(4) for w in dense(d_model, d_model)), *norm()]  # noqa: E731
    rest = lambda: [*dense(d_model, d_ff), *dense(d_ff, d_model), *norm()]  # noqa: E731
    table = lambda: draw(0, d_model**-0.5, (vocabulary, d_model))  # noqa: E731
    weights = [table()]
    for _ in range(layers):
        weights += [*attention(), *rest()]
    weights.append(table())
    for _ in range(layers):
        weights += [*attention(), *attention(), *rest()]
    return [w.astype(np.float32) for w in (*weights, *dense(d_model, vocabulary))]


class Equations:
    """The tutorial's Transformer, equation by equation. Weights are taken from the list in the order of their use."""

    def __init__(self, weights: list[np.ndarray], heads: int, halves: bool = False) -> None:
        self.weights = iter([w.astype(np.float64) for w in weights])
        self.count, self.heads, self.halves = len(weights), heads, halves

    def logits(self, source_BS: np.ndarray, inputs_BT: np.ndarray) -> np.ndarray:
        layers = (self.count - 4) // 42
        padding = (source_BS == 0)[:, None, None, :]
        ahead = np.triu(np.ones((inputs_BT.shape[1],) * 2, bool), 1) | (inputs_BT == 0)[:, None, None, :]
        x = self.embedded(source_BS)
        for _ in range(layers):
            x = self.normed(x + self.attention(x, x, padding))
            x = self.normed(x + self.feed_forward(x))
        memory, y = x, self.embedded(inputs_BT)
        for _ in range(layers):
            # In the list, each norm follows its attention.
            y = self.normed(y + self.attention(y, y, ahead))
            y = self.normed(y + self.attention(y, memory, padding))
            y = self.normed(y + self.feed_forward(y))
        result = self.dense(y)
        assert next(self.weights, None) is None
        return result

    def embedded(self, tokens: np.ndarray) -> np.ndarray:
        table = next(self.weights)
        d_model = table.shape[1]
        waves = np.zeros((tokens.shape[1], d_model))
        for position in range(len(waves)):
            for i in range(d_model // 2):
                angle = position / 10_000 ** (2 * i / d_model)
                sine, cosine = (i, d_model // 2 + i) if self.halves else (2 * i, 2 * i + 1)
                waves[position, sine], waves[position, cosine] = math.sin(angle), math.cos(angle)
        return table[tokens] * math.sqrt(d_model) + waves

    def dense(self, x: np.ndarray) -> np.ndarray:
        return x @ next(self.weights) + next(self.weights)

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        return self.dense(np.maximum(0, self.dense(x)))

    def normed(self, x: np.ndarray) -> np.ndarray:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-6) * next(self.weights) + next(self.weights)

    def attention(self, x: np.ndarray, memory: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        query, key, value = self.split(self.dense(x)), self.split(self.dense(memory)), self.split(self.dense(memory))
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]) + hidden * -1e9
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        heads = exponentials / exponentials.sum(-1, keepdims=True) @ value
        return self.dense(heads.swapaxes(1, 2).reshape(x.shape))

    def split(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)


def ours(model: torch.nn.Module, source: np.ndarray = SOURCE, inputs: np.ndarray = INPUTS) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(source), torch.from_numpy(inputs)).numpy()


@pytest.mark.parametrize("positions", ["alternating", "halves"])
def test_logits_are_those_of_the_equations(positions):
    weights = weights_like_keras(V, D, F, LAYERS)
    expected = Equations(weights, HEADS, positions == "halves").logits(SOURCE, INPUTS)
    found = ours(seq2see.from_keras(weights, heads=HEADS, positions=positions))
    real = INPUTS != 0
    np.testing.assert_allclose(found[real], expected[real], rtol=1e-5, atol=2e-6)
    assert np.abs(expected[real]).max() > 1  # large enough for the comparison to mean something


def test_logits_of_tutorial_small_at_its_full_size():
    weights = weights_like_keras(9000, 128, 512, 4)
    source, inputs = SOURCE * 800, INPUTS * 800
    found = ours(seq2see.from_keras(weights), source, inputs)
    expected = Equations(weights, 4).logits(source, inputs)
    real = inputs != 0
    np.testing.assert_allclose(found[real], expected[real], rtol=1e-5, atol=1e-5)


def test_the_model_is_tutorial_small():
    model = seq2see.from_keras(weights_like_keras(9000, 128, 512, 4))
    preset = build(config.resolve(config.preset("tutorial-small")).model, 9000, 9000)
    assert repr(model) == repr(preset)
    assert {name: w.shape for name, w in model.named_parameters()} == {
        name: w.shape for name, w in preset.named_parameters()
    }


def test_an_array_that_does_not_fit_is_named_by_its_position():
    weights = weights_like_keras(V, D, F, LAYERS)
    weights[19] = weights[19][:, :-1]
    with pytest.raises(DataError, match=r"weights\[19\].*\(8, 8\).*encoder_layer_1: attention\.key_dense"):
        seq2see.from_keras(weights, heads=HEADS)
    weights = weights_like_keras(V, D, F, LAYERS)
    weights[0] = weights[0][0]
    with pytest.raises(DataError, match=r"weights\[0\].*embedding"):
        seq2see.from_keras(weights, heads=HEADS)


def test_numbers_that_are_not_finite_are_refused():
    weights = weights_like_keras(V, D, F, LAYERS)
    weights[-1] = weights[-1] * np.nan
    with pytest.raises(DataError, match=rf"weights\[{len(weights) - 1}\] \(outputs, bias\)"):
        seq2see.from_keras(weights, heads=HEADS)


@pytest.mark.parametrize("count", [0, 1, 4, 45, 47])
def test_another_number_of_arrays_is_refused(count):
    with pytest.raises(DataError, match=rf"^{count} arrays"):
        seq2see.from_keras([np.zeros((3, 3))] * count)


@pytest.mark.parametrize("options", [{"heads": 3}, {"heads": 0}, {"heads": 2, "positions": "waves"}])
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(SettingError):
        seq2see.from_keras(weights_like_keras(V, D, F, LAYERS), **options)
