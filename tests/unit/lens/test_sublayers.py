"""One attention sub-layer as arrays: each step follows from the one before."""

import numpy as np
import pytest

import seq2see
from seq2see.errors import SettingError


@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
def test_each_step_follows_from_the_one_before(trained, place):
    seen = seq2see.load(trained).sublayer("bad", place)
    scores = np.where(seen.keep, seen.scores, -np.inf)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(seen.weights, exponentials / exponentials.sum(-1, keepdims=True), atol=1e-5)
    bias = seen.output - np.concatenate(list(seen.heads), 1) @ seen.w_o
    np.testing.assert_allclose(bias, np.broadcast_to(bias[0], bias.shape), atol=1e-4)  # the same for all tokens
    np.testing.assert_allclose(seen.before + seen.output, seen.sum, atol=1e-5)
    assert seen.scores.shape[1:] == (len(seen.queries), len(seen.keys))
    assert seen.normed.shape == seen.sum.shape


def test_a_layer_that_is_not_there_is_refused(trained):
    with pytest.raises(SettingError, match="layer 1 in the encoder: it has 1, counted from 0"):
        seq2see.load(trained).sublayer("bad", layer=1)


def test_a_word_in_two_contexts(trained):
    found = seq2see.load(trained).word_in_contexts("bad", "bad", "bad fee")
    assert found.similarity[0] == pytest.approx(1.0)
    assert len(found.similarity) == len(found.stages) == 2 + len(found.weights[0])
    for tokens, weights in zip(found.tokens, found.weights, strict=True):
        assert all(layer.shape[1] == len(tokens) for layer in weights)
        np.testing.assert_allclose([layer.sum(1) for layer in weights], 1, atol=1e-4)


def test_a_word_that_is_not_in_the_sentence_is_refused(trained):
    with pytest.raises(SettingError, match="'fee' is not in the sentence 'bad'"):
        seq2see.load(trained).word_in_contexts("fee", "bad fee", "bad")
