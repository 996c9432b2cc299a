import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seq2see.config import ALIGNMENTS, Model
from seq2see.model.build import build
from seq2see.model.transformer import Transformer

V = 11
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 8, "heads": 2, "d_ff": 12, "max_positions": 16}
TRANSFORMERS = [
    (positions, norm) for positions in ("sinusoid", "learned", "rotary", "none") for norm in ("post", "pre")
]
RNNS = [(kind, cell) for kind in ("rnn", "rnn-bidirectional", *ALIGNMENTS) for cell in ("lstm", "gru")]
CONVOLUTIONAL = [("convolutional", kernel) for kernel in (4, 7)]  # two layers read the longest target as a whole
quick = settings(max_examples=settings.default.max_examples // 5)
every_model = pytest.mark.parametrize(("kind", "option"), TRANSFORMERS + RNNS + CONVOLUTIONAL)

sentence = st.lists(st.integers(4, V - 1), min_size=1, max_size=6)
pair = st.tuples(sentence, sentence)
batch = st.lists(pair, min_size=1, max_size=4)


def made(kind, option, dtype=torch.float32):
    """Evaluated, not trained, but with weights large enough for every part to matter."""
    torch.manual_seed(1)
    if (kind, option) in RNNS:
        sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 8, "d_hidden": 6}
        model = build(Model(architecture=kind, cell=option, **sizes), V, V)
    elif (kind, option) in CONVOLUTIONAL:
        sizes = {"encoder_layers": 3, "decoder_layers": 2, "d_model": 8, "d_hidden": 6, "max_positions": 16}
        model = build(Model(architecture=kind, kernel=option, **sizes), V, V)
    else:
        model = Transformer(V, V, positions=kind, norm=option, **SIZES)
    model = model.to(dtype).eval()
    for weight in model.parameters():
        weight.requires_grad_(False)
        nn.init.normal_(weight, 1.0 if weight.ndim == 1 else 0.0, 0.3)
    return model


TOLERANCE = {torch.float32: {"rtol": 1e-6, "atol": 1e-5}, torch.float64: {"rtol": 0, "atol": 1e-12}}


def pack(sequences):
    offsets = torch.tensor([0, *map(len, sequences)]).cumsum(0)
    return torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int64), offsets


def logits(model, pairs):
    """Scores of each target position, a tensor for each pair, by the packed path."""
    sources, targets = zip(*pairs, strict=True)
    hidden = model.decode(*pack(targets), model.encode(*pack(sources)))
    return model.output(hidden).split([len(target) for target in targets])


@every_model
@quick
@given(batch, st.data())
def test_no_position_sees_its_future(kind, option, pairs, data):
    """Exactly: of what comes later, nothing but the shape may enter a position's arithmetic."""
    model = made(kind, option)
    before = logits(model, pairs)
    sources, targets = zip(*pairs, strict=True)
    seen = [data.draw(st.integers(0, len(target))) for target in targets]
    changed = [
        [*target[:place], *data.draw(st.lists(st.integers(4, V - 1), min_size=rest, max_size=rest))]
        for target, place in zip(targets, seen, strict=True)
        for rest in [len(target) - place]
    ]
    after = logits(model, list(zip(sources, changed, strict=True)))
    for one, other, place in zip(before, after, seen, strict=True):
        assert torch.equal(one[:place], other[:place])


@every_model
def test_every_position_sees_its_past_and_its_source(kind, option):
    """The counterpart, without which a model that sees nothing would pass."""
    model = made(kind, option)
    (base,) = logits(model, [([4, 5, 6], [7, 8, 9, 10])])
    (other_past,) = logits(model, [([4, 5, 6], [8, 8, 9, 10])])
    (other_source,) = logits(model, [([4, 5, 7], [7, 8, 9, 10])])
    assert ((base - other_past).abs().amax(-1) > 1e-4).all()
    assert ((base - other_source).abs().amax(-1) > 1e-4).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_model
@quick
@given(st.lists(pair, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_company_and_order_do_not_change_the_answer(kind, option, dtype, pairs, dice):
    model = made(kind, option, dtype)
    together = logits(model, pairs)
    order = list(range(len(pairs)))
    dice.shuffle(order)
    shuffled = logits(model, [pairs[place] for place in order])
    for place, answer in zip(order, shuffled, strict=True):
        torch.testing.assert_close(answer, together[place], **TOLERANCE[dtype])
        (alone,) = logits(model, [pairs[place]])
        torch.testing.assert_close(alone, together[place], **TOLERANCE[dtype])


@pytest.mark.parametrize(("kind", "option"), [("sinusoid", "post"), ("rotary", "post"), *RNNS, *CONVOLUTIONAL])
@quick
@given(batch, st.integers(0, 3), st.integers(0, 3))
def test_padding_does_not_change_the_answer(kind, option, pairs, more_source, more_target):
    model = made(kind, option, torch.float64)
    rectangles = [
        nn.functional.pad(nn.utils.rnn.pad_sequence(list(map(torch.tensor, side)), batch_first=True), (0, more))
        for side, more in zip(zip(*pairs, strict=True), (more_source, more_target), strict=True)
    ]
    found = model(*rectangles)
    for row, answer in zip(found, logits(model, pairs), strict=True):
        torch.testing.assert_close(row[: len(answer)], answer, rtol=0, atol=1e-12)
        assert not row[len(answer) :].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_model
@quick
@given(st.lists(sentence, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 6), st.data())
def test_cached_equals_uncached(kind, option, dtype, sources, width, steps, data):
    """A beam that sorts, copies and drops its rows, and loses sentences on the way, against decoding from the start."""
    model = made(kind, option, dtype)
    state = model.start(model.encode(*pack(sources)))
    alive = list(range(len(sources)))
    histories = [[] for _ in range(len(alive) * width)]
    for _ in range(steps):
        tokens = data.draw(st.lists(st.integers(2, V - 1), min_size=len(histories), max_size=len(histories)))
        histories = [[*history, token] for history, token in zip(histories, tokens, strict=True)]
        stepped = model.step(torch.tensor(tokens), state)
        assert getattr(state, "length", len(histories[0])) == len(histories[0])
        owners = [sources[sentence] for sentence in alive for _ in range(width)]
        uncached = logits(model, list(zip(owners, histories, strict=True)))
        torch.testing.assert_close(stepped, torch.stack([each[-1] for each in uncached]), **TOLERANCE[dtype])

        staying = data.draw(st.lists(st.sampled_from(range(len(alive))), min_size=1, max_size=len(alive), unique=True))
        parents = [[data.draw(st.integers(0, width - 1)) for _ in range(width)] for _ in staying]
        state.keep_sentences(torch.tensor(staying))
        state.select(torch.tensor(parents))
        alive = [alive[row] for row in staying]
        histories = [
            histories[row * width + parent] for row, own in zip(staying, parents, strict=True) for parent in own
        ]


@pytest.mark.parametrize(("positions", "norm"), TRANSFORMERS)
def test_cached_equals_uncached_far_beyond_the_first_room(positions, norm):
    """40 steps, longer than the storage that is made at first and than its first doubling."""
    torch.manual_seed(1)
    model = Transformer(V, V, positions=positions, norm=norm, **(SIZES | {"max_positions": 40})).double().eval()
    source, target = [4, 5, 6], torch.randint(4, V, (40,)).tolist()
    with torch.no_grad():
        state = model.start(model.encode(*pack([source])))
        stepped = torch.cat([model.step(torch.tensor([token]), state) for token in target])
        (uncached,) = logits(model, [(source, target)])
    torch.testing.assert_close(stepped, uncached, **TOLERANCE[torch.float64])
