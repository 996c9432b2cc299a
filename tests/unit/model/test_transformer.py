import itertools

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import seq2see
from seq2see import bundle, config
from seq2see.model.build import build, count_parameters
from seq2see.model.layers import sinusoid
from seq2see.model.transformer import Transformer

SIZES = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 8, "heads": 2, "d_ff": 12, "dropout": 0.0}
V = 13
SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
INPUTS = torch.tensor([[2, 4, 0], [2, 11, 12]])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def transformer(source=V, target=V, **options):
    return Transformer(source, target, **(SIZES | options))


POSITIONS = ("sinusoid", "learned", "rotary", "none")
EACH = [
    *({"norm": norm, "positions": positions} for norm in ("pre", "post") for positions in POSITIONS),
    *({"tie": tie, "output_bias": bias} for tie in ("all", "decoder", "none") for bias in (False, True)),
    *({"activation": activation} for activation in ("gelu", "silu")),
    {"d_key": 6},
    {"d_key": 2, "d_value": 5, "positions": "rotary"},
    {"dropout": 0.3, "positions": "learned", "max_positions": 5},
]  # fmt: skip


@pytest.mark.parametrize("options", EACH, ids=lambda options: " ".join(map(str, options.values())))
def test_every_option_runs_and_teaches_every_weight(options):
    model = transformer(**options)
    logits = model(SOURCE, INPUTS)
    assert logits.shape == (2, 3, V)
    logits.logsumexp(-1).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), f"{name} has no influence"


def test_options_change_the_answer():
    """No option may be read and forgotten: the same seed with another option gives other numbers."""
    answers = []
    for options in ({}, {"norm": "pre"}, {"positions": "rotary"}, {"positions": "none"}, {"positions": "learned"},
                    {"activation": "gelu"}, {"d_key": 3}, {"d_value": 3}, {"norm_epsilon": 0.1}):  # fmt: skip
        torch.manual_seed(1)
        answers.append(transformer(**options).eval()(SOURCE, INPUTS))
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(answers, 2))


def test_rows_in_the_padding_are_zeros():
    logits = transformer(output_bias=True)(SOURCE, INPUTS)
    assert not logits[0, 2].any()
    assert logits[0, :2].all()
    assert logits[1].all()


def test_padding_before_a_sentence_does_not_move_its_rows():
    """Wherever the padding stands, its rows are zeros and the others stay where they are; or it is refused."""
    model = transformer(output_bias=True).eval()
    nn.init.normal_(model.output.bias)
    try:
        logits = model(SOURCE, torch.tensor([[0, 2, 4], [2, 11, 12]]))
    except ValueError:
        return
    assert not logits[0, 0].any()
    torch.testing.assert_close(logits[0, 1:], model(SOURCE, INPUTS)[0, :2])


def test_columns_that_are_padding_everywhere_stay():
    wider = nn.functional.pad(INPUTS, (0, 2))
    model = transformer().eval()
    logits = model(nn.functional.pad(SOURCE, (0, 3)), wider)
    assert logits.shape == (2, 5, V)
    torch.testing.assert_close(logits[:, :3], model(SOURCE, INPUTS))
    assert not logits[:, 3:].any()


def test_another_padding_id():
    model = transformer().eval()
    source, inputs = (tokens.masked_fill(tokens == 0, 10) for tokens in (SOURCE, INPUTS))
    assert torch.equal(model(source, inputs, padding=10), model(SOURCE, INPUTS))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_whole_is_the_sum_of_its_parts(norm):
    """One sentence through the pieces by hand: scaled embeddings, waves, layers, final norms, output."""
    model = transformer(norm=norm, tie="decoder", output_bias=True).double()
    nn.init.normal_(model.output.bias)
    source, inputs = SOURCE[:1], INPUTS[1:]
    memory = model.source_embedding.tokens.weight[source] * 8**0.5 + sinusoid(5, 8)
    for layer in model.encoder:
        memory = layer(memory)
    x = model.output.weight[inputs] * 8**0.5 + sinusoid(3, 8)
    if norm == "pre":
        memory = nn.functional.layer_norm(memory, (8,))
    for layer in model.decoder:
        x = layer(x, memory, torch.ones(3, 3, dtype=torch.bool).tril())
    if norm == "pre":
        x = nn.functional.layer_norm(x, (8,))
    expected = x @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(source, inputs), expected, rtol=0, atol=1e-12)


def test_dropout_falls_on_the_embeddings_too():
    embedding = transformer(dropout=0.5).source_embedding
    places = torch.arange(5)
    assert (embedding(SOURCE[0], places, 5) == 0).any()
    assert not (embedding.eval()(SOURCE[0], places, 5) == 0).any()


def test_embeddings_begin_as_large_as_the_waves():
    model = Transformer(500, 500, encoder_layers=1, decoder_layers=1, d_model=64, heads=4, d_ff=8, tie="none")
    for embedding in (model.source_embedding, model.target_embedding):
        assert (embedding.tokens.weight * embedding.scale).std().item() == pytest.approx(1, abs=0.03)


def test_sentences_longer_than_any_before_find_their_waves():
    model = transformer().eval()
    short = model(SOURCE, INPUTS)
    long = torch.randint(4, V, (1, 300))
    model(long, long)
    assert torch.equal(model(SOURCE, INPUTS), short)
    torch.testing.assert_close(model.source_embedding.waves[:300], sinusoid(300, 8))


