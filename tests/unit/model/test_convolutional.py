"""The convolutional baseline keeps the contract of every model, and is what its paper says."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from seq2see import special
from seq2see.config import Decoding, Model, resolve
from seq2see.decoding import search
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.lens.capture import capture
from seq2see.lens.heads import Head, switched_off
from seq2see.lens.intervention import changed
from seq2see.model.build import as_large, build, count_parameters
from seq2see.model.convolutional import Convolutional, Window
from seq2see.model.packing import Packing

V = 13
SOURCE = torch.tensor([[8, 9, 3, 0, 0], [4, 5, 6, 7, 3]])
INPUTS = torch.tensor([[2, 4, 0], [2, 11, 12]])
SOURCE_N, OFFSETS = torch.tensor([8, 9, 3, 4, 5, 6, 7, 3]), torch.tensor([0, 3, 8])
every_kernel = pytest.mark.parametrize("kernel", [1, 2, 3, 5])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def convolutional(source=V, target=V, **options):
    sizes = {"encoder_layers": 3, "decoder_layers": 2, "d_model": 8, "d_hidden": 6, "max_positions": 10, "dropout": 0.0}
    return Convolutional(source, target, **(sizes | options))


@every_kernel
@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_every_option_runs_and_teaches_every_weight(kernel, tie):
    vocabularies = (V, V) if tie == "all" else (10, V)
    model = convolutional(*vocabularies, kernel=kernel, tie=tie, output_bias=True)
    logits = model(SOURCE, INPUTS)
    assert logits.shape == (2, 3, V)
    assert not logits[0, 2].any()
    logits.logsumexp(-1).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), f"{name} has no influence"


@every_kernel
@pytest.mark.parametrize(("d_model", "d_hidden"), [(8, 6), (8, 0), (5, 12)])
def test_weights_are_counted_without_making_them(kernel, d_model, d_hidden):
    sizes = {"encoder_layers": 3, "decoder_layers": 2, "d_model": d_model, "d_hidden": d_hidden, "kernel": kernel}
    more = {"architecture": "convolutional", "tie": "decoder", "output_bias": True, "max_positions": 300}
    settings = resolve({"model": {**sizes, **more}, "data": {"shared": False}}).model
    built = build(settings, 11, V)
    assert isinstance(built, Convolutional)
    assert count_parameters(settings, 11, V) == sum(weight.numel() for weight in built.parameters())


@pytest.mark.parametrize("architecture", ["rnn", "rnn-bidirectional", "rnn-dot", "rnn-general", "convolutional"])
@pytest.mark.parametrize("parameters", [1, 300_000, 5_000_000, 10**9])
def test_a_width_is_found_for_a_number_of_parameters(architecture, parameters):
    settings = Model(architecture=architecture, d_model=64, max_positions=300)
    widths = range(4, 2000, 4)
    sizes = [
        count_parameters(Model(architecture=architecture, d_model=64, max_positions=300, d_hidden=width), 0, 0)
        for width in widths
    ]
    nearest = min(range(len(sizes)), key=lambda place: abs(sizes[place] - parameters))
    assert as_large(settings, parameters, widths).d_hidden == widths[nearest]


@every_kernel
def test_a_sentence_says_the_same_alone_and_among_others(kernel):
    """Neither the padding nor the sentences around it change a number."""
    model = convolutional(kernel=kernel).double().eval()
    together = model(SOURCE, INPUTS)
    first, second = model(SOURCE[:1, :3], INPUTS[:1, :2]), model(SOURCE[1:], INPUTS[1:])
    torch.testing.assert_close(together[:1, :2], first, rtol=0, atol=1e-13)
    torch.testing.assert_close(together[1:], second, rtol=0, atol=1e-13)
    wider = model(F.pad(SOURCE, (0, 3)), F.pad(INPUTS, (0, 2)))
    torch.testing.assert_close(wider[:, :3], together, rtol=0, atol=1e-13)
    torch.testing.assert_close(model(SOURCE.flip(0), INPUTS.flip(0)).flip(0), together, rtol=0, atol=1e-13)


@every_kernel
def test_no_position_sees_its_future(kernel):
    """Another token at place t changes the scores at t and after it, and those before it not in a single bit."""
    model = convolutional(kernel=kernel).double().eval()
    source, inputs = SOURCE[1:], torch.tensor([[2, 11, 12, 4, 9]])
    before = model(source, inputs)
    for place in range(5):
        other = inputs.clone()
        other[0, place] = 10
        after = model(source, other)
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.isclose(after[:, place], before[:, place]).any()


def test_how_far_a_stack_reads():
    """Three layers of kernel 3: a token of the encoder knows three neighbours on each side, and no more."""
    model = convolutional(max_positions=20).double().eval()
    source_N = torch.arange(4, 13)
    before = model.encode(source_N, torch.tensor([0, 9])).states_ND
    other = source_N.clone()
    other[4] = 3
    after = model.encode(other, torch.tensor([0, 9])).states_ND
    assert (before != after).any(-1).tolist() == [False, True, True, True, True, True, True, True, False]


@every_kernel
def test_step_by_step_is_the_same_as_teacher_forcing(kernel):
    model = convolutional(kernel=kernel).double().eval()
    memory = model.encode(SOURCE_N, OFFSETS)
    inputs = torch.tensor([[2, 4, 9, 5, 6, 8], [2, 11, 12, 4, 4, 7]])
    forced_BTV = model.output(model.decode(inputs.flatten(), torch.tensor([0, 6, 12]), memory)).view(2, 6, V)
    state = model.start(memory)
    for place in range(6):
        torch.testing.assert_close(model.step(inputs[:, place], state), forced_BTV[:, place], rtol=0, atol=1e-13)
    assert all(past.shape == (2, kernel - 1, 6) for past in state.pasts), "no more is kept than a layer reads"


@every_kernel
def test_a_hypothesis_goes_on_from_its_parent_and_sentences_leave(kernel):
    """Rows that changed places, and a sentence that ended, leave the others with the numbers of their own history."""
    model = convolutional(kernel=kernel).double().eval()
    state = model.start(model.encode(SOURCE_N, OFFSETS))
    model.step(torch.full((6,), special.BEGIN), state)
    state.select(torch.tensor([[0, 0, 0], [0, 0, 0]]))
    model.step(torch.tensor([4, 5, 6, 7, 8, 9]), state)
    state.keep_sentences(torch.tensor([1]))
    state.select(torch.tensor([[2, 2, 0]]))
    scores_RV = model.step(torch.tensor([10, 11, 12]), state)
    alone = model.encode(SOURCE_N[3:], torch.tensor([0, 5]))
    for row, history in enumerate(([2, 9, 10], [2, 9, 11], [2, 7, 12])):
        hidden_ND = model.decode(torch.tensor(history), torch.tensor([0, 3]), alone)
        torch.testing.assert_close(scores_RV[row], model.output(hidden_ND)[-1], rtol=0, atol=1e-13)


@every_kernel
@pytest.mark.parametrize("beam", [1, 4])
def test_searches_know_nothing_of_it(kernel, beam):
    """The same hypotheses in any batch, and a score that teacher forcing confirms."""
    model = convolutional(kernel=kernel).eval()
    tasks = [Task([4, 5, 6, 7, 3], 6, []), Task([8, 3], 4, [9]), Task([9, 9, 10, 3], 6, [])]
    engine = TorchEngine(model)
    for task, found in zip(tasks, engine.search(tasks, Decoding(beam=beam)), strict=True):
        (alone,) = engine.search([task], Decoding(beam=beam))
        assert [each.tokens for each in alone] == [each.tokens for each in found]
        labels = [*found[0].tokens, special.END][: task.limit]
        logits = model(torch.tensor([task.source]), torch.tensor([[special.BEGIN, *labels[:-1]]]))[0].detach()
        logits[:, search.NEVER] = -torch.inf
        total = logits.log_softmax(-1).gather(1, torch.tensor(labels)[:, None]).sum()
        assert found[0].log_probability == pytest.approx(float(total), abs=1e-4)
        assert found[0].tokens[: len(task.prefix)] == task.prefix


def test_neighbours_of_packed_rows():
    """Sequences of 2, 1 and 3 rows: what lies outside of a sequence is zero, not a row of the next one."""
    packing = Packing(torch.tensor([0, 2, 3, 6]), torch.device("cpu"))
    around = Window.of(packing, range(-1, 2)).around(torch.arange(1.0, 7)[:, None])
    assert around.tolist() == [[0, 1, 2], [1, 2, 0], [0, 3, 0], [0, 4, 5], [4, 5, 6], [5, 6, 0]]
    before = Window.of(packing, range(-3, 1)).around(torch.arange(1.0, 7)[:, None])
    assert before[-1].tolist() == [0, 4, 5, 6]
    assert before[2].tolist() == [0, 0, 0, 3]


@torch.no_grad()
def test_one_layer_is_the_convolution_of_pytorch():
    """Zeros around the sequence, a gated linear unit, and the residual connection, times sqrt(0.5)."""
    model = convolutional(kernel=3).double().eval()
    layer, x_ND = model.encoder[0], torch.randn(5, 6, dtype=torch.float64)
    packing = Packing(torch.tensor([0, 5]), torch.device("cpu"))
    weight = layer.convolution.w.weight.view(12, 3, 6).transpose(1, 2)
    convolved = F.glu(F.conv1d(x_ND.T[None], weight, layer.convolution.w.bias, padding=1), 1)[0].T
    torch.testing.assert_close(layer(x_ND, Window.of(packing, range(-1, 2))), (convolved + x_ND) * math.sqrt(0.5))


@torch.no_grad()
def test_the_attention_of_a_layer_by_hand():
    """The query has the embedding in it, the values have the source embeddings in them; three source tokens."""
    model = convolutional(d_model=4, d_hidden=6).double().eval()
    memory = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3]))
    embedded = model.source_embedding(torch.tensor([4, 5, 3]), torch.arange(3), 3)
    torch.testing.assert_close(memory.values_ND, (memory.states_ND + embedded) * math.sqrt(0.5))
    attention, state = model.decoder[0].cross_attention, model.start(memory)
    x_RD, embedded_RK = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    query = (attention.w_q(x_RD) + embedded_RK) * math.sqrt(0.5)
    weights = (query @ memory.states_ND.T / math.sqrt(4)).softmax(-1)
    expected = attention.w_o(weights @ memory.values_ND * math.sqrt(3))
    torch.testing.assert_close(attention(x_RD, embedded_RK, state.attended), expected)


def test_gradients_are_those_of_finite_differences():
    """The mean of scores, differentiated by every weight of a tiny model."""
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 3, "d_hidden": 4, "max_positions": 4, "tie": "none"}
    model = convolutional(5, 7, **sizes).double()
    source, inputs = torch.tensor([[2, 4, 3], [3, 0, 0]]), torch.tensor([[2, 0], [5, 6]])

    def score(*given):
        named = dict(zip(dict(model.named_parameters()), given, strict=True))
        return torch.func.functional_call(model, named, (source, inputs)).square().mean()

    assert torch.autograd.gradcheck(score, list(model.parameters()), fast_mode=True)


def test_the_scale_of_activations_stays():
    """With dropout or without, states of 8 layers are about as large as those of one."""
    for dropout in (0.0, 0.3):
        model = convolutional(d_model=128, d_hidden=192, encoder_layers=8, decoder_layers=8, dropout=dropout)
        with torch.no_grad(), capture(model, lambda name: name.endswith(".states")) as seen:
            model(torch.randint(1, V, (8, 9)), torch.randint(1, V, (8, 7)))
        for name, (states,) in seen.items():
            assert 0.7 < float(states.std()) < (2 if name.startswith("encoder") else 6), (name, dropout)


def test_attention_is_heard_as_one_head_of_each_layer():
    """Rows of real tokens sum to 1, hidden cells are exactly 0, and listening changes nothing."""
    model = convolutional().double().eval()
    before = model(SOURCE, INPUTS)
    with torch.no_grad(), capture(model) as seen:
        during = model(SOURCE, INPUTS)
    torch.testing.assert_close(during, before, rtol=0, atol=1e-14)
    for layer in range(2):
        (weights,) = seen[f"decoder.{layer}.cross_attention.weights"]
        assert weights.shape == (2, 1, 3, 5)
        torch.testing.assert_close(weights[1].sum(-1), torch.ones(1, 3, dtype=torch.float64))
        assert not weights[0, :, :, 3:].any(), "the padding of the shorter source"
        assert seen[f"decoder.{layer}.convolution.gate"][0].shape == (5, 6)
        assert seen[f"decoder.{layer}.states"][0].shape == (5, 6)
    assert [seen[f"encoder.{layer}.states"][0].shape for layer in range(3)] == [(8, 6)] * 3
    assert seen["encoder_norm"][0].shape == (8, 8)
    torch.testing.assert_close(model.output(seen["decoder_norm"][0]), seen["logits"][0])


def test_a_search_is_heard_step_by_step_and_heads_can_be_switched_off():
    model = convolutional().double().eval()
    memory = model.encode(SOURCE_N, OFFSETS)
    with torch.no_grad(), capture(model) as seen:
        state = model.start(memory)
        steps = [model.step(torch.full((6,), special.BEGIN), state) for _ in range(2)]
    assert [each.shape for each in seen["decoder.1.cross_attention.weights"]] == [(2, 1, 3, 5)] * 2
    with torch.no_grad(), switched_off(model, [Head("cross", layer, 0) for layer in range(2)]):
        blind = model.step(torch.full((6,), special.BEGIN), model.start(memory))
        assert torch.equal(blind[0], blind[3]), "without attention it knows nothing of the source"
    assert not torch.equal(steps[0][0], steps[0][3])


def test_activations_can_be_changed():
    model = convolutional().double().eval()
    before = model(SOURCE, INPUTS)
    for name in ("encoder_norm", "decoder.0.cross_attention.weights", "encoder.1.convolution.gate", "decoder.1.states"):
        with changed(model, {name: torch.zeros_like}):
            assert not torch.allclose(model(SOURCE, INPUTS), before), name
    assert torch.equal(model(SOURCE, INPUTS), before)


def test_options_change_the_answer():
    """No option may be read and forgotten: the same seed with another option gives other numbers."""
    answers = []
    for options in ({}, {"kernel": 2}, {"encoder_layers": 2}, {"decoder_layers": 1}, {"d_hidden": 10}, {"tie": "none"}):
        torch.manual_seed(1)
        answers.append(convolutional(**options).eval()(SOURCE, INPUTS))
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(answers, 2))


def test_dropout_only_while_training():
    model = convolutional(dropout=0.5)
    assert not torch.equal(model(SOURCE, INPUTS), model(SOURCE, INPUTS))
    model.eval()
    assert torch.equal(model(SOURCE, INPUTS), model(SOURCE, INPUTS))
