"""Search by tiny random Transformers: beam 1 is greedy, a wide beam is exhaustive, company changes nothing."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import seq2see
from seq2see import bundle, special
from seq2see.decoding import search, translator
from seq2see.decoding.torch_engine import TorchEngine

VOCABULARY = 7


def random_model(seed, positions="sinusoid", norm="post", vocabulary=VOCABULARY):
    torch.manual_seed(seed)
    return seq2see.Transformer(
        vocabulary,
        vocabulary,
        encoder_layers=1,
        decoder_layers=2,
        d_model=8,
        heads=2,
        d_ff=12,
        positions=positions,
        norm=norm,
        tie="none",
        output_bias=True,
    ).eval()


@torch.inference_mode()
def read(model, sources):
    return model.encode(torch.tensor(list(itertools.chain(*sources))), torch.tensor([0, *map(len, sources)]).cumsum(0))


@torch.inference_mode()
def log_probability(model, source, tokens):
    """By teacher forcing, which shares nothing with the search but the weights."""
    inputs_N = torch.tensor([special.BEGIN, *tokens[:-1]])
    hidden_ND = model.decode(inputs_N, torch.tensor([0, len(inputs_N)]), read(model, [source]))
    scores_NV = model.output(hidden_ND).double()
    scores_NV[:, search.NEVER] = -torch.inf
    logs_NV = scores_NV.log_softmax(-1)
    return float(logs_NV.gather(1, torch.tensor(tokens)[:, None]).sum())


models = st.builds(
    random_model,
    st.integers(0, 2**20),
    st.sampled_from(["sinusoid", "learned", "rotary", "none"]),
    st.sampled_from(["post", "pre"]),
)
sources = st.lists(st.integers(special.COUNT, VOCABULARY - 1), max_size=5).map(lambda ids: [*ids, special.END])
penalties = st.sampled_from(
    [search.power_penalty(0.0), search.power_penalty(1.0), search.paper_penalty(0.6), search.paper_penalty(1.0)]
)


@settings(deadline=None, max_examples=25)
@given(model=models, batch=st.lists(sources, min_size=1, max_size=4), penalty=penalties, data=st.data())
def test_beam_of_one_is_greedy(model, batch, penalty, data):
    limits = data.draw(st.lists(st.integers(1, 7), min_size=len(batch), max_size=len(batch)))
    memory = read(model, batch)
    greedy = search.beam(model, memory, limits, 1, penalty, choose=search.greedy)
    beam = search.beam(model, memory, limits, 1, penalty)
    assert [each.tokens for (each,) in greedy] == [each.tokens for (each,) in beam]
    assert [each.score for (each,) in greedy] == pytest.approx([each.score for (each,) in beam], rel=1e-4)


@settings(deadline=None, max_examples=15)
@given(model=models, source=sources, penalty=penalties)
def test_a_wide_beam_is_exhaustive_search(model, source, penalty):
    limit = 3
    free = [special.UNKNOWN, *range(special.COUNT, VOCABULARY)]
    expected = {}
    for length in range(limit + 1):
        for text in itertools.product(free, repeat=length):
            scored = list(text) if length == limit else [*text, special.END]
            expected[text] = log_probability(model, source, scored) / penalty(len(scored))
    found = search.beam(model, read(model, [source]), [limit], len(expected), penalty)[0]
    assert {tuple(each.tokens) for each in found} == expected.keys()
    for each in found:
        assert each.score == pytest.approx(expected[tuple(each.tokens)], rel=1e-4, abs=1e-5)
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)


@settings(deadline=None, max_examples=25)
@given(
    model=models,
    batch=st.lists(sources, min_size=1, max_size=4),
    width=st.integers(1, 5),
    penalty=penalties,
    d=st.data(),
)
def test_every_hypothesis_is_within_its_limit_distinct_and_scored_right(model, batch, width, penalty, d):
    limits = d.draw(st.lists(st.integers(1, 6), min_size=len(batch), max_size=len(batch)))
    for source, limit, hypotheses in zip(
        batch, limits, search.beam(model, read(model, batch), limits, width, penalty), strict=True
    ):
        assert 1 <= len(hypotheses) <= width
        assert len({tuple(each.tokens) for each in hypotheses}) == len(hypotheses)
        for each in hypotheses:
            assert len(each.tokens) <= limit
            assert not set(each.tokens) & {special.PAD, special.BEGIN, special.END}
            scored = each.tokens if len(each.tokens) == limit else [*each.tokens, special.END]
            expected = log_probability(model, source, scored)
            assert each.score == pytest.approx(expected / penalty(len(scored)), rel=1e-4, abs=1e-5)


@settings(deadline=None, max_examples=25)
@given(
    model=models, batch=st.lists(sources, min_size=2, max_size=6), width=st.integers(1, 4), seed=st.integers(0, 2**20)
)
def test_alone_or_in_any_batch_and_order(model, batch, width, seed):
    """Finished sentences leave, longer ones stay: none notices the others."""
    limits = [1 + (3 * len(source)) % 7 for source in batch]
    order = random.Random(seed).sample(range(len(batch)), len(batch))
    penalty = search.power_penalty(1.0)

    def run(indices):
        memory, these = read(model, [batch[index] for index in indices]), [limits[index] for index in indices]
        return search.beam(model, memory, these, width, penalty)

    together, alone = run(range(len(batch))), [run([index])[0] for index in range(len(batch))]
    mixed = dict(zip(order, run(order), strict=True))
    for index in range(len(batch)):
        tokens = [each.tokens for each in alone[index]]
        assert [each.tokens for each in together[index]] == tokens
        assert [each.tokens for each in mixed[index]] == tokens


@settings(deadline=None, max_examples=20)
@given(model=models, batch=st.lists(sources, min_size=1, max_size=4), width=st.integers(1, 4), data=st.data())
def test_a_forced_prefix_is_kept(model, batch, width, data):
    letters = st.lists(st.integers(special.COUNT, VOCABULARY - 1), max_size=4)
    prefixes = data.draw(st.lists(letters, min_size=len(batch), max_size=len(batch)))
    found = search.beam(model, read(model, batch), [6] * len(batch), width, search.power_penalty(1.0), prefixes)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert hypotheses
        assert all(each.tokens[: len(prefix)] == prefix for each in hypotheses)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2 float32", "ctranslate2 int8"])
def test_many_sentences_alone_in_a_batch_and_shuffled(trained, engine, beam, count):
    """The promise of equal tokens: on a CPU in float32, and by CTranslate2."""
    run = seq2see.load(trained)
    if engine == "torch":
        chosen = TorchEngine(bundle.load(trained, "cpu").model)
    else:
        pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
        chosen = run.engine(*engine.split())
    dice = random.Random(7)
    lines = ["".join(dice.choices("abcdefgh", k=dice.randint(1, 5))) for _ in range(count)]
    decoding = replace(run.settings.decoding, beam=beam, max_extra=1, max_ratio=0.7)  # six tokens are enough

    def tokens(some, **changes):
        changed = replace(run.settings, decoding=replace(decoding, **changes))
        results = translator.translate(chosen, run.tokenizers, changed, some, n_best=beam)
        return [[each.tokens for each in result.translations] for result in results]

    before = torch.get_num_threads()
    torch.set_num_threads(2)  # nor does it matter how many work on it
    together = tokens(lines)
    torch.set_num_threads(before)
    assert len({str(each) for each in together}) > count / 2
    alone = [tokens([line])[0] for line in lines]
    assert together == alone
    order = dice.sample(range(count), count)
    shuffled = tokens([lines[index] for index in order], batch_tokens=100)
    assert [together[index] for index in order] == shuffled
