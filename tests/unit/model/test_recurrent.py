"""The recurrent baselines keep the contract of every model, and are what their papers say."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seq2see import special
from seq2see.config import Decoding, resolve
from seq2see.decoding import search
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.lens.capture import capture
from seq2see.model.build import build, count_parameters
from seq2see.model.packing import Packing
from seq2see.model.recurrent import (
    AdditiveAttention,
    DotAttention,
    GeneralAttention,
    Recurrent,
    by_sentence,
    by_time,
)

V = 13
SOURCE = torch.tensor([[8, 9, 3, 0, 0], [4, 5, 6, 7, 3]])
INPUTS = torch.tensor([[2, 4, 0], [2, 11, 12]])
KINDS = {
    "rnn": {"attention": "none", "bidirectional": False},
    "rnn-bidirectional": {"attention": "none"},
    "rnn-attention": {"attention": "additive"},
    "rnn-dot": {"attention": "dot"},
    "rnn-general": {"attention": "general"},
}
EACH = [
    {**KINDS[kind], "cell": cell, "encoder_layers": layers, "decoder_layers": layers}
    for kind, cell, layers in itertools.product(KINDS, ("lstm", "gru"), (1, 2))
]
attending = pytest.mark.parametrize("kind", ["rnn-attention", "rnn-dot", "rnn-general"])
every_kind = pytest.mark.parametrize("options", EACH, ids=lambda options: " ".join(map(str, options.values())))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def recurrent(source=V, target=V, **options):
    return Recurrent(source, target, **({"d_model": 8, "d_hidden": 6, "dropout": 0.0} | options))


@every_kind
@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_every_option_runs_and_teaches_every_weight(options, tie):
    model = recurrent(**options, tie=tie, output_bias=True)
    logits = model(SOURCE, INPUTS)
    assert logits.shape == (2, 3, V)
    assert not logits[0, 2].any()
    logits.logsumexp(-1).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), f"{name} has no influence"


@every_kind
@pytest.mark.parametrize(("d_model", "d_hidden"), [(8, 6), (8, 0), (5, 12)])
def test_weights_are_counted_without_making_them(options, d_model, d_hidden):
    sizes = options | {"d_model": d_model, "d_hidden": d_hidden, "tie": "decoder", "output_bias": True}
    kind = {"attention": sizes.pop("attention")} | {key: sizes.pop(key) for key in ("bidirectional",) if key in sizes}
    (architecture,) = [name for name, options in KINDS.items() if options == kind]
    settings = resolve({"model": {"architecture": architecture, **sizes}, "data": {"shared": False}}).model
    built = build(settings, 11, V)
    assert isinstance(built, Recurrent)
    assert count_parameters(settings, 11, V) == sum(weight.numel() for weight in built.parameters())


@every_kind
def test_a_sentence_says_the_same_alone_and_among_others(options):
    """Neither the padding nor the sentences around it change a number."""
    model = recurrent(**options).double().eval()
    together = model(SOURCE, INPUTS)
    first, second = model(SOURCE[:1, :3], INPUTS[:1, :2]), model(SOURCE[1:], INPUTS[1:])
    torch.testing.assert_close(together[:1, :2], first, rtol=0, atol=1e-14)
    torch.testing.assert_close(together[1:], second, rtol=0, atol=1e-14)
    wider = model(F.pad(SOURCE, (0, 3)), F.pad(INPUTS, (0, 2)))
    torch.testing.assert_close(wider[:, :3], together, rtol=0, atol=1e-14)
    torch.testing.assert_close(model(SOURCE.flip(0), INPUTS.flip(0)).flip(0), together, rtol=0, atol=1e-14)


@every_kind
def test_step_by_step_is_the_same_as_teacher_forcing(options):
    model = recurrent(**options).double().eval()
    source_N, offsets = torch.tensor([8, 9, 3, 4, 5, 6, 7, 3]), torch.tensor([0, 3, 8])
    memory = model.encode(source_N, offsets)
    inputs = torch.tensor([[2, 4, 9, 5], [2, 11, 12, 4]])
    forced_BTV = model.output(model.decode(inputs.flatten(), torch.tensor([0, 4, 8]), memory)).view(2, 4, V)
    state = model.start(memory)
    for place in range(4):
        torch.testing.assert_close(model.step(inputs[:, place], state), forced_BTV[:, place], rtol=0, atol=1e-14)


@every_kind
def test_a_hypothesis_goes_on_from_its_parent_and_sentences_leave(options):
    """Rows that changed places, and a sentence that ended, leave the others with the numbers of their own history."""
    model = recurrent(**options).double().eval()
    offsets = torch.tensor([0, 3, 8])
    source_N = torch.tensor([8, 9, 3, 4, 5, 6, 7, 3])
    state = model.start(model.encode(source_N, offsets))
    model.step(torch.full((6,), special.BEGIN), state)
    state.select(torch.tensor([[0, 0, 0], [0, 0, 0]]))
    model.step(torch.tensor([4, 5, 6, 7, 8, 9]), state)
    state.keep_sentences(torch.tensor([1]))
    state.select(torch.tensor([[2, 2, 0]]))
    scores_RV = model.step(torch.tensor([10, 11, 12]), state)
    alone = model.encode(source_N[3:], torch.tensor([0, 5]))
    for row, history in enumerate(([2, 9, 10], [2, 9, 11], [2, 7, 12])):
        hidden_ND = model.decode(torch.tensor(history), torch.tensor([0, 3]), alone)
        torch.testing.assert_close(scores_RV[row], model.output(hidden_ND)[-1], rtol=0, atol=1e-14)


@every_kind
@pytest.mark.parametrize("beam", [1, 4])
def test_searches_know_nothing_of_it(options, beam):
    """The same hypotheses in any batch, and a score that teacher forcing confirms."""
    model = recurrent(**options).eval()
    tasks = [Task([4, 5, 6, 7, 3], 6, []), Task([8, 3], 4, [9]), Task([9, 9, 10, 3], 6, [])]
    engine = TorchEngine(model)
    together = engine.search(tasks, Decoding(beam=beam))
    for task, found in zip(tasks, together, strict=True):
        (alone,) = engine.search([task], Decoding(beam=beam))
        assert [each.tokens for each in alone] == [each.tokens for each in found]
        best = found[0]
        labels = [*best.tokens, special.END][: task.limit]
        source = torch.tensor([task.source])
        logits = model(source, torch.tensor([[special.BEGIN, *labels[:-1]]]))[0].detach()
        logits[:, search.NEVER] = -torch.inf
        total = logits.log_softmax(-1).gather(1, torch.tensor(labels)[:, None]).sum()
        assert best.log_probability == pytest.approx(float(total), abs=1e-4)
        assert best.tokens[: len(task.prefix)] == task.prefix


def test_an_lstm_begins_by_remembering():
    for model in (recurrent(**kind) for kind in KINDS.values()):
        for rnn in (model.encoder[0].rnn, model.decoder[0].rnn):
            width = rnn.hidden_size
            for name, bias in rnn.named_parameters():
                if name.startswith("bias"):
                    expected = torch.zeros(4, width)
                    expected[1] = float("_ih_" in name)
                    assert torch.equal(bias.view(4, width), expected), name
                elif "_hh_" in name:
                    for gate in bias.split(width):
                        torch.testing.assert_close(gate @ gate.T, torch.eye(width))


@pytest.mark.parametrize(("source_reversed", "read"), [(False, [4, 5, 3]), (True, [3, 5, 4])])
def test_without_attention_only_the_last_state_counts(source_reversed, read):
    """The decoder begins with what the encoder knew at the end; read in reverse, that is after the first word."""
    model = recurrent(**KINDS["rnn"], source_reversed=source_reversed).double().eval()
    memory = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3]))
    x = model.source_embedding(torch.tensor(read))
    _, last = model.encoder[0].rnn(x[:, None])
    for ours, theirs in zip(memory.last, last, strict=True):
        torch.testing.assert_close(ours, theirs)
    before = model.decode(torch.tensor([2, 4]), torch.tensor([0, 2]), memory)
    memory.states_ND.zero_()
    assert torch.equal(model.decode(torch.tensor([2, 4]), torch.tensor([0, 2]), memory), before)


@torch.no_grad()
def test_alignment_attention_by_hand():
    attention = AdditiveAttention(3).double()
    memory_ND = torch.randn(4, 3, dtype=torch.float64)
    looked = attention.start(memory_ND, Packing(torch.tensor([0, 4]), torch.device("cpu")))
    query = torch.randn(1, 1, 3, dtype=torch.float64)
    context, inside = attention(query, looked)
    scores = [
        float(attention.v @ torch.tanh(attention.w_q.weight @ query[0, 0] + attention.w_k(row))) for row in memory_ND
    ]
    weights = torch.tensor(scores, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(inside.scores_BHLM[0, 0, 0], torch.tensor(scores, dtype=torch.float64))
    torch.testing.assert_close(inside.weights_BHLM[0, 0, 0], weights)
    torch.testing.assert_close(context[0, 0], weights @ memory_ND)


@torch.no_grad()
def test_dot_and_general_scores_by_hand():
    """Luong et al., 3.1. Query (1, 2), states (3, -1) and (0.5, 1): dot products 1 and 2.5. With W = [[0, 1], [2, 0]]
    the states become (-1, 6) and (1, 1): 11 and 3."""
    memory_ND = torch.tensor([[3.0, -1.0], [0.5, 1.0]])
    query, packing = torch.tensor([[[1.0, 2.0]]]), Packing(torch.tensor([0, 2]), torch.device("cpu"))
    dot, general = DotAttention(2), GeneralAttention(2)
    general.w_k.weight.copy_(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    for attention, expected in ((dot, [1.0, 2.5]), (general, [11.0, 3.0])):
        context, inside = attention(query, attention.start(memory_ND, packing))
        assert inside.scores_BHLM[0, 0, 0].tolist() == expected
        share = 1 / (1 + math.exp(expected[1] - expected[0]))
        torch.testing.assert_close(context[0, 0], share * memory_ND[0] + (1 - share) * memory_ND[1])
    assert not list(dot.parameters())


@torch.no_grad()
def test_input_feeding_by_hand():
    """Luong et al., 3.3: the attentional state tanh(W_c [c, h]) enters the next step beside the token."""
    model = recurrent(attention="general").double().eval()
    memory = model.encode(torch.tensor([4, 5, 3]), torch.tensor([0, 3]))
    decoder, inputs = model.decoder[0], torch.tensor([2, 4, 9])
    found = model.decode(inputs, torch.tensor([0, 3]), memory)
    hidden, fed = memory.last, torch.zeros(8, dtype=torch.float64)
    for place, token in enumerate(inputs):
        entering = torch.cat([model.target_embedding(token[None])[0], fed])
        output, hidden = decoder.rnn(entering[None, None], hidden)
        scores = memory.states_ND @ decoder.cross_attention.w_k.weight.T @ output[0, 0]
        context = scores.softmax(0) @ memory.states_ND
        fed = torch.tanh(decoder.w_r(torch.cat([context, output[0, 0]])))
        torch.testing.assert_close(found[place], fed)


@every_kind
def test_gradients_are_those_of_finite_differences(options):
    """The mean of scores, differentiated by every weight of a tiny model."""
    model = recurrent(5, 7, **options, d_model=3, d_hidden=4, tie="none").double()
    weights = list(model.parameters())
    source, inputs = torch.tensor([[2, 4, 3], [3, 0, 0]]), torch.tensor([[2, 0], [5, 6]])

    def score(*given):
        named = dict(zip(dict(model.named_parameters()), given, strict=True))
        return torch.func.functional_call(model, named, (source, inputs)).square().mean()

    assert torch.autograd.gradcheck(score, weights, fast_mode=True)


@attending
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_attention_is_heard_as_one_head_of_one_layer(cell, kind):
    """Rows of real tokens sum to 1, hidden cells are exactly 0, and listening changes nothing."""
    model = recurrent(**KINDS[kind], cell=cell).double().eval()
    before = model(SOURCE, INPUTS)
    with torch.no_grad(), capture(model) as seen:
        during = model(SOURCE, INPUTS)
    torch.testing.assert_close(during, before, rtol=0, atol=0)
    (weights,) = seen["decoder.0.cross_attention.weights"]
    assert weights.shape == (2, 1, 3, 5)
    torch.testing.assert_close(weights.sum(-1)[1, 0], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(weights.sum(-1)[0, 0], torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
    assert not weights[0, :, :, 3:].any(), "the padding of the shorter source"
    assert weights[0, :, :2, :3].all()
    (scores,), (query,), (key,) = (seen[f"decoder.0.cross_attention.{each}"] for each in ("scores", "query", "key"))
    expected = query @ key.transpose(-2, -1)
    if kind == "rnn-attention":
        expected = torch.tanh(query[:, :, :, None] + key[:, :, None]) @ model.decoder[0].cross_attention.v
    torch.testing.assert_close(scores[1], expected[1])
    torch.testing.assert_close(scores.softmax(-1)[1], weights[1])
    assert seen["encoder.0.states"][0].shape == (8, 6)
    assert seen["decoder.0.states"][0].shape == (5, 8)
    torch.testing.assert_close(model.output(seen["decoder.0.states"][0]), seen["logits"][0])


@attending
def test_a_search_is_heard_step_by_step(kind):
    model = recurrent(**KINDS[kind]).double().eval()
    with torch.no_grad(), capture(model) as seen:
        state = model.start(model.encode(torch.tensor([8, 9, 3, 4, 5, 6, 7, 3]), torch.tensor([0, 3, 8])))
        for _ in range(2):
            model.step(torch.full((6,), special.BEGIN), state)
    steps = seen["decoder.0.cross_attention.weights"]
    assert [each.shape for each in steps] == [(2, 1, 3, 5)] * 2
    assert not steps[0][0, :, :, 3:].any()
    torch.testing.assert_close(steps[1].sum(-1), torch.ones(2, 1, 3, dtype=torch.float64))


def test_without_attention_nothing_is_heard_of_it():
    model = recurrent(attention="none").eval()
    with torch.no_grad(), capture(model) as seen:
        model(SOURCE, INPUTS)
    assert not [name for name in seen if "attention" in name]
    assert "decoder.0.states" in seen


def test_rows_by_time_longest_first():
    packing = Packing(torch.tensor([0, 2, 3, 6]), torch.device("cpu"))
    x_ND = torch.arange(6)[:, None]
    rows = by_time(x_ND, packing)
    assert rows.batch_sizes.tolist() == [3, 2, 1]
    assert rows.data[:, 0].tolist() == [3, 0, 2, 4, 1, 5]
    assert torch.equal(by_sentence(rows, packing), x_ND)


def test_options_change_the_answer():
    """No option may be read and forgotten: the same seed with another option gives other numbers."""
    answers = []
    for options in (*KINDS.values(), {**KINDS["rnn"], "source_reversed": True}, {"cell": "gru"},
                    {"encoder_layers": 2, "decoder_layers": 2}, {"d_hidden": 10}, {"tie": "none"}):  # fmt: skip
        torch.manual_seed(1)
        answers.append(recurrent(**options).eval()(SOURCE, INPUTS))
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(answers, 2))


def test_dropout_only_while_training():
    model = recurrent(dropout=0.5, encoder_layers=2, decoder_layers=2)
    assert not torch.equal(model(SOURCE, INPUTS), model(SOURCE, INPUTS))
    model.eval()
    assert torch.equal(model(SOURCE, INPUTS), model(SOURCE, INPUTS))
    assert isinstance(model.decoder[0].rnn, nn.LSTM)
