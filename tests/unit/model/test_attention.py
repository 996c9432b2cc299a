import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seq2see.model import layers
from seq2see.model.attention import (
    MultiHeadAttention,
    attend,
    keep_padding,
    keep_past,
    keep_unless,
    scaled_dot_product_attention,
)
from seq2see.model.layers import rotate
from seq2see.model.packing import Packing, Reach
from seq2see.model.recording import RecordingPoint
from seq2see.model.state import Past
from seq2see.model.transformer import EncoderLayer, LayerShape

B, H, L, M, K, VALUE = 2, 3, 4, 5, 6, 7
D = 8


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def packing(*lengths):
    return Packing(offsets(*lengths), torch.device("cpu"))


def both_ways(query, key, value, reach):
    """(output, gradients) by the fused kernel and written out."""
    heard = RecordingPoint()
    heard.register_forward_hook(lambda *_: None)
    answers = []
    for point in (None, heard):
        inputs = [part.clone().requires_grad_() for part in (query, key, value)]
        output = attend(*inputs, reach, point)
        slope = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
        answers.append((output.detach(), torch.autograd.grad((output * slope).sum(), inputs)))
    return answers


def random_heads(dtype, length=L):
    return (
        torch.randn(B, H, length, K, dtype=dtype),
        torch.randn(B, H, M, K, dtype=dtype),
        torch.randn(B, H, M, VALUE, dtype=dtype),
    )


