"""The whole model against an independent one: Hugging Face's Marian, a post-norm Transformer with shared embeddings."""

import copy
import os
import warnings
from itertools import groupby

import pytest
import torch
from torch import nn

from seq2see import special
from seq2see.config import Decoding
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.recorded import RecordedSearch
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.model.layers import sinusoid
from seq2see.model.transformer import Transformer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, not ours
    marian = pytest.importorskip("transformers.models.marian.modeling_marian", reason="needs transformers")
    from transformers import GenerationConfig

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
    return with_weights_of(theirs)


def with_weights_of(theirs):
    """Build our model with their weights."""
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


SENTENCES = 120


@pytest.fixture(scope="module")
def talking(theirs):
    """Return our model and theirs with outputs that depend on the source, and end neither seldom nor at once."""
    model = copy.deepcopy(theirs)
    model.generation_config.forced_eos_token_id = None  # it would end every output at the limit, which we do not
    for layer in model.model.decoder.layers:
        layer.encoder_attn.out_proj.weight.data.mul_(4.0)
    model.final_logits_bias[..., [special.PAD, special.BEGIN]] = -1e9
    model.final_logits_bias[..., special.END] += 3.0
    return with_weights_of(model), model


def some_sentences():
    dice = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, LONGEST - 1, (SENTENCES,), generator=dice).sort().values.tolist()
    return [[*torch.randint(4, V, (length,), generator=dice).tolist(), special.END] for length in lengths]


@torch.no_grad()
def their_lists(theirs, sentences, width, alpha, limit):
    """(tokens, score) of the n-best list of each sentence by Hugging Face's beam search, best first."""
    settings = GenerationConfig(
        num_beams=width,
        num_return_sequences=width,
        length_penalty=alpha,
        early_stopping=False,
        max_new_tokens=limit,
        decoder_start_token_id=special.BEGIN,
        eos_token_id=special.END,
        pad_token_id=special.PAD,
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = []
    for _, same in groupby(sentences, key=len):
        source = torch.tensor(list(same))
        said = theirs.generate(source, attention_mask=torch.ones_like(source), generation_config=settings)
        texts = [
            [token for token in row if token not in (special.PAD, special.BEGIN, special.END)]
            for row in said.sequences.tolist()
        ]
        rows = list(zip(texts, said.sequences_scores.tolist(), strict=True))
        found += [rows[first : first + width] for first in range(0, len(rows), width)]
    return found


@pytest.mark.parametrize("search", [TorchEngine, RecordedSearch])
@pytest.mark.parametrize(
    ("width", "alpha", "limit", "telling"),
    [(2, 1.0, 11, 4), (3, 0.0, 11, 0), (5, 1.0, 11, 35), (5, 0.6, 4, 20), (4, 2.0, 6, 40)],
)
def test_the_same_n_best_lists(talking, search, width, alpha, limit, telling):
    """Texts and scores are the same. Both count the end as part of the length, and neither adds one at the limit.

    `telling` is the least number of sentences whose lists differ when the search stops against the best hypothesis.
    """
    (ours, theirs), sentences = talking, some_sentences()
    expected = their_lists(theirs, sentences, width, alpha, limit)

    def lists(**changes):
        settings = Decoding(beam=width, length_penalty=alpha, **changes)
        found = search(ours).search([Task(sentence, limit, []) for sentence in sentences], settings)
        return [[(each.tokens, each.score) for each in one] for one in found]

    found, texts = lists(), texts_of(expected)
    assert texts_of(found) == texts
    for one, other in zip(found, expected, strict=True):
        assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-4)
    lengths = {len(text) for one in texts for text in one}
    assert len(lengths) > 4, "outputs of many lengths"
    assert limit in lengths or alpha == 0, "some of them reach the limit"
    earlier = texts_of(lists(stop_against="best"))
    assert sum(one != other for one, other in zip(earlier, texts, strict=True)) >= telling


def texts_of(lists):
    return [[text for text, _ in one] for one in lists]
