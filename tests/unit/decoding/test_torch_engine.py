"""Weights laid out for decoding: the same model, transposed or in int8."""

import pytest
import torch
from torch import nn

from seq2see.decoding.torch_engine import Int8Linear, TorchEngine, for_decoding
from seq2see.errors import SettingError
from seq2see.model.attention import Projection
from seq2see.model.transformer import Transformer
from seq2see.run import Run

SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 8, "heads": 2, "d_ff": 12}


def model(**options) -> Transformer:
    torch.manual_seed(1)
    return Transformer(11, 11, **(SIZES | options)).eval()


def scores(of: Transformer) -> torch.Tensor:
    source, inputs = torch.tensor([[4, 5, 6, 3]]), torch.tensor([[2, 7, 8]])
    with torch.no_grad():
        return of(source, inputs)


@pytest.mark.parametrize("tie", ["all", "none"])
def test_float32_says_the_same_and_leaves_the_model_alone(tie):
    ours = model(tie=tie)
    before = {name: weight.clone() for name, weight in ours.named_parameters()}
    laid_out = for_decoding(ours)
    torch.testing.assert_close(scores(laid_out), scores(ours), rtol=0, atol=1e-6)
    assert laid_out.decoder[0].feed_forward.w_1.weight.t().is_contiguous(), "stored by columns"
    assert laid_out.output.weight.t().is_contiguous()
    assert laid_out.source_embedding.tokens.weight.is_contiguous(), "rows are looked up here"
    for name, weight in ours.named_parameters():
        assert weight.is_contiguous()
        assert torch.equal(weight, before[name])
    assert (ours.output.weight is ours.target_embedding.tokens.weight) == (tie == "all")


def test_int8_is_close_and_every_linear_layer_is_in_it():
    ours = model()
    quantized = for_decoding(ours, "int8")
    assert not [layer for layer in quantized.modules() if type(layer) in (nn.Linear, Projection)]
    expected, found = scores(ours), scores(quantized)
    assert not torch.equal(found, expected)
    assert (found - expected).abs().max() < 0.1 * expected.std()


def test_a_row_in_int8_does_not_depend_on_the_others():
    torch.manual_seed(2)
    layer = Int8Linear(nn.Linear(24, 7))
    x = torch.randn(9, 24) * torch.logspace(-3, 3, 9)[:, None]
    together = layer(x)
    for row, answer in zip(x, together, strict=True):
        assert torch.equal(layer(row[None])[0], answer)


def test_int8_rounds_to_a_127th_of_the_largest():
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = torch.tensor([[127.0, 1.4, 0.6], [0.0, 0.0, 0.0]])
    found = Int8Linear(layer)(torch.tensor([[127.0, 10.4, 100.0]]))
    assert found.tolist() == [pytest.approx([127 * 127 + 1 * 10 + 1 * 100, 0])]  # 1.4, 0.6 and 10.4 are rounded


def test_some_rows_of_a_projection():
    torch.manual_seed(3)
    whole = Projection(6, 10)
    quantized = Int8Linear(whole)
    x = torch.randn(2, 4, 6)
    for rows in (slice(4), slice(4, None)):
        torch.testing.assert_close(whole(x, rows), whole(x)[..., rows])
        torch.testing.assert_close(quantized(x, rows), quantized(x)[..., rows])


def test_zeros_stay_zeros():
    layer = Int8Linear(nn.Linear(4, 3))
    assert torch.equal(layer(torch.zeros(2, 4)), layer.bias.expand(2, 3))


def test_unknown_precision():
    with pytest.raises(SettingError, match=r"--precision int9: unknown. Did you mean 'int8'\?"):
        for_decoding(model(), "int9")


def test_whoever_listens_to_the_model_hears_it_and_no_copy():
    ours = model()
    heard = []
    handle = ours.decoder[0].cross_attention.inside.register_forward_hook(lambda *passed: heard.append(passed))
    assert for_decoding(ours) is ours
    laid_out = for_decoding(ours, "int8")
    handle.remove()
    scores(laid_out)
    assert heard == []
    assert not laid_out.decoder[0].cross_attention.inside._forward_hooks


def test_whole_numbers_are_multiplied_exactly():
    """The largest that can be, in the longest sums: nothing saturates on this processor."""
    torch.manual_seed(4)
    a = torch.randint(0, 2, (3, 2048)).mul(254).sub(127).to(torch.int8)
    b = torch.randint(0, 2, (2048, 5)).mul(254).sub(127).to(torch.int8)
    for left, right in ((a, b), (torch.full_like(a, 127), torch.full_like(b, 127))):
        assert torch.equal(torch._int_mm(left, right).long(), left.long() @ right.long())


def test_with_several_threads_the_search_goes_on_without_dropped_sentences(trained):
    run = Run(trained)
    engine, before = run.engine("torch"), torch.get_num_threads()
    assert isinstance(engine, TorchEngine)
    engine.watch = lambda step: {0}
    torch.set_num_threads(2)
    try:
        dropped, found = run.search(["abcdefgh", "cab"], 3, engine=engine)
    finally:
        torch.set_num_threads(before)
        engine.watch = None
    assert (len(dropped.translations), found.text) == (0, "CAB")