# Tied weights


def shared(model):
    source, target, output = (
        model.source_embedding.tokens.weight,
        model.target_embedding.tokens.weight,
        model.output.weight,
    )
    return source is target, target is output


@pytest.mark.parametrize(
    ("tie", "expected", "matrices"),
    [("all", (True, True), 1), ("decoder", (False, True), 2), ("none", (False, False), 3)],
)
def test_tied_weights_are_one_tensor_and_saved_once(tie, expected, matrices, tmp_path):
    model = transformer(tie=tie)
    assert shared(model) == expected
    bundle.save_weights(model, tmp_path / "model.safetensors")
    saved = load_file(tmp_path / "model.safetensors")
    assert sum(weight.shape == (V, 8) for weight in saved.values()) == matrices
    assert sum(weight.numel() for weight in saved.values()) == sum(weight.numel() for weight in model.parameters())

    torch.manual_seed(2)
    other = transformer(tie=tie)
    bundle.load_weights(other, saved)
    assert shared(other) == expected
    assert torch.equal(other.eval()(SOURCE, INPUTS), model.eval()(SOURCE, INPUTS))


@pytest.mark.parametrize("tie", ["decoder", "none"])
def test_vocabularies_of_two_sizes(tie):
    model = transformer(source=10, target=V, tie=tie)
    assert model(SOURCE, INPUTS).shape == (2, 3, V)
    assert model.source_embedding.tokens.weight.shape == (10, 8)


@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_the_same_seed_gives_the_same_weights(tie):
    """Many times, with all of them kept: the order of initialisation must not depend on where objects lie."""
    models = []
    for _ in range(16):
        torch.manual_seed(3)
        models.append(transformer(tie=tie, encoder_layers=1))
    first, *others = (bundle.named_weights(model) for model in models)
    for other in others:
        assert all(torch.equal(weight, other[name]) for name, weight in first.items())


# Built from settings


def test_build_hands_on_every_setting():
    settings = config.Model(
        encoder_layers=1, decoder_layers=2, d_model=8, heads=2, d_key=3, d_value=5, d_ff=12, activation="silu",
        norm="pre", norm_epsilon=1e-3, positions="learned", max_positions=9, dropout=0.25, tie="decoder",
        output_bias=True,
    )  # fmt: skip
    model = build(settings, 10, V)
    assert (len(model.encoder), len(model.decoder)) == (1, 2)
    attention = model.decoder[1].cross_attention
    assert (attention.heads, attention.d_key, attention.d_value) == (2, 3, 5)
    assert model.encoder[0].feed_forward.activation is nn.functional.silu
    assert model.encoder[0].around_attention.pre
    assert model.decoder_norm.eps == model.encoder[0].around_feed_forward.norm.eps == 1e-3
    assert model.source_embedding.places.weight.shape == (9, 8)
    assert model.target_embedding.dropout.rate == model.decoder[0].around_cross.dropout.rate == 0.25
    assert model.output.weight is model.target_embedding.tokens.weight
    assert model.output.bias.shape == (V,)
    assert count_parameters(settings, 10, V) == sum(weight.numel() for weight in model.parameters())


# The parts, from the top

PARTS = [
    "scaled_dot_product_attention", "MultiHeadAttention", "sinusoid", "keep_padding", "keep_past", "EncoderLayer",
    "DecoderLayer", "Transformer", "noam",
]  # fmt: skip


@pytest.mark.parametrize("name", [*PARTS, "train", "load"])
def test_parts_are_importable_from_the_top(name):
    part = getattr(seq2see, name)
    assert part.__name__ == name
    assert part.__doc__
    assert name in seq2see.__all__
    assert name in dir(seq2see)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="MultiheadAttention"):
        _ = seq2see.MultiheadAttention


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "pre", "positions": "rotary", "tie": "decoder"},
        {"tie": "none", "output_bias": True, "positions": "learned", "max_positions": 300},
        {"d_key": 6, "d_value": 10, "encoder_layers": 1, "decoder_layers": 4},
    ],
    ids=str,
)
def test_parameters_are_counted_without_being_made(options):
    from seq2see.config import resolve
    from seq2see.model.build import build, count_parameters

    settings = resolve(
        {"data": {"shared": options.get("tie", "all") == "all"}, "model": {"d_model": 16, **options}}
    ).model
    sizes = (11, 11) if settings.tie == "all" else (11, 13)
    made = sum(weight.numel() for weight in build(settings, *sizes).parameters())
    assert count_parameters(settings, *sizes) == made


def test_a_gain_scales_what_sublayers_add_and_nothing_else():
    made, smaller = (seq2see.Transformer(9, 11, d_model=8, heads=2, d_ff=12, d_value=6) for _ in range(2))
    smaller.load_state_dict(made.state_dict())
    smaller.scale_sublayers(0.5)
    scaled = {"w_o.weight", "w_1.weight", "w_2.weight"}
    for (name, before), after in zip(made.state_dict().items(), smaller.state_dict().values(), strict=True):
        if name.endswith("w_qkv.weight"):  # the last 2 x 6 rows are values
            assert torch.equal(after[:-12], before[:-12])
            assert torch.equal(after[-12:], 0.5 * before[-12:])
        else:
            assert torch.equal(after, before * (0.5 if ".".join(name.split(".")[-2:]) in scaled else 1))
