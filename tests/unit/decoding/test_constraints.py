"""Constrained search: every output has what it must have, and a wide beam finds the best of all such outputs."""

import itertools

import pytest
import torch

from seq2see import config, special
from seq2see.decoding import constraints, search
from seq2see.decoding.constraints import FIRST, LATER, Trie, TrieProgress
from seq2see.decoding.hypothesis import Constraint, Task
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.model.build import build
from seq2see.model.interface import Seq2Seq

A, B, C, D = range(special.COUNT, special.COUNT + 4)


def made(vocabulary: int = special.COUNT + 4, seed: int = 5) -> Seq2Seq:
    """A small model with random weights, large ones, so that scores differ."""
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2, "d_ff": 24}
    settings = config.resolve({"data": {"shared": True}, "model": {**small, "dropout": 0.0}})
    torch.manual_seed(seed)
    model = build(settings.model, vocabulary, vocabulary)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return model.eval()


def form(*tokens: int) -> Constraint:
    return Constraint((tokens,), (tokens,))


def contains(tokens: list[int], wanted: tuple[int, ...]) -> bool:
    return any(tuple(tokens[place : place + len(wanted)]) == wanted for place in range(len(tokens)))


def test_the_progress_of_a_hypothesis() -> None:
    trie = Trie([Constraint(((A, B),), ((A, B), (C,))), form(D)])
    begun = trie.after(TrieProgress(), A)
    assert (trie.bank(begun), begun.met) == (1, 0)
    assert trie.wanted(begun) == [A, B, C, D]
    done = trie.after(begun, B)
    assert (done.met, done.just_met, done.node) == (1, 0, LATER)
    assert trie.wanted(done) == [D]
    assert trie.after(begun, C).met == 1, "another form is enough"
    lost = trie.after(begun, 99)
    assert (lost.node, trie.bank(lost)) == (LATER, 0)
    assert not trie.is_met(done)
    assert trie.is_met(trie.after(done, D))
    assert trie.banned(done) == [special.END]
    assert trie.banned(trie.after(done, D)) == []


def test_what_may_follow_a_term() -> None:
    trie = Trie([Constraint(((A,), (A, B)), ((A,),), frozenset({B, C}), frozenset({D}))])
    assert trie.never == [D]
    after = trie.after(TrieProgress(FIRST), A)
    assert trie.banned(after) == [C], "B continues a longer form of the same term"
    assert {*trie.banned(trie.after(TrieProgress(LATER), A))} == {B, C}


@pytest.mark.parametrize("order", [1, -1], ids=["wide first", "narrow first"])
def test_constraints_that_share_a_form_are_met_by_one_occurrence_each(order: int) -> None:
    wide, narrow = Constraint(((A,), (B,)), ((A,), (B,))), form(A)
    trie = Trie([wide, narrow][::order])
    once = trie.after(TrieProgress(), A)
    assert trie.wanted(once) == [A, B]
    assert not trie.is_met(once)
    assert trie.is_met(trie.after(once, A))
    assert trie.is_met(trie.after(once, B)), "the form that only one of them has is left for it"
    assert trie.is_met(trie.after(trie.after(TrieProgress(), B), A))


@pytest.mark.parametrize("wanted", [[(A,)], [(A, B)], [(A, B), (C,)], [(D, D), (A,), (B,)]], ids=str)
def test_a_wide_beam_finds_the_best_output_that_meets_all_constraints(wanted: list[tuple[int, ...]]) -> None:
    """All outputs of up to four tokens, scored one by one, are the reference."""
    model, limit, source = made(), 5, [A, C, B, special.END]
    given = tuple(form(*each) for each in wanted)
    settings = config.Decoding(beam=200, max_extra=1)
    (found,) = TorchEngine(model).search([Task(source, limit, [], given)], settings)
    every = [
        list(tokens)
        for length in range(limit)
        for tokens in itertools.product((special.UNKNOWN, A, B, C, D), repeat=length)
        if all(contains(list(tokens), each) for each in wanted)
    ]
    logs = TorchEngine(model).score([source] * len(every), every)
    best = max(range(len(every)), key=lambda place: sum(logs[place]) / len(logs[place]))
    ended = [each for each in found if len(each.tokens) < limit]
    assert ended[0].tokens == every[best]
    assert ended[0].log_probability == pytest.approx(sum(logs[best]), abs=1e-3)


def test_constrained_and_other_tasks_in_one_call() -> None:
    """Tasks without constraints give exactly what they give alone, and so does each constrained one."""
    engine, settings = TorchEngine(made(40)), config.Decoding(beam=4)
    sources = [[*range(4 + place, 9 + 2 * place), special.END] for place in range(8)]
    plain = [Task(source, 14, []) for source in sources]
    bound = [Task(source, 14, [], (form(20, 21), form(30))) for source in sources]
    mixed = [task for both in zip(plain, bound, strict=True) for task in both]
    found = engine.search(mixed, settings)
    assert found[::2] == engine.search(plain, settings)
    for task, hypotheses in zip(bound, found[1::2], strict=True):
        assert hypotheses[0].tokens == engine.search([task], settings)[0][0].tokens
        assert contains(hypotheses[0].tokens, (20, 21))
        assert contains(hypotheses[0].tokens, (30,))


def test_no_room_for_a_constraint_gives_an_output_without_it() -> None:
    (found,) = TorchEngine(made()).search([Task([A, special.END], 2, [], (form(A, B, C, D),))], config.Decoding(beam=3))
    assert found
    assert all(len(each.tokens) <= 2 for each in found)


def test_sampling_has_no_constraints() -> None:
    assert TorchEngine(made()).constrains
    assert not TorchEngine(made(), search.sampling()).constrains
    assert constraints.NOTHING.total == -torch.inf
