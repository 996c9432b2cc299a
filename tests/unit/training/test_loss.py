import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seq2see import special
from seq2see.training import loss
from seq2see.training.loss import smoothed_cross_entropy

N, D, V = 11, 6, 9


@pytest.fixture(params=[4_000_000, 4 * V, 1], ids=["one chunk", "chunks of four rows", "row by row"])
def _chunks(request, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_NUMBERS", request.param)


def case(bias=True, seed=1):
    torch.manual_seed(seed)
    output = nn.Linear(D, V, bias=bias)
    labels = torch.randint(1, V, (N,))
    labels[[2, 5, 10]] = special.PAD
    return torch.randn(N, D, requires_grad=True), output, labels


def by_pytorch(hidden, output, labels, smoothing):
    return F.cross_entropy(output(hidden), labels, ignore_index=special.PAD, label_smoothing=smoothing, reduction="sum")


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_value_and_gradients_are_those_of_pytorch(smoothing, bias):
    hidden, output, labels = case(bias)
    leaves = [hidden, *output.parameters()]
    expected = by_pytorch(hidden, output, labels, smoothing)
    torch.testing.assert_close(loss.written_out(output(hidden), labels, smoothing), expected, rtol=1e-5, atol=0)
    found = smoothed_cross_entropy(hidden, output, labels, smoothing)
    torch.testing.assert_close(found.total, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.plain, by_pytorch(hidden, output, labels, 0.0).detach(), rtol=1e-5, atol=0)
    assert found.tokens.item() == N - 3
    ours, theirs = torch.autograd.grad(found.total, leaves), torch.autograd.grad(expected, leaves)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_the_gradient_is_scaled_by_what_comes_after():
    """The loop divides once, by the token count: that must reach the weights."""
    hidden, output, labels = case()
    leaves = [hidden, *output.parameters()]
    whole = torch.autograd.grad(smoothed_cross_entropy(hidden, output, labels, 0.1).total, leaves)
    part = torch.autograd.grad(smoothed_cross_entropy(hidden, output, labels, 0.1).total / 8, leaves)
    for one, other in zip(whole, part, strict=True):
        torch.testing.assert_close(one / 8, other)


def test_the_gradient_goes_on_below_and_adds_up_in_tied_weights():
    """The output matrix is the embedding too: both uses must meet in one gradient."""
    _, output, labels = case(bias=False)
    tokens = torch.randint(0, V, (N,))
    found = smoothed_cross_entropy(output.weight[tokens].tanh(), output, labels, 0.1).total
    expected = by_pytorch(output.weight[tokens].tanh(), output, labels, 0.1)
    torch.testing.assert_close(
        *(torch.autograd.grad(each, output.weight)[0] for each in (found, expected)), rtol=1e-5, atol=1e-6
    )


def test_padding_gives_no_gradient():
    hidden, output, labels = case()
    smoothed_cross_entropy(hidden, output, labels, 0.1).total.backward()
    assert torch.equal(hidden.grad.any(-1), labels != special.PAD)


def test_only_padding_costs_nothing():
    hidden, output, labels = case()
    found = smoothed_cross_entropy(hidden, output, torch.full_like(labels, special.PAD), 0.1)
    found.total.backward()
    assert (found.total.item(), found.tokens.item()) == (0, 0)
    assert not any(leaf.grad.any() for leaf in (hidden, *output.parameters()))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_numbers_are_the_same(mode):
    hidden, output, labels = case()
    expected = smoothed_cross_entropy(hidden, output, labels, 0.1)
    with mode():
        found = smoothed_cross_entropy(hidden, output, labels, 0.1)
    assert not found.total.requires_grad
    assert (found.total.item(), found.plain.item()) == (expected.total.item(), expected.plain.item())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_none_is_computed(mode):
    """Validation pays for one product with the output matrix, not for those of the gradients."""
    hidden, output, labels = case()
    with mode(), FlopCounterMode(display=False) as counter:
        smoothed_cross_entropy(hidden, output, labels, 0.1)
    assert counter.get_total_flops() == 2 * N * D * V


def test_the_loss_without_smoothing_is_not_differentiable():
    hidden, output, labels = case()
    found = smoothed_cross_entropy(hidden, output, labels, 0.1)
    assert found.total.requires_grad
    assert not found.plain.requires_grad


def test_huge_scores_stay_finite():
    _, output, labels = case()
    hidden = torch.full((N, D), 1e4, requires_grad=True)
    found = smoothed_cross_entropy(hidden, output, labels, 0.1)
    found.total.backward()
    assert found.total.isfinite()
    assert hidden.grad.isfinite().all()


def test_half_precision_sums_in_full():
    hidden, output, labels = case()
    output, hidden = output.bfloat16(), hidden.detach().bfloat16().requires_grad_()
    found = smoothed_cross_entropy(hidden, output, labels, 0.1)
    found.total.backward()
    assert found.total.dtype == torch.float32
    assert (hidden.grad.dtype, output.weight.grad.dtype) == (torch.bfloat16, torch.bfloat16)
    expected = by_pytorch(hidden.float(), output.float(), labels, 0.1)
    torch.testing.assert_close(found.total, expected, rtol=0.01, atol=0)


def test_agreement_is_the_divergence_between_two_passes_over_the_same_rows():
    torch.manual_seed(1)
    hidden_ND, output = torch.randn(14, D, requires_grad=True), nn.Linear(D, V)
    labels_N = torch.tensor([5, 6, special.PAD, 7, 8, 1, 5]).repeat(2)
    found = smoothed_cross_entropy(hidden_ND, output, labels_N, 0.1, agreement=2.5)
    real_N = labels_N != special.PAD
    plain = nn.functional.cross_entropy(output(hidden_ND), labels_N, reduction="none", label_smoothing=0.1)
    one, other = output(hidden_ND).log_softmax(-1).chunk(2)
    apart = ((one.exp() - other.exp()) * (one - other)).sum(-1) / 2
    expected = (plain * real_N).sum() / 2 + 2.5 * (apart * real_N[:7]).sum()
    torch.testing.assert_close(found.total, expected)
    assert found.tokens == 6
    weights = (hidden_ND, output.weight, output.bias)
    torch.testing.assert_close(torch.autograd.grad(found.total, weights), torch.autograd.grad(expected, weights))