KEEP_PADDING = keep_padding(torch.tensor([[4, 4, 4, 0, 0], [4, 4, 4, 4, 4]]))
KEEP_ANY = torch.rand(B, H, L, M, generator=torch.Generator().manual_seed(3)) > 0.4
KEEP_ANY[..., 0] = True
REACHES = {
    "everywhere": Reach(),
    "padding hidden": Reach(KEEP_PADDING),
    "any mask": Reach(KEEP_ANY),
    "causal": Reach(causal=True),
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("reach", REACHES.values(), ids=REACHES.keys())
def test_written_out_and_fused_agree(reach, dtype, tolerance):
    heads = random_heads(dtype, M if reach.causal else L)
    (fused, fused_slopes), (written, written_slopes) = both_ways(*heads, reach)
    assert fused.shape == (B, H, heads[0].shape[2], VALUE)
    torch.testing.assert_close(fused, written, rtol=0, atol=tolerance)
    for one, other in zip(fused_slopes, written_slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("heard", [False, True])
def test_a_mask_and_causal_together_hide_both_or_are_refused(heard):
    """PyTorch's kernel refuses the two together; listening must not make another thing of them."""
    query, key, value = random_heads(torch.float64, M)
    point = RecordingPoint()
    if heard:
        point.register_forward_hook(lambda *_: None)
    try:
        found = attend(query, key, value, Reach(KEEP_PADDING, causal=True), point)
    except (RuntimeError, ValueError, AssertionError):
        return
    past = keep_past(torch.tensor([[4, 4, 4, 0, 0], [4, 4, 4, 4, 4]]))
    torch.testing.assert_close(found, scaled_dot_product_attention(query, key, value, past)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_row_that_may_see_nothing_gives_zeros(dtype):
    keep = torch.ones(B, 1, L, M, dtype=torch.bool)
    keep[0, 0, 2] = False
    keep[1] = False
    for output, slopes in both_ways(*random_heads(dtype), Reach(keep)):
        assert not output[0, :, 2].any()
        assert not output[1].any()
        assert output[0, :, 1].all()
        assert all(slope.isfinite().all() for slope in slopes)
        query_slope, key_slope, _ = slopes
        assert not query_slope[0, :, 2].any()
        assert not key_slope[1].any()


def test_written_out_weights_are_zero_where_hidden_and_sum_to_one():
    query, key, value = random_heads(torch.float64)
    weights = scaled_dot_product_attention(query, key, value, KEEP_ANY)[1]
    assert weights.shape == (B, H, L, M)
    assert torch.equal(weights == 0, ~KEEP_ANY)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L, dtype=torch.float64))


def test_written_out_against_plain_loops():
    """One head by hand: softmax of dot products over the root of the width, then a weighted sum."""
    query, key, value = (part[0, 0] for part in random_heads(torch.float64))
    found = scaled_dot_product_attention(query, key, value)[0]
    for row in range(L):
        scores = [sum(query[row, k].item() * key[m, k].item() for k in range(K)) / math.sqrt(K) for m in range(M)]
        total = sum(map(math.exp, scores))
        for column in range(VALUE):
            expected = sum(math.exp(scores[m]) / total * value[m, column].item() for m in range(M))
            assert found[row, column].item() == pytest.approx(expected, abs=1e-12)


# Several heads


def copied_from_torch(heads=2):
    theirs = nn.MultiheadAttention(D, heads, batch_first=True, dtype=torch.float64)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = MultiHeadAttention(D, heads).double()
    ours.w_qkv.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    ours.w_o.load_state_dict(theirs.out_proj.state_dict())
    return ours, theirs


def test_self_attention_is_that_of_pytorch():
    ours, theirs = copied_from_torch()
    x = torch.randn(B, M, D, dtype=torch.float64)
    hidden = ~KEEP_PADDING[:, 0, 0]
    expected, expected_weights = theirs(x, x, x, key_padding_mask=hidden, average_attn_weights=False)
    listened = []
    assert torch.allclose(ours(x, reach=KEEP_PADDING), expected, rtol=0, atol=1e-12)
    ours.inside.register_forward_hook(lambda _, __, inside: listened.append(inside.weights_BHLM))
    assert torch.allclose(ours(x, reach=KEEP_PADDING), expected, rtol=0, atol=1e-12)
    assert torch.allclose(listened[0], expected_weights, rtol=0, atol=1e-12)


def test_cross_attention_is_that_of_pytorch():
    ours, theirs = copied_from_torch(heads=4)
    x, memory = torch.randn(B, L, D, dtype=torch.float64), torch.randn(B, M, D, dtype=torch.float64)
    expected = theirs(x, memory, memory, key_padding_mask=~KEEP_PADDING[:, 0, 0], need_weights=False)[0]
    assert torch.allclose(ours(x, memory, KEEP_PADDING), expected, rtol=0, atol=1e-12)


def test_causal_self_attention_is_that_of_pytorch():
    ours, theirs = copied_from_torch()
    x = torch.randn(B, L, D, dtype=torch.float64)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    expected = theirs(x, x, x, attn_mask=future, need_weights=False)[0]
    assert torch.allclose(ours(x, reach=Reach(causal=True)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("d_key", "d_value", "widths"), [(0, 0, (4, 4)), (5, 0, (5, 5)), (3, 7, (3, 7)), (0, 6, (4, 6))]
)
def test_widths_of_keys_and_values_are_free(d_key, d_value, widths):
    attention = MultiHeadAttention(D, heads=2, d_key=d_key, d_value=d_value).double()
    key_width, value_width = widths
    assert attention.w_qkv.weight.shape == (2 * (2 * key_width + value_width), D)
    assert attention.w_o.weight.shape == (D, 2 * value_width)
    x, memory = torch.randn(B, L, D, dtype=torch.float64), torch.randn(B, M, D, dtype=torch.float64)
    nn.init.normal_(attention.w_qkv.bias)
    w_q, w_k, w_v = attention.w_qkv.weight.split([2 * key_width, 2 * key_width, 2 * value_width])
    b_q, b_k, b_v = attention.w_qkv.bias.split([2 * key_width, 2 * key_width, 2 * value_width])
    heads = []
    for head in range(2):
        k, v = slice(head * key_width, (head + 1) * key_width), slice(head * value_width, (head + 1) * value_width)
        query, key, value = x @ w_q[k].T + b_q[k], memory @ w_k[k].T + b_k[k], memory @ w_v[v].T + b_v[v]
        heads.append((query @ key.transpose(1, 2) / math.sqrt(key_width)).softmax(-1) @ value)
    expected = torch.cat(heads, -1) @ attention.w_o.weight.T + attention.w_o.bias
    torch.testing.assert_close(attention(x, memory), expected, rtol=0, atol=1e-12)


def test_a_sequence_as_its_own_memory_is_self_attention():
    attention = MultiHeadAttention(D, heads=2).double()
    x = torch.randn(B, L, D, dtype=torch.float64)
    torch.testing.assert_close(attention(x), attention(x, x), rtol=0, atol=1e-12)


def test_any_vectors_will_do():
    """Pictures' patches, sensor readings: no token, no embedding, no mask."""
    attention = MultiHeadAttention(16, heads=4)
    assert attention(torch.randn(1, 9, 16)).shape == (1, 9, 16)
    assert attention(torch.randn(3, 2, 16), torch.randn(3, 11, 16)).shape == (3, 2, 16)


@pytest.mark.parametrize(
    ("memory", "keep", "words"),
    [
        ((2, 5, 12), None, ["memory has shape 2 x 5 x 12", "x 16 "]),
        ((3, 5, 16), None, ["query 2 x 4 x 16", "memory 3 x 5 x 16"]),
        ((5, 16), None, ["5 x 16", "expected batch x length x 16"]),
        ((2, 5, 16), (2, 1, 4, 6), ["2 x 1 x 4 x 6", "2 x 4 x 4 x 5"]),
        (None, (3, 1, 4, 4), ["3 x 1 x 4 x 4", "2 x 4 x 4 x 4"]),
    ],
)
def test_a_memory_or_mask_that_does_not_fit_is_named_with_both_shapes(memory, keep, words):
    attention = MultiHeadAttention(16, heads=4)
    mask = None if keep is None else torch.ones(keep, dtype=torch.bool)
    with pytest.raises(ValueError, match=words[0]) as caught:
        attention(torch.ones(2, 4, 16), None if memory is None else torch.ones(memory), mask)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_query_that_does_not_fit_is_named_with_both_widths():
    with pytest.raises(ValueError, match=r"query has shape 2 x 4 x 12: .* x 16 "):
        MultiHeadAttention(16, heads=4)(torch.ones(2, 4, 12))


@pytest.mark.parametrize(
    ("query", "key", "value", "keep", "words"),
    [
        ((4, 8), (5, 6), (5, 3), None, ["query 4 x 8", "key 5 x 6", "the same width"]),
        ((4, 8), (5, 8), (6, 3), None, ["key 5 x 8", "value 6 x 3", "the same length"]),
        ((2, 4, 8), (3, 5, 8), (3, 5, 8), None, ["2 x 4 x 8", "3 x 5 x 8"]),
        ((4, 8), (5, 8), (5, 3), (4, 4), ["4 x 4", "4 x 5"]),
    ],
)
def test_queries_keys_values_and_masks_that_do_not_fit(query, key, value, keep, words):
    mask = None if keep is None else torch.ones(keep, dtype=torch.bool)
    with pytest.raises(ValueError, match=words[0]) as caught:
        scaled_dot_product_attention(torch.ones(query), torch.ones(key), torch.ones(value), mask)
    assert [word for word in words if word not in str(caught.value)] == []


def test_checking_shapes_does_not_import_sympy():
    """PyTorch's `broadcast_shapes` does, which takes 0.3 s, and more than a second if the disk is slow."""
    code = """
import sys, torch
from seq2see.model.attention import scaled_dot_product_attention
scaled_dot_product_attention(*torch.ones(3, 2, 4), torch.ones(2, 2, dtype=torch.bool))
sys.exit("sympy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_memory_may_serve_a_whole_batch():
    attention, query = MultiHeadAttention(16, heads=4), torch.randn(3, 4, 16)
    memory = torch.randn(1, 5, 16)
    together = attention(query, memory, torch.ones(3, 1, 1, 5, dtype=torch.bool))
    assert torch.allclose(together, attention(query, memory.expand(3, 5, 16)), atol=1e-6)


def test_glorot_bounds_are_those_of_three_separate_matrices():
    attention = MultiHeadAttention(64, heads=4)
    bound = math.sqrt(6 / (64 + 64))
    for part in (*attention.w_qkv.weight.split(64), attention.w_o.weight):
        assert 0.97 * bound < part.abs().max().item() <= bound
    assert not attention.w_qkv.bias.any()
    assert not attention.w_o.bias.any()


# Packed sequences

some_lengths = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(some_lengths)
@settings(deadline=None, max_examples=40)
def test_padding_then_packing_gives_the_rows_back(lengths):
    layout = packing(*lengths)
    x_ND = torch.arange(sum(lengths) * 3.0).view(-1, 3) + 1
    rectangle = layout.pad(x_ND)
    assert rectangle.shape == (len(lengths), max(lengths), 3)
    assert torch.equal(layout.pack(rectangle), x_ND)
    first = 0
    for row, length in zip(rectangle, lengths, strict=True):
        assert torch.equal(row[:length], x_ND[first : first + length])
        first += length
    assert layout.places_N.tolist() == [place for length in lengths for place in range(length)]
    if layout.keep_BL is not None:
        assert layout.keep_BL.sum(1).tolist() == lengths
    else:
        assert len(set(lengths)) == 1


def test_gradients_pass_through_padding_and_packing():
    layout = packing(2, 0, 3)
    x_ND = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    x_BLD = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x_ND: layout.pack(layout.pad(x_ND)), (x_ND,))
    assert torch.autograd.gradcheck(layout.pack, (x_BLD,))


def test_no_gradient_comes_from_the_padding():
    layout = packing(2, 0, 3)
    x_ND = torch.randn(5, 2, requires_grad=True)
    layout.pad(x_ND).sum().backward()
    assert torch.equal(x_ND.grad, torch.ones(5, 2))


@given(some_lengths.filter(any))
@settings(deadline=None, max_examples=20)
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_and_rectangle_agree(causal, rotary, lengths):
    torch.manual_seed(2)
    attention = MultiHeadAttention(D, heads=2, rotary=rotary).double()
    layout = packing(*lengths)
    x_ND = torch.randn(sum(lengths), D, dtype=torch.float64)
    x_BLD = layout.pad(x_ND)
    tokens_BL = torch.arange(max(lengths)) < layout.lengths[:, None]
    keep = keep_past(tokens_BL) if causal else keep_padding(tokens_BL)
    packed = attention(x_ND, reach=Reach.packed(layout, layout, causal))
    torch.testing.assert_close(packed, layout.pack(attention(x_BLD, reach=keep)), rtol=0, atol=1e-12)


def test_packed_cross_attention_is_each_sentence_alone():
    attention = MultiHeadAttention(D, heads=2, d_key=3, d_value=5).double()
    queries, keys = (3, 1, 2), (2, 5, 4)
    x, memory = torch.randn(6, D, dtype=torch.float64), torch.randn(11, D, dtype=torch.float64)
    packed = attention(x, memory, Reach.packed(packing(*queries), packing(*keys)))
    alone = [
        attention(one[None], other[None])[0] for one, other in zip(x.split(queries), memory.split(keys), strict=True)
    ]
    torch.testing.assert_close(packed, torch.cat(alone), rtol=0, atol=1e-12)


def test_queries_whose_memory_is_empty_get_the_bias_alone():
    attention = MultiHeadAttention(D, heads=2)
    nn.init.normal_(attention.w_o.bias)
    found = attention(torch.randn(3, D), torch.randn(4, D), Reach.packed(packing(1, 2), packing(4, 0)))
    torch.testing.assert_close(found[1:], attention.w_o.bias.detach().expand(2, D))


# One step at a time


@pytest.mark.parametrize("rotary", [False, True])
def test_steps_equal_all_positions_at_once(rotary):
    length = 35  # beyond the room that is made at first, and beyond its first doubling
    attention = MultiHeadAttention(D, heads=2, d_value=3, rotary=rotary)
    x = torch.randn(B, length, D)
    at_once = attention(x, reach=Reach(causal=True))
    past = Past()
    for place in range(length):
        torch.testing.assert_close(attention.step(x[:, place], past), at_once[:, place], rtol=0, atol=2e-6)
    assert past.length == length


def test_steps_across_look_at_each_memory_once():
    attention = MultiHeadAttention(D, heads=2, d_value=3).double()
    layout, W = packing(2, 4), 3
    memory, x_RD = torch.randn(6, D, dtype=torch.float64), torch.randn(2 * W, D, dtype=torch.float64)
    key, value = attention.start(memory, layout)
    assert (key.shape, value.shape) == ((2, 2, 4, 4), (2, 2, 4, 3))
    found = attention.step_across(x_RD, key, value, layout.keep_BL[:, None, None])
    expected = [attention(x_RD[:W][None], memory[:2][None])[0], attention(x_RD[W:][None], memory[2:][None])[0]]
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-12)


# Rotation


def test_rotated_dot_products_depend_on_the_distance_alone():
    query, key = torch.randn(K), torch.randn(K)
    turned_query, turned_key = rotate(query.expand(1, 1, 9, K)), rotate(key.expand(1, 1, 9, K))
    products = (turned_query @ turned_key.transpose(-2, -1))[0, 0]
    for distance in range(-8, 9):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand(len(diagonal)), rtol=0, atol=1e-5)
    assert products[0].std() > 0.01, "and it does depend on that"
    torch.testing.assert_close(products[0, 0], query @ key, rtol=0, atol=1e-5)


def test_rotation_turns_pairs_of_columns_by_the_angles_of_the_waves():
    x = torch.randn(1, 1, 4, 6)
    turned = rotate(x)
    for place in range(4):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 6)
            a, b = x[0, 0, place, 2 * pair : 2 * pair + 2].tolist()
            expected = (a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle))
            assert turned[0, 0, place, 2 * pair : 2 * pair + 2].tolist() == pytest.approx(expected, abs=1e-6)


def test_rotation_keeps_lengths_and_may_begin_anywhere():
    x = torch.randn(2, 3, 9, 6)
    torch.testing.assert_close(rotate(x).norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(rotate(x[:, :, 5:], first=5), rotate(x)[:, :, 5:])


@pytest.mark.parametrize("shape", [(1, 1, 9000, 16), (70, 4, 31, 24), (3, 2, 5000, 16)])
def test_large_tensors_are_rotated_in_parts(shape):
    """The parts, along whichever dimension is the longest, are those of one complex product."""
    x = torch.randn(shape, requires_grad=True)
    turns = layers._turns(1 << shape[2].bit_length(), shape[3], x.device, x.dtype)[: shape[2]]
    whole = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)
    assert x.numel() > 2 * layers.UNDIVIDED
    torch.testing.assert_close(rotate(x), whole)
    gradients = [torch.autograd.grad(turned.square().cumsum(-1).sum(), x)[0] for turned in (rotate(x), whole)]
    torch.testing.assert_close(*gradients)


def test_training_may_follow_inference():
    """What `rotate` keeps between calls must not be bound to the mode in which it was first made."""
    attention = MultiHeadAttention(44, heads=2, rotary=True)  # a width that no other test has met
    x = torch.randn(1, 3, 44)
    with torch.inference_mode():
        attention(x)
    attention(x).sum().backward()
    assert attention.w_qkv.weight.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_with_one_for_hidden_is_refused_with_the_way_to_convert_it(dtype):
    """A mask of the tutorials would hide what it means to show."""
    tokens = torch.tensor([[1, 21, 777, 0, 0]])
    hidden = (tokens == 0)[:, None, None, :].to(dtype)
    x = torch.randn(1, 5, 8)
    for attention in (MultiHeadAttention(8, heads=2), EncoderLayer(LayerShape(d_model=8, heads=2, d_ff=16))):
        with pytest.raises(ValueError, match=r"true means visible.*seq2see\.keep_unless"):
            attention(x, reach=hidden)
    with pytest.raises(ValueError, match=r"true means visible.*seq2see\.keep_unless"):
        scaled_dot_product_attention(x, x, x, hidden[0])
    assert keep_unless(hidden).equal(keep_padding(tokens))


def test_a_mask_in_which_one_means_hidden_is_converted():
    look_ahead = torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0.0]])  # create_look_ahead_mask of [[1, 2, 3]]
    assert keep_unless(look_ahead).equal(keep_past(torch.tensor([[1, 2, 3]]))[0, 0])
    assert keep_unless(torch.tensor([True, False])).tolist() == [False, True]
    assert keep_unless([0, 1]).tolist() == [True, False]
    with pytest.raises(ValueError, match=r"from -1e\+09 to -?0.*mask == 0"):
        keep_unless(look_ahead * -1e9)
