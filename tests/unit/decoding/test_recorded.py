"""A search in fixed shapes finds what one executed step by step finds, whatever else is in its batch."""

import gc
import weakref

import pytest
import torch

from searching import some_tasks, talkative
from seq2see.config import Decoding, Model
from seq2see.decoding import recorded
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.recorded import RecordedSearch
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.model.build import build
from seq2see.model.transformer import Transformer

KINDS = [("sinusoid", "post"), ("rotary", "pre"), ("learned", "post")]


BEAMS = [(1, 1.0), (2, 0.0), (4, 1.0)]
ROWS = [8, 2048]
SLOTS = [  # the default run has each beam with each kind once, and both numbers of rows with each of them
    pytest.param(*kind, *beam, rows, marks=[pytest.mark.slow] if (place + beams + row) % 2 else [])
    for place, kind in enumerate(KINDS)
    for beams, beam in enumerate(BEAMS)
    for row, rows in enumerate(ROWS)
]


@pytest.mark.parametrize(("positions", "norm", "beam", "length_penalty", "most_rows"), SLOTS)
def test_slots_find_what_the_search_finds(monkeypatch, positions, norm, beam, length_penalty, most_rows) -> None:
    monkeypatch.setattr(recorded, "MOST_ROWS", most_rows)  # few: slots are filled anew while others are still at work
    made, settings = talkative(positions, norm), Decoding(beam=beam, length_penalty=length_penalty)
    tasks = some_tasks(longest=24)
    expected = TorchEngine(made).search(tasks, settings)
    search = RecordedSearch(made)
    for _ in range(2):  # the second time in storage that was used before
        found = search.search(tasks, settings)
        assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
            assert [each.log_probability for each in one] == pytest.approx(
                [each.log_probability for each in other], abs=1e-3
            )


@pytest.mark.parametrize("beam", [2, 5])
@pytest.mark.parametrize("length_formula", ["power", "paper"])
def test_one_search_serves_both_rules_to_stop_by(beam, length_formula) -> None:
    """What is kept for one rule is not used for the other, and each finds what `search.py` finds by it."""
    made, tasks = talkative(*KINDS[0], end=10.0), some_tasks(20, longest=30)
    search, lists = RecordedSearch(made), {}
    for stop_against in ("worst", "best"):
        settings = Decoding(beam=beam, length_formula=length_formula, stop_against=stop_against)
        expected = TorchEngine(made).search(tasks, settings)
        found = search.search(tasks, settings)
        lists[stop_against] = [[each.tokens for each in one] for one in found]
        assert lists[stop_against] == [[each.tokens for each in one] for one in expected]
    assert lists["worst"] != lists["best"]


def test_a_beam_wider_than_the_vocabulary_and_more_given_than_there_is_room_for() -> None:
    torch.manual_seed(1)
    made = Transformer(6, 6, encoder_layers=1, decoder_layers=1, d_model=16, heads=2, d_ff=16).eval()
    todo = [Task([4, 5, 3], 7, []), Task([5, 3], 3, [4] * 40), Task([4, 3], 1, [])]
    settings = Decoding(beam=5)
    expected = TorchEngine(made).search(todo, settings)
    found = RecordedSearch(made).search(todo, settings)
    assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in expected]
    assert found[0][0].score == pytest.approx(expected[0][0].score, abs=1e-5)


@pytest.mark.parametrize("beam", [1, 2])
def test_a_task_that_may_not_say_anything_is_done_at_once(beam) -> None:
    made = talkative(*KINDS[0])
    assert RecordedSearch(made).search([Task([5, 3], 0, []), Task([5, 3], 0, [])], Decoding(beam=beam)) == [[], []]


def test_little_room_only_means_fewer_at_once(monkeypatch) -> None:
    made, settings, tasks = talkative(*KINDS[1]), Decoding(beam=2), some_tasks()
    expected = TorchEngine(made).search(tasks, settings)
    monkeypatch.setattr(recorded, "MOST_PLACES", 128)
    search = RecordedSearch(made)
    found = search.search(tasks, settings)
    assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in expected]
    assert max(B * max(S, 2 * T) for B, W, S, T, *_ in search._kept) <= 128


def test_storage_is_given_back_without_a_collector(monkeypatch) -> None:
    made = talkative(*KINDS[0])
    search = RecordedSearch(made)
    tasks = some_tasks(longest=24)
    search.search(tasks, Decoding(beam=2))
    kept = [weakref.ref(each.state.layers[0].memory_key_BHSK) for each in search._kept.values()]
    gc.disable()
    try:
        search.forget()
        assert [ref() for ref in kept] == [None] * len(kept)
    finally:
        gc.enable()
    monkeypatch.setattr(recorded, "MOST_KEPT", 2)
    for beam in (1, 2, 3):
        search.search(tasks, Decoding(beam=beam))
    assert len(search._kept) == 2


def test_without_room_for_it_the_search_goes_on_plainly(monkeypatch) -> None:
    made, settings, tasks = talkative(*KINDS[0]), Decoding(beam=2), some_tasks()
    engine = TorchEngine(made)
    expected = engine.search(tasks, settings)

    def no_room(*_: object) -> None:
        raise torch.OutOfMemoryError

    engine._recorded = RecordedSearch(made)
    monkeypatch.setattr(RecordedSearch, "can", lambda search, beam: True)
    monkeypatch.setattr(RecordedSearch, "search", no_room)
    with pytest.warns(UserWarning, match="not enough GPU memory"):
        found = engine.search(tasks, settings)
    assert [[each.tokens for each in one] for one in found] == [[each.tokens for each in one] for one in expected]


def test_steps_are_not_recorded_on_a_cpu() -> None:
    assert not RecordedSearch(talkative(*KINDS[0])).can(1)


@pytest.mark.parametrize("architecture", ["rnn", "rnn-attention", "rnn-dot", "convolutional"])
def test_a_model_without_a_state_of_fixed_shapes_says_so(architecture) -> None:
    model = build(Model(architecture=architecture, encoder_layers=1, decoder_layers=1, d_model=8), 9, 9)
    assert not RecordedSearch(model).can(1)
    assert model.fixed_state(torch.zeros(2, dtype=torch.int64), 2, 16, 16) is None
