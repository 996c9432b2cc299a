import math

import numpy as np
import pytest
import torch

from seq2see import special
from seq2see.bundle import Bundle, Tokenizers
from seq2see.config import resolve
from seq2see.data import tokenizer
from seq2see.lens.answers import look
from seq2see.lens.capture import capture
from seq2see.model.attention import MultiHeadAttention, Point
from seq2see.model.build import build
from seq2see.model.transformer import Transformer

ENCODER, DECODER, HEADS, D = 2, 1, 2, 8
SOURCE, INPUTS = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]]), torch.tensor([[2, 4, 5, 6], [2, 9, 0, 0]])
NAMES = [
    "encoder.0.self_attention.weights",
    "encoder.1.self_attention.weights",
    "decoder.0.self_attention.weights",
    "decoder.0.cross_attention.weights",
]


@pytest.fixture
def model():
    torch.manual_seed(1)
    sizes = {"encoder_layers": ENCODER, "decoder_layers": DECODER, "d_model": D, "heads": HEADS, "d_ff": 12}
    return Transformer(13, 13, **sizes).double().eval()


@pytest.fixture
def seen(model):
    with torch.no_grad(), capture(model, only=lambda name: name.endswith(".weights")) as heard:
        model(SOURCE, INPUTS)
    return heard


def listeners(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_every_attention_is_heard_by_name_in_order(seen):
    assert list(seen) == NAMES
    shapes = [tuple(seen[name][0].shape) for name in NAMES]
    assert shapes == [(2, HEADS, 5, 5), (2, HEADS, 5, 5), (2, HEADS, 4, 4), (2, HEADS, 4, 5)]
    assert all(len(tensors) == 1 for tensors in seen.values())


def test_rows_are_distributions(seen):
    for name in NAMES:
        weights = seen[name][0]
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))


def test_hidden_cells_are_exactly_zero(seen):
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    past = seen["decoder.0.self_attention.weights"][0]
    assert not past[..., future].any()
    assert past[..., ~future].all()
    for name in ("encoder.0.self_attention.weights", "decoder.0.cross_attention.weights"):
        assert not seen[name][0][1, :, :, 3:].any(), "the padding of the shorter source"
        assert seen[name][0][1, :, :, :3].all()


def test_listening_does_not_change_what_is_said(model):
    with torch.no_grad():
        before = model(SOURCE, INPUTS)
        with capture(model):
            during = model(SOURCE, INPUTS)
        after = model(SOURCE, INPUTS)
    torch.testing.assert_close(during, before, rtol=0, atol=1e-12)
    assert torch.equal(after, before)


