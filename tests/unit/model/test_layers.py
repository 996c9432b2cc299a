import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seq2see.kernels import threads
from seq2see.model.attention import keep_padding, keep_past
from seq2see.model.layers import Dropout, FeedForward, LayerNorm, Residual
from seq2see.model.packing import Packing, Reach
from seq2see.model.transformer import DecoderLayer, EncoderLayer, LayerShape

B, S, T, D, HEADS, D_FF = 2, 5, 3, 8, 4, 12
SOURCE = torch.tensor([[7, 7, 7, 0, 0], [7, 7, 7, 7, 7]])
TARGET = torch.tensor([[7, 7, 7], [7, 7, 0]])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def shape(dropout: float = 0.0, **options: object) -> LayerShape:
    """The widths of a tiny layer, and any other options."""
    return LayerShape(d_model=D, heads=HEADS, d_ff=D_FF, dropout=dropout, **options)


def packing(tokens):
    lengths = (tokens != 0).sum(1)
    return Packing(F.pad(lengths.cumsum(0), (1, 0)), torch.device("cpu"))


# Dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_has_the_right_rate(rate):
    """A call's own rate is one of the two multiples of 1/256 around the one asked for."""
    count = 400_003  # not a multiple of eight: draws are shared by eights
    x = torch.full((count,), 2.0)
    dropped = Dropout(rate)(x)
    kept = dropped[dropped != 0]
    assert kept.unique().numel() == 1
    used = 1 - 2 / kept[0].item()
    assert used * 256 == pytest.approx(round(used * 256), abs=1e-3)
    assert abs(used - rate) < 1 / 256
    spread = math.sqrt(used * (1 - used) / count)
    assert abs((dropped == 0).double().mean().item() - used) < 5 * spread
    assert abs(dropped.double().mean().item() - 2) < 5 * spread * 2 / (1 - used)


def test_dropout_has_the_right_rate_on_average():
    torch.manual_seed(3)
    x = torch.ones(8)
    used = [1 - 1 / max(Dropout(0.1)(x).max().item(), 1) for _ in range(2000)]  # nearly all keep at least one of eight
    assert {round(each * 256) for each in used} - {0} == {25, 26}
    assert sum(used) / len(used) == pytest.approx(0.1, abs=5 / 256 * math.sqrt(0.24 / 2000))


def test_dropout_is_added_onto_another_in_the_same_pass():
    x, onto = torch.randn(B, S, D, requires_grad=True), torch.randn(B, S, D, requires_grad=True)
    torch.manual_seed(4)
    alone = Dropout(0.4)(x)
    torch.manual_seed(4)
    summed = Dropout(0.4)(x, onto)
    torch.testing.assert_close(summed, alone + onto)
    found, expected = (torch.autograd.grad((each**2).sum(), (x, onto)) for each in (summed, alone + onto))
    torch.testing.assert_close(found, expected)
    assert torch.equal(Dropout(0.4).eval()(x, onto), x + onto)


def test_dropout_decides_each_element_by_itself():
    """Elements that share one draw must not share their fate: neighbours drop together as often as chance says."""
    zeros = Dropout(0.5)(torch.ones(100_000, 8)) == 0
    for one in range(8):
        for other in range(one):
            together = (zeros[:, one] & zeros[:, other]).double().mean().item()
            assert together == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / 100_000))


def test_dropout_is_off_in_eval_and_at_rate_zero():
    x = torch.randn(B, S, D)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_dropout_gradient_has_the_mask_of_its_output():
    x = torch.ones(B, S, D, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())
    assert 0 < (x.grad == 0).sum() < x.numel()


def test_dropout_is_reproducible_and_new_at_each_call():
    x, dropout = torch.ones(50), Dropout(0.5)
    torch.manual_seed(5)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(5)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dropout_keeps_shape_and_type(dtype):
    dropped = Dropout(0.5)(torch.ones(3, 1, 5, dtype=dtype))
    assert (dropped.dtype, dropped.shape) == (dtype, (3, 1, 5))


# The pieces of a layer


def test_feed_forward_by_hand():
    layer = FeedForward(2, 3)
    layer.w_1.load_state_dict({"weight": torch.tensor([[1.0, 2], [-1, 0], [0, 1]]), "bias": torch.tensor([0.5, 0, -1])})
    layer.w_2.load_state_dict({"weight": torch.tensor([[1.0, 1, 1], [2, 0, -1]]), "bias": torch.tensor([0.0, 10])})
    # max(0, [1 + 6 + .5, -1, 3 - 1]) = [7.5, 0, 2]; 7.5 + 2 = 9.5; 15 - 2 + 10 = 23
    assert layer(torch.tensor([[1.0, 3]])).tolist() == [[9.5, 23]]


@pytest.mark.parametrize(
    ("activation", "of_one"), [("relu", 1.0), ("gelu", 0.8413447), ("silu", 1 / (1 + math.exp(-1)))]
)
def test_activations(activation, of_one):
    layer = FeedForward(1, 1, activation)
    for linear in (layer.w_1, layer.w_2):
        nn.init.ones_(linear.weight)
    assert layer(torch.ones(1, 1)).item() == pytest.approx(of_one, abs=1e-6)
    assert layer(torch.tensor([[-1.0]])).item() == pytest.approx(of_one - 1, abs=1e-6)


