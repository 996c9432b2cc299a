"""The whole model against an independent one: Hugging Face's Marian, a post-norm Transformer with shared embeddings."""

import os
import warnings

import pytest
import torch
from torch import nn

from seq2see.model.positions import sinusoid
from seq2see.model.transformer import Transformer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, not ours
    marian = pytest.importorskip("transformers.models.marian.modeling_marian", reason="needs transformers")

V, D, LONGEST = 30, 16, 12


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(1)
    settings = marian.MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=LONGEST,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=0,
        decoder_start_token_id=2,
        eos_token_id=3,
        forced_eos_token_id=3,
    )
    model = marian.MarianMTModel(settings).eval()
    for name, weight in model.named_parameters():
        if "embed_positions" not in name:  # theirs begin close to zero, where mistakes do not show
            nn.init.normal_(weight, 1.0 if name.endswith("norm.weight") else 0.0, 0.25)
    nn.init.normal_(model.final_logits_bias)
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data = sinusoid(LONGEST, D)  # Marian puts all sines before all cosines
    return model


@pytest.fixture(scope="module")
def ours(theirs):
    """Our model with their weights."""
    model = Transformer(
        V, V, encoder_layers=2, decoder_layers=2, d_model=D, heads=4, d_ff=24, tie="all", output_bias=True
    ).eval()
    model.output.weight.data.copy_(theirs.model.shared.weight)
    model.output.bias.data.copy_(theirs.final_logits_bias[0])
    for own, other in zip(model.encoder, theirs.model.encoder.layers, strict=True):
        copy_attention(own.self_attention, other.self_attn)
        own.around_attention.norm.load_state_dict(other.self_attn_layer_norm.state_dict())
        copy_feed_forward(own, other)
    for own, other in zip(model.decoder, theirs.model.decoder.layers, strict=True):
        copy_attention(own.self_attention, other.self_attn)
        copy_attention(own.cross_attention, other.encoder_attn)
        own.around_self.norm.load_state_dict(other.self_attn_layer_norm.state_dict())
        own.around_cross.norm.load_state_dict(other.encoder_attn_layer_norm.state_dict())
        copy_feed_forward(own, other)
    return model


def copy_attention(own, other):
    projections = [other.q_proj, other.k_proj, other.v_proj]
    own.w_qkv.weight.data = torch.cat([each.weight.data for each in projections])
    own.w_qkv.bias.data = torch.cat([each.bias.data for each in projections])
    own.w_o.load_state_dict(other.out_proj.state_dict())


def copy_feed_forward(own, other):
    own.feed_forward.w_1.load_state_dict(other.fc1.state_dict())
    own.feed_forward.w_2.load_state_dict(other.fc2.state_dict())
    own.around_feed_forward.norm.load_state_dict(other.final_layer_norm.state_dict())


def uneven(lengths, begin=None):
    rows = [torch.randint(4, V, (length,)) for length in lengths]
    if begin is not None:
        for row in rows:
            row[0] = begin
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


@pytest.mark.parametrize(
    ("sources", "targets"),
    [((5,), (3,)), ((4, 4), (6, 6)), ((3, 9, 1, 6), (7, 2, 4, 1)), ((1, 2, LONGEST), (LONGEST, 1, 5))],
)
@torch.no_grad()
def test_the_same_logits(ours, theirs, sources, targets):
    torch.manual_seed(2)
    source, inputs = uneven(sources), uneven(targets, begin=2)
    expected = theirs(input_ids=source, attention_mask=source != 0, decoder_input_ids=inputs).logits
    found = ours(source, inputs)
    real = inputs != 0
    assert expected[real].std() > 0.5, "numbers that tell something"
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_same_logits_one_step_at_a_time(ours, theirs):
    torch.manual_seed(3)
    source, inputs = uneven((7, 2, 5)), uneven((6, 6, 6), begin=2)
    expected = theirs(input_ids=source, attention_mask=source != 0, decoder_input_ids=inputs).logits
    offsets = torch.tensor([0, 7, 9, 14])
    state = ours.start(ours.encode(source[source != 0], offsets))
    for place in range(6):
        torch.testing.assert_close(ours.step(inputs[:, place], state), expected[:, place], rtol=0, atol=1e-5)


def test_the_same_gradient(ours, theirs):
    """Of the shared embedding, which all three uses add to."""
    torch.manual_seed(4)
    source, inputs = uneven((3, 6)), uneven((4, 2), begin=2)
    real = inputs != 0
    logits = theirs(input_ids=source, attention_mask=source != 0, decoder_input_ids=inputs).logits
    (expected,) = torch.autograd.grad(logits[real].logsumexp(-1).sum(), [theirs.model.shared.weight])
    (found,) = torch.autograd.grad(ours(source, inputs)[real].logsumexp(-1).sum(), [ours.output.weight])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
