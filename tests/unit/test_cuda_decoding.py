"""Decoding on a GPU, by its own kernels: skipped where there is none."""

import math
from dataclasses import replace

import pytest
import torch

from searching import some_tasks, talkative
from seq2see.config import Decoding
from seq2see.decoding import recorded
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.recorded import RecordedSearch
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.kernels import loading
from seq2see.model.transformer import Transformer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA, and this machine has none"),
    pytest.mark.skipif(not loading.HAS_TRITON, reason="needs Triton"),
]


WORDS = 3000


def model(positions: str = "sinusoid", norm: str = "post") -> Transformer:
    return talkative(positions, norm, words=WORDS, end=6.0, encoder_layers=2, d_model=64, heads=4).cuda()


def tasks(count: int) -> list[Task]:
    return some_tasks(count, WORDS)


@pytest.mark.parametrize(("positions", "norm"), [("sinusoid", "post"), ("rotary", "pre"), ("learned", "post")])
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("most_rows", [20, 2048])
def test_recorded_steps_find_what_the_search_finds(monkeypatch, positions, norm, beam, most_rows) -> None:
    monkeypatch.setattr(recorded, "MOST_ROWS", most_rows)
    made, settings, todo = model(positions, norm), Decoding(beam=beam), tasks(70)
    assert RecordedSearch(made).can(beam)
    plain, engine = TorchEngine(made), TorchEngine(made)
    plain._recorded = None
    expected = plain.search(todo, settings)
    for _ in range(3):  # plainly, then while recording, then recorded
        found = engine.search(todo, settings)
        assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-3)


@pytest.mark.parametrize(("positions", "norm"), [("sinusoid", "post"), ("rotary", "pre")])
@pytest.mark.parametrize("beam", [1, 4])
def test_who_enters_recorded_slots_gets_what_a_search_alone_finds(positions, norm, beam) -> None:
    made, settings, todo = model(positions, norm), Decoding(beam=beam), tasks(300)
    plain, engine = TorchEngine(made), TorchEngine(made)
    plain._recorded = None
    expected = plain.search(todo, settings)
    search = engine.slot_search(settings)
    assert search is not None
    search.warm_up()
    found: dict[int, list[Hypothesis]] = {}
    for number, task in enumerate(todo):
        search.add(number, task)
        if number % 13 in (0, 5, 6):  # one, five or seven at a time
            found |= search.advance()
        if number == 150:
            search.add("gone", todo[0])
            search.drop(lambda name: name == "gone")
    while search:
        found |= search.advance()
    assert sorted(found) == list(range(300))
    swapped = [number for number in found if not is_same(found[number], expected[number])]
    assert len(swapped) <= 3, swapped


def is_same(found: list[Hypothesis], expected: list[Hypothesis]) -> bool:
    """Return whether the tokens are equal; scores are, and tokens differ only in hypotheses whose scores tie.

    Where this model says one token again and again and then another, it is nearly the same when: in sentence 78 of the
    rotary model, the second and the third hypothesis of float64 are 1.4e-7 apart.
    """
    scores = [each.score for each in expected]
    assert [each.score for each in found] == pytest.approx(scores, abs=1e-5)
    differing = [rank for rank, each in enumerate(found) if each.tokens != expected[rank].tokens]
    for rank in differing:
        others = scores[:rank] + scores[rank + 1 :]
        is_last = rank == len(scores) - 1  # it may tie with one that is not among the best
        assert is_last or min(abs(scores[rank] - other) for other in others) < 1e-5
    return not differing


def test_when_steps_are_not_recorded() -> None:
    made = model()
    search = RecordedSearch(made)
    assert search.can(recorded.WIDEST)
    assert not search.can(recorded.WIDEST + 1)
    torch.use_deterministic_algorithms(True)
    try:
        assert not search.can(1)
    finally:
        torch.use_deterministic_algorithms(False)
    made.train()
    assert not search.can(1)


def test_longer_sentences_after_shorter_ones_leave_what_was_recorded_right() -> None:
    """Tables of positions grow meanwhile."""
    made, settings = model(), Decoding(beam=2)
    short, long = [Task([5, 6, 7, 3], 10, [])], [Task([*range(4, 300), 3], 300, [])]
    plain = TorchEngine(made, precision="bfloat16")
    plain._recorded = None
    engine = TorchEngine(made, precision="bfloat16")
    before = [engine.search(short, settings)[0][0].tokens for _ in range(3)]
    engine.search(long, settings)
    after = engine.search(short, settings)[0][0].tokens
    assert before == [after] * 3
    assert after == plain.search(short, settings)[0][0].tokens