def test_residual_post_and_pre():
    x = torch.randn(B, S, D)
    post, pre = Residual(D, 0.0, "post"), Residual(D, 0.0, "pre")
    torch.testing.assert_close(post(x, torch.sin), F.layer_norm(x + x.sin(), (D,)))
    torch.testing.assert_close(pre(x, torch.sin), x + F.layer_norm(x, (D,)).sin())


def test_residual_drops_the_sublayer_and_not_the_stream():
    x = torch.randn(B, S, D)
    found = Residual(D, 0.5, "pre")(x, lambda y: torch.ones_like(y)) - x
    assert found.round().unique().tolist() == [0, 2]


def test_residual_epsilon():
    x = torch.tensor([[1e-3, -1e-3]])
    assert Residual(2, 0.0, epsilon=3e-6)(x, torch.zeros_like)[0, 0].item() == pytest.approx(0.5, rel=1e-5)


# Whole layers


def copy_attention(ours, theirs):
    for bias in (theirs.in_proj_bias, theirs.out_proj.bias):
        nn.init.normal_(bias)
    ours.w_qkv.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    ours.w_o.load_state_dict(theirs.out_proj.state_dict())


def copy_rest(ours, theirs, residuals):
    ours.feed_forward.w_1.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.w_2.load_state_dict(theirs.linear2.state_dict())
    for number, residual in enumerate(residuals, start=1):
        norm = getattr(theirs, f"norm{number}")
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        residual.norm.load_state_dict(norm.state_dict())


@pytest.mark.parametrize(("norm", "activation"), [("post", "relu"), ("post", "gelu"), ("pre", "relu")])
def test_encoder_layer_is_that_of_pytorch(norm, activation):
    theirs = nn.TransformerEncoderLayer(
        D, HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    ours = EncoderLayer(shape(norm=norm, activation=activation)).double()
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_rest(ours, theirs, [ours.around_attention, ours.around_feed_forward])
    x = torch.randn(B, S, D, dtype=torch.float64)
    expected = theirs(x, src_key_padding_mask=SOURCE == 0)
    torch.testing.assert_close(ours(x, keep_padding(SOURCE)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_layer_is_that_of_pytorch(norm):
    theirs = nn.TransformerDecoderLayer(
        D, HEADS, D_FF, 0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    ours = DecoderLayer(shape(norm=norm)).double()
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy_rest(ours, theirs, [ours.around_self, ours.around_cross, ours.around_feed_forward])
    x, memory = torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=TARGET == 0,
        memory_key_padding_mask=SOURCE == 0,
    )
    found = ours(x, memory, keep_past(TARGET), keep_padding(SOURCE))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_layer_on_rectangles_and_packed(norm):
    layer = EncoderLayer(shape(norm=norm, d_key=3, rotary=False)).double()
    layout = packing(SOURCE)
    x_ND = torch.randn(8, D, dtype=torch.float64)
    on_rectangles = layer(layout.pad(x_ND), keep_padding(SOURCE))
    assert on_rectangles.shape == (B, S, D)
    packed = layer(x_ND, Reach.packed(layout, layout))
    torch.testing.assert_close(packed, layout.pack(on_rectangles), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_layer_on_rectangles_and_packed(norm):
    layer = DecoderLayer(shape(norm=norm, d_value=3)).double()
    sources, targets = packing(SOURCE), packing(TARGET)
    x_ND, memory_ND = torch.randn(5, D, dtype=torch.float64), torch.randn(8, D, dtype=torch.float64)
    on_rectangles = layer(targets.pad(x_ND), sources.pad(memory_ND), keep_past(TARGET), keep_padding(SOURCE))
    assert on_rectangles.shape == (B, T, D)
    packed = layer(x_ND, memory_ND, Reach.packed(targets, targets, causal=True), Reach.packed(targets, sources))
    torch.testing.assert_close(packed, targets.pack(on_rectangles), rtol=0, atol=1e-12)


def test_layers_alone_need_no_mask():
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    assert EncoderLayer(shape())(x).shape == (B, T, D)
    assert DecoderLayer(shape())(x, memory).shape == (B, T, D)


def test_dropout_reaches_each_sublayer():
    """Of rate 1/2 on every sub-layer: training is random, evaluation is not."""
    layer, x, memory = (
        DecoderLayer(shape(dropout=0.5)),
        torch.randn(B, T, D),
        torch.randn(B, S, D),
    )
    assert sum(isinstance(module, Dropout) and module.rate == 0.5 for module in layer.modules()) == 3
    assert not torch.equal(layer(x, memory), layer(x, memory))
    layer.eval()
    assert torch.equal(layer(x, memory), layer(x, memory))


def test_gradients_of_the_layer_norm_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(1)
    x, upstream, norm = torch.randn(301, 40), torch.randn(301, 40), LayerNorm(40)
    torch.nn.init.normal_(norm.weight)
    theirs = torch.nn.LayerNorm(40)
    theirs.load_state_dict(norm.state_dict())
    found = []
    for module, count in ((theirs, 1), (norm, 1), (norm, 2), (norm, 3)):
        leaf = x.clone().requires_grad_()
        with threads.using(count):
            output = module(leaf)
            gradients = torch.autograd.grad(output, [leaf, module.weight, module.bias], upstream)
            assert torch.get_num_threads() == count
        found.append([output, *gradients])
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))
