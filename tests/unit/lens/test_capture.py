import math
from pathlib import Path

import numpy as np
import pytest
import torch

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.config import resolve
from seq2see.decoding import search
from seq2see.decoding.torch_engine import for_decoding
from seq2see.errors import SettingError
from seq2see.lens import reading
from seq2see.lens.answers import look, plant
from seq2see.lens.capture import capture
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.build import build
from seq2see.model.layers import sinusoid
from seq2see.model.recording import RecordingPoint
from seq2see.model.transformer import Transformer
from seq2see.run import load
from seq2see.tokens import tokenizers
from seq2see.tokens.store import Tokenizers

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
    assert not any(module._forward_hooks for module in model.modules() if isinstance(module, RecordingPoint))


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


# All that there is to hear


@pytest.fixture(params=["post", "pre"])
def whole(request):
    torch.manual_seed(1)
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "d_model": D, "heads": HEADS, "d_ff": 12}
    return Transformer(13, 13, norm=request.param, activation="relu", **sizes).double().eval()


def heard(model):
    with torch.no_grad(), capture(model) as seen:
        logits = model(SOURCE[:1], INPUTS[:1])
    return logits, {name: passed for name, (passed,) in seen.items()}


def test_each_name_holds_what_the_paper_says(whole):
    logits, seen = heard(whole)
    table = whole.source_embedding.tokens.weight
    torch.testing.assert_close(seen["source_embedding.without_positions"], table[SOURCE[0]] * math.sqrt(D))
    waves = seen["source_embedding.with_positions"] - seen["source_embedding.without_positions"]
    torch.testing.assert_close(waves, sinusoid(5, D, dtype=torch.float64))
    for name in ("encoder.0.self_attention", "decoder.1.self_attention", "decoder.1.cross_attention"):
        query, key, value, scores, weights, heads, output = (
            seen[f"{name}.{each}"] for each in ("query", "key", "value", "scores", "weights", "heads", "output")
        )
        torch.testing.assert_close(scores, query @ key.transpose(-2, -1) / math.sqrt(D // HEADS))
        keep = torch.ones(4, 4).tril() if name == "decoder.1.self_attention" else torch.ones(scores.shape[-2:])
        exponentials = scores.exp() * keep
        torch.testing.assert_close(weights, exponentials / exponentials.sum(-1, keepdim=True))
        torch.testing.assert_close(heads, (weights @ value)[0].transpose(0, 1).flatten(1))
        torch.testing.assert_close(output, whole.get_submodule(name).w_o(heads))
    torch.testing.assert_close(seen["logits"], logits[0])
    torch.testing.assert_close(seen["logits"], whole.output(seen["decoder_norm"]))


def test_the_stream_goes_through_residuals_and_norms(whole):
    _, seen = heard(whole)
    layer = whole.encoder[0]
    first = seen["source_embedding.with_positions"]
    around, output = "encoder.0.around_attention", seen["encoder.0.self_attention.output"]
    torch.testing.assert_close(seen[f"{around}.sum"], first + output)
    normed = first if layer.around_attention.pre else first + output
    torch.testing.assert_close(seen[f"{around}.normed"], layer.around_attention.norm(normed))
    after = seen[f"{around}.sum" if layer.around_attention.pre else f"{around}.normed"]
    feed = "encoder.0.around_feed_forward"
    torch.testing.assert_close(seen[f"{feed}.sum"], after + seen["encoder.0.feed_forward.output"])
    going_in = seen[f"{feed}.normed"] if layer.around_attention.pre else after
    hidden = layer.feed_forward.w_1(going_in).relu()
    torch.testing.assert_close(seen["encoder.0.feed_forward.hidden"], hidden)
    last = seen[f"{feed}.sum" if layer.around_attention.pre else f"{feed}.normed"]
    torch.testing.assert_close(seen["encoder_norm"], whole.encoder_norm(last))


def test_the_order_is_that_of_the_computation(whole):
    names = list(heard(whole)[1])
    wanted = [
        "source_embedding.without_positions",
        "encoder.0.self_attention.weights",
        "encoder.0.feed_forward.hidden",
        "encoder_norm",
        "target_embedding.with_positions",
        "decoder.0.self_attention.query",
        "decoder.0.cross_attention.query",
        "decoder.1.feed_forward.output",
        "logits",
    ]
    assert [name for name in names if name in wanted] == wanted


def test_only_what_is_wanted_is_heard(whole):
    with torch.no_grad(), capture(whole, only=lambda name: name.endswith(".hidden")) as seen:
        whole(SOURCE, INPUTS)
    assert sorted(seen) == [f"{stack}.feed_forward.hidden" for stack in ("decoder.0", "decoder.1", "encoder.0")]


def test_a_copy_for_decoding_hears_only_for_itself(whole):
    copied = for_decoding(whole)
    with capture(whole) as seen:
        copied(SOURCE, INPUTS)
    assert not seen
    with capture(copied) as seen:
        copied(SOURCE, INPUTS)
    assert seen
    with capture(whole):
        assert for_decoding(whole) is whole, "who decodes while somebody listens must be heard"
        assert listeners(for_decoding(whole, "int8")) == 0
    assert for_decoding(whole) is not whole


# In a search


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("positions", ["sinusoid", "rotary"])
def test_a_search_is_heard_step_by_step_and_hypothesis_by_hypothesis(width, positions):
    """Along the path of the best hypothesis all is as when its translation is read at once."""
    torch.manual_seed(4)
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "d_model": D, "heads": HEADS, "d_ff": 12}
    model = Transformer(13, 13, positions=positions, **sizes).double().eval()
    steps: list[search.SearchStep] = []
    with torch.inference_mode():
        memory = model.encode(SOURCE[0], torch.tensor([0, 5]))
        quiet = _search(model, memory, width)
        with capture(model) as seen:
            loud = _search(model, memory, width, steps.append)
    assert [each.tokens for each in loud] == [each.tokens for each in quiet]
    assert not any(logits.isinf().any() for logits in seen["logits"]), "what a search forbids is its own affair"
    letters = tokenizers.train("characters", ["abcdefghi"], 13)
    grown = plant(steps, letters, resolve({"decoding": {"length_penalty": 1.0}}).decoding)
    path = grown.path(grown.best)
    tokens = loud[0].tokens
    assert len(path) in (len(tokens), len(tokens) + 1)
    rows = [0, *(node.row for node in path[:-1])]  # each token was chosen in the row of the one before it
    with torch.inference_mode(), capture(model) as at_once:
        read = torch.tensor([special.BEGIN, *tokens[: len(path) - 1]])
        model.output(model.decode(read, torch.tensor([0, len(read)]), memory))
    for step, row in enumerate(rows):
        for layer in range(2):
            name = f"decoder.{layer}.cross_attention.weights"
            torch.testing.assert_close(seen[name][step][0, :, row], at_once[name][0][0, :, step])
            name = f"decoder.{layer}.self_attention.weights"
            places = [place * width + earlier for place, earlier in enumerate(rows[: step + 1])]
            torch.testing.assert_close(seen[name][step][0, :, row, places], at_once[name][0][0, :, step, : step + 1])
            others = [place for place in range((step + 1) * width) if place not in places]
            assert not seen[name][step][0, :, row, others].any(), "others' histories are hidden exactly"
        torch.testing.assert_close(seen["logits"][step][row], at_once["logits"][0][step])


def _search(model, memory, width, watch=None):
    penalty = search.power_penalty(1.0)
    return search.beam(model, memory, [6], width, penalty, watch=watch)[0]


# Look


@pytest.fixture(params=["sinusoid", "rotary"])
def bundle(request):
    """Untrained: it says nonsense, and one can look at it all the same."""
    letters = tokenizers.train("characters", ["a cab", "bad cab", "abc"], 20)
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
    found = look(bundle, reading.read(bundle, "a bad cab"))
    S, T = len("a bad cab") + 1, len(found.input_tokens)
    assert found.source == "a bad cab"
    assert found.source_tokens == [*"a▁bad▁cab", "</s>"]
    assert found.input_tokens == ["<s>", *found.target_tokens[:-1]]
    assert found.target_tokens[-1] == special.SPELLINGS[special.END]
    assert (
        "".join(found.target_tokens[:-1]).replace("▁", " ").replace("<unk>", tokenizers.UNKNOWN_MARK)
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
    assert look(bundle, reading.read(bundle, "abc")).translation == before
    assert translate(TorchEngine(bundle.model), bundle.tokenizers, bundle.settings, ["abc"])[0].text == before
    assert listeners(bundle.model) == 0


# A run


def test_a_run_is_heard_while_it_translates(trained):
    run = load(trained)
    before = run.translate(["badge", "cab"], beam=3)
    engine = run.engine()
    with capture(run) as seen:
        during = run.translate(["badge", "cab"], beam=3)
        assert run.engine() is not engine
    assert during == before == ["BADGE", "CAB"]
    assert seen["encoder.0.self_attention.weights"][0].shape == (2, 2, 6, 6)
    assert seen["decoder.0.cross_attention.weights"][0].shape == (2, 2, 3, 6), "three hypotheses look"
    assert len(seen["logits"]) >= len("BADGE") + 1
    heard = {name: len(passed) for name, passed in seen.items()}
    assert run.translate(["badge"]) == ["BADGE"]
    assert run.engine() is engine, "nobody listens any more"
    assert {name: len(passed) for name, passed in seen.items()} == heard


def test_a_name_that_nobody_bears(whole):
    with capture(whole) as seen, pytest.raises(KeyError, match="Nothing was recorded at all"):
        seen["logits"]
    with torch.no_grad(), capture(whole) as seen:
        whole(SOURCE, INPUTS)
    with pytest.raises(KeyError, match=r"Did you mean 'encoder\.0\.self_attention\.weights'\?"):
        seen["encoder.0.self_atention.weights"]
    assert "encoder.0.self_atention.weights" not in seen


def test_whatever_has_a_model_can_be_heard(trained):
    run = load(trained)
    engine = run.engine("torch")
    for whose, used in ((run.model, None), (run.bundle, None), (engine, engine)):
        with capture(whose, only=lambda name: name == "logits") as seen:
            run.search(["cab"], engine=used)
        assert list(seen) == ["logits"]


@pytest.mark.parametrize(("name", "precision"), [("torch", "float32"), ("torch", "int8"), ("ctranslate2", "int8")])
def test_an_engine_that_would_not_be_heard_is_refused(trained, name, precision):
    run = load(trained)
    engine = run.engine(name, precision)
    with capture(run), pytest.raises(SettingError, match="uses its own copy"):
        run.search(["cab"], engine=engine)
    with capture(run, only=lambda name: name == "logits") as seen:
        run.search(["cab"], engine=run.engine("torch"))
    assert list(seen) == ["logits"]
    assert run.search(["cab"], engine=engine)[0].text == "CAB"


def test_every_name_is_in_the_documentation(trained):
    """`decoder.0.cross_attention.weights` is there by its place and by its ending."""
    table = (Path(__file__).parents[3] / "docs" / "inside.md").read_text(encoding="utf-8")
    run = load(trained)
    with capture(run) as seen:
        run.translate(["cab"])
    for name in seen:
        place, _, end = name.rpartition(".")
        by_parts = f"`{place}.…`" in table or f"`….{place.rpartition('.')[2]}.…`" in table
        assert f"`{name}`" in table or (by_parts and f"`….{end}`" in table), name