def test_weights_are_those_of_a_calculation_apart(model, seen):
    """First encoder layer: queries and keys from the same matrices, head by head, in plain numpy."""
    attention = model.encoder[0].self_attention
    x = model.source_embedding(SOURCE[0], torch.arange(5), 5).detach().numpy()
    w, b = attention.w_qkv.weight.detach().numpy(), attention.w_qkv.bias.detach().numpy()
    for head in range(HEADS):
        rows = slice(head * D // HEADS, (head + 1) * D // HEADS)
        query, key = x @ w[:D][rows].T + b[:D][rows], x @ w[D : 2 * D][rows].T + b[D : 2 * D][rows]
        exponentials = np.exp(query @ key.T / math.sqrt(D // HEADS))
        expected = exponentials / exponentials.sum(-1, keepdims=True)
        np.testing.assert_allclose(seen[NAMES[0]][0][0, head].numpy(), expected, rtol=0, atol=1e-12)


def test_cross_weights_are_those_of_a_calculation_apart(model, seen):
    with torch.no_grad():
        memory = model.encode(SOURCE[0], torch.tensor([0, 5])).states_ND.numpy()
        layer = model.decoder[0]
        x = model.target_embedding(INPUTS[0], torch.arange(4), 4)[None]
        past = torch.ones(4, 4, dtype=torch.bool).tril()
        x = layer.around_self(x, lambda y: layer.self_attention(y, reach=past))[0].numpy()
    w, b = (part.detach().numpy() for part in (layer.cross_attention.w_qkv.weight, layer.cross_attention.w_qkv.bias))
    rows = slice(D // HEADS, D)  # the second of two heads
    query, key = x @ w[:D][rows].T + b[:D][rows], memory @ w[D : 2 * D][rows].T + b[D : 2 * D][rows]
    exponentials = np.exp(query @ key.T / math.sqrt(D // HEADS))
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(seen[NAMES[3]][0][0, 1].numpy(), expected, rtol=0, atol=1e-12)


def test_each_passing_is_kept_in_order(model):
    with torch.no_grad(), capture(model) as seen:
        memory = model.encode(SOURCE[0], torch.tensor([0, 5]))
        state = model.start(memory)
        for token in INPUTS[0]:
            model.step(token[None], state)
    assert [tuple(weights.shape) for weights in seen["decoder.0.self_attention.weights"]] == [
        (1, HEADS, 1, length) for length in (1, 2, 3, 4)
    ]
    with torch.no_grad(), capture(model) as at_once:
        model.decode(INPUTS[0], torch.tensor([0, 4]), memory)
    for name in NAMES[2:]:
        last = at_once[name][0][0, :, 3]
        torch.testing.assert_close(seen[name][3][0, :, 0], last, rtol=0, atol=1e-12)


def test_what_is_heard_is_detached(model):
    with capture(model) as seen:
        logits = model(SOURCE, INPUTS)
    assert logits.requires_grad
    assert not any(tensor.requires_grad for tensors in seen.values() for tensor in tensors)


def test_gradients_flow_while_listening(model):
    weight = model.encoder[0].self_attention.w_qkv.weight
    (expected,) = torch.autograd.grad(model(SOURCE, INPUTS).logsumexp(-1).sum(), weight)
    with capture(model):
        (found,) = torch.autograd.grad(model(SOURCE, INPUTS).logsumexp(-1).sum(), weight)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_nobody_listens_afterwards(model):
    with capture(model) as seen:
        assert listeners(model) > len(NAMES)
    model(SOURCE, INPUTS)
    assert listeners(model) == 0
    assert not seen


def test_nobody_listens_after_an_error(model):
    with pytest.raises(ZeroDivisionError), capture(model):
        _ = 1 / 0
    assert listeners(model) == 0
    assert not any(module.heard for module in model.modules() if isinstance(module, Point))


def test_two_may_listen_at_once(model):
    with torch.no_grad(), capture(model) as outer:
        with capture(model) as inner:
            model(SOURCE, INPUTS)
        model(SOURCE, INPUTS)
    assert (len(outer[NAMES[0]]), len(inner[NAMES[0]])) == (2, 1)


def test_a_single_attention_can_be_heard():
    attention = MultiHeadAttention(D, HEADS)
    with capture(attention) as seen:
        attention(torch.randn(2, 3, D), torch.randn(2, 5, D))
    assert seen["weights"][0].shape == (2, HEADS, 3, 5)


# Look


@pytest.fixture(params=["sinusoid", "rotary"])
def bundle(request):
    """Untrained: it says nonsense, and one can look at it all the same."""
    letters = tokenizer.train("characters", ["a cab", "bad cab", "abc"], 20)
    settings = resolve(
        {
            "model": {
                "encoder_layers": ENCODER,
                "decoder_layers": 3,
                "d_model": D,
                "heads": HEADS,
                "d_ff": 12,
                "positions": request.param,
            },
            "data": {"source_tokenizer": "characters", "target_tokenizer": "characters"},
            "decoding": {"beam": 2, "max_ratio": 1.0, "max_extra": 2},
        }
    )
    torch.manual_seed(2)
    return Bundle(settings, Tokenizers(letters, letters), build(settings.model, len(letters), len(letters)).eval())


def test_look_has_every_layer_and_head_with_labels_for_each_side(bundle):
    found = look(bundle, "a bad cab")
    S, T = len("a bad cab") + 1, len(found.input_tokens)
    assert found.source == "a bad cab"
    assert found.source_tokens == [*"a▁bad▁cab", "</s>"]
    assert found.input_tokens == ["<s>", *found.target_tokens[:-1]]
    assert found.target_tokens[-1] == special.SPELLINGS[special.END]
    assert (
        "".join(found.target_tokens[:-1]).replace("▁", " ").replace("<unk>", tokenizer.UNKNOWN_MARK)
        == found.translation
    )
    assert [weights.shape for weights in found.encoder] == [(HEADS, S, S)] * ENCODER
    assert [weights.shape for weights in found.decoder] == [(HEADS, T, T)] * 3
    assert [weights.shape for weights in found.cross] == [(HEADS, T, S)] * 3
    for weights in (*found.encoder, *found.decoder, *found.cross):
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=1e-5)


def test_look_says_what_translating_says(bundle):
    from seq2see.decoding.torch_engine import TorchEngine
    from seq2see.decoding.translator import translate

    before = translate(TorchEngine(bundle.model), bundle.tokenizers, bundle.settings, ["abc"])[0].text
    assert look(bundle, "abc").translation == before
    assert translate(TorchEngine(bundle.model), bundle.tokenizers, bundle.settings, ["abc"])[0].text == before
    assert listeners(bundle.model) == 0
