"""Our attributions beside those of Captum, PyTorch's library of attribution methods, on the same model and sentence."""

import numpy as np
import pytest
import torch

pytest.importorskip("captum", reason="captum is not installed: pip install --no-deps captum")
from bench.attributions import Sentence
from captum.attr import LayerFeatureAblation, LayerGradientXActivation

from seq2see.lens.heads import every_head
from seq2see.lens.reading import ATTENTIONS
from seq2see.run import load

SENTENCE = "badge"
STEPS = 20
CLOSE = {"atol": 2e-5, "rtol": 1e-4}
pytestmark = pytest.mark.filterwarnings("ignore:Input Tensor 0:UserWarning")  # Captum's: gradients were not asked for


@pytest.fixture(scope="module")
def run(trained):
    return load(trained)


@pytest.fixture(scope="module")
def sentence(run):
    return Sentence(run, run.read(SENTENCE))


@pytest.fixture(scope="module")
def ours(run):
    return run.importance(SENTENCE, steps=STEPS)


def test_gradient_is_captums_input_x_gradient(sentence, ours):
    assert np.abs(ours.gradient).max() > 0.1
    np.testing.assert_allclose(ours.gradient, sentence.gradient(), **CLOSE)


def test_gradient_is_captums_gradient_x_activation_at_the_named_point(sentence, ours):
    """Captum can be given the points that `capture` names, as they are modules."""
    method = LayerGradientXActivation(sentence.log_probability, sentence.point)
    theirs = sentence.each_token(lambda t: method.attribute(sentence.source_1S, additional_forward_args=t))
    np.testing.assert_allclose(ours.gradient, theirs, **CLOSE)


def test_integrated_is_captums_integrated_gradients(sentence, ours):
    np.testing.assert_allclose(ours.integrated, sentence.integrated(STEPS), **CLOSE)
    assert np.abs(ours.integrated - ours.gradient).max() > 0.1, "they are two methods"


def test_left_out_is_captums_ablation_of_tokens_by_padding(sentence, ours):
    np.testing.assert_allclose(ours.left_out[:, :-1], sentence.padded()[:, :-1], **CLOSE)
    assert not ours.left_out[:, -1].any(), "ours never leaves the end out"


def test_left_out_is_not_the_ablation_of_embeddings_by_zeros(sentence, ours):
    assert np.abs(ours.left_out - sentence.zeroed())[:, :-1].max() > 0.1


def test_heads_are_captums_ablation_before_the_output_projection(run, sentence):
    """The loss without each head, of one pair, against zeros in the input of W_O."""
    found = run.head_worth([(SENTENCE, SENTENCE.upper())])
    T = len(sentence.target_ids)

    def loss(source_BS):
        return -sum(sentence.log_probability(source_BS, t) for t in range(T)) / T

    theirs = []
    for head in every_head(run.bundle):
        stack, name = ATTENTIONS[head.place]
        attention = getattr(getattr(run.model, stack)[head.layer], name)
        mask_1D = torch.arange(attention.w_o.in_features)[None] // attention.d_value
        method = LayerFeatureAblation(loss, attention.w_o)
        with torch.no_grad():
            change_ND = method.attribute(sentence.source_1S, layer_mask=mask_1D, attribute_to_layer_input=True)
        theirs.append(-float(change_ND[0, head.head * attention.d_value]))
    lost = [each.loss - found.whole.loss for each in found.without]
    assert max(lost) > 0.1
    np.testing.assert_allclose(lost, theirs, atol=1e-4, rtol=1e-3)