def test_a_beam_wider_than_the_vocabulary() -> None:
    torch.manual_seed(1)
    made = Transformer(6, 6, encoder_layers=1, decoder_layers=1, d_model=16, heads=2, d_ff=16).eval().cuda()
    todo, settings = [Task([4, 5, 3], 7, []), Task([5, 3], 3, [4] * 40)], Decoding(beam=5)
    plain, engine = TorchEngine(made), TorchEngine(made)
    plain._recorded = None
    expected = [[each.tokens for each in one] for one in plain.search(todo, settings)]
    for _ in range(3):
        assert [[each.tokens for each in one] for one in engine.search(todo, settings)] == expected


def test_others_may_be_asked_for_in_between() -> None:
    """More sizes than are kept, with and without given tokens."""
    made = model()
    plain, engine = TorchEngine(made), TorchEngine(made)
    plain._recorded = None
    for beam in (1, 2, 3, 4, 5, 1, 2):
        todo = [replace(task, prefix=task.prefix if beam % 2 else []) for task in tasks(9)]
        settings = Decoding(beam=beam)
        expected = [[each.tokens for each in one] for one in plain.search(todo, settings)]
        assert [[each.tokens for each in one] for one in engine.search(todo, settings)] == expected


def test_a_sentence_is_the_same_in_any_company_in_bfloat16() -> None:
    """Nearly always: a product of many rows may round otherwise than one of few."""
    engine, settings, todo = TorchEngine(model(), precision="bfloat16"), Decoding(beam=1), tasks(60)
    together = engine.search(todo, settings)
    alone = [engine.search([task], settings)[0] for task in todo]
    same = sum(one[0].tokens == other[0].tokens for one, other in zip(together, alone, strict=True))
    assert same >= 54


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("B", "W", "H", "K", "T"), [(2, 1, 2, 16, 5), (3, 4, 2, 24, 20), (5, 20, 1, 128, 40)])
@pytest.mark.parametrize("everything", [False, True])
def test_a_step_of_attention_is_the_written_out_one(B, W, H, K, T, dtype, everything) -> None:
    torch.manual_seed(1)
    P, gpu = W * T, {"device": "cuda"}
    keys, values = (torch.randn(B, H, P, K, dtype=dtype, **gpu) for _ in range(2))
    query, key, value = torch.randn(B * W, 3 * H * K, dtype=dtype, **gpu).chunk(3, -1)
    step = torch.randint(T, (B,), **gpu)
    keep = torch.rand(B, W, P, **gpu) < (1.1 if everything else 0.5)
    here = step[:, None] * W + torch.arange(W, **gpu)
    keep.scatter_(2, here[:, :, None], True)
    expected_keys, expected_values = (
        past.scatter(2, here[:, None, :, None].expand(-1, H, -1, K), new.view(B, W, H, K).transpose(1, 2))
        for past, new in ((keys, key), (values, value))
    )
    seen = keep & (torch.arange(P, **gpu) < (step[:, None, None] + 1) * W)
    queries = query.float().view(B, W, H, K).transpose(1, 2)
    scores = queries @ expected_keys.float().transpose(2, 3) / math.sqrt(K)
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    expected = (weights @ expected_values.float()).transpose(1, 2).reshape(B * W, H * K)
    found = loading.steps().attend(query, keys, values, None if everything else keep, (key, value, step))
    exact = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found.float(), expected, atol=exact, rtol=exact)
    assert torch.equal(keys, expected_keys)
    assert torch.equal(values, expected_values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "words", "count"), [(3, 50, 8), (9, 37_001, 8), (1, 3000, 1), (300, 2049, 20)])
def test_best_words_are_those_of_topk(rows, words, count, dtype) -> None:
    torch.manual_seed(1)
    scores = (3 * torch.randn(rows, words, device="cuda")).to(dtype)
    logs, found = loading.steps().best_words(scores, count, (0, 2))
    plain = scores.float()
    plain[:, [0, 2]] = -torch.inf
    plain = plain.log_softmax(-1)
    torch.testing.assert_close(logs, plain.topk(count).values, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(plain.gather(1, found), logs, atol=1e-4, rtol=1e-5)
    assert all(len(set(row)) == count for row in found.tolist())
