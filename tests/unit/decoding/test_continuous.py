"""Sentences that enter and leave a search at any time get what they would get alone."""

import pytest

from searching import some_tasks, talkative
from seq2see.config import Decoding
from seq2see.decoding import continuous
from seq2see.decoding.continuous import SlotSearch
from seq2see.decoding.hypothesis import Task
from seq2see.decoding.recorded import RecordedSearch
from seq2see.decoding.torch_engine import TorchEngine


def finish(search: SlotSearch) -> dict[object, list[list[int]]]:
    found = {}
    while search:
        found |= {name: [each.tokens for each in hypotheses] for name, hypotheses in search.advance()}
    return found


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("sizes", [(1, 3), (2, 8, 64)])
def test_who_enters_while_others_are_in_flight_gets_what_a_search_alone_finds(monkeypatch, beam, sizes) -> None:
    monkeypatch.setattr(continuous, "SIZES", sizes)
    monkeypatch.setattr(continuous, "MOST", sizes[-1])
    monkeypatch.setattr(continuous, "SHORTEST_SOURCE", 16)  # sentences need slots of different sizes
    made, settings, tasks = talkative("rotary", "pre"), Decoding(beam=beam), some_tasks(40, longest=30)
    expected = TorchEngine(made).search(tasks, settings)
    search, found, most = SlotSearch(RecordedSearch(made), settings), {}, 0
    for number, task in enumerate(tasks):
        search.add(number, task)
        if number % 3 == 2:
            found |= {name: [each.tokens for each in some] for name, some in search.advance()}
            most = max(most, search.in_flight)
    found |= finish(search)
    assert most > 1
    assert [found[number] for number in range(40)] == [[each.tokens for each in one] for one in expected]
    assert len(search) == search.in_flight == 0


def test_who_leaves_frees_a_slot_and_changes_nothing_for_others(monkeypatch) -> None:
    monkeypatch.setattr(continuous, "SIZES", (4,))
    monkeypatch.setattr(continuous, "MOST", 4)
    made, settings = talkative(end=-30.0), Decoding(beam=2)
    task = Task([7, 8, 9, 3], 30, [])
    (alone,) = TorchEngine(made).search([task], settings)
    search = SlotSearch(RecordedSearch(made), settings)
    for number in range(6):
        search.add(number, task)
    search.advance()
    assert (search.in_flight, len(search)) == (4, 6)
    search.drop(lambda name: name in (0, 1, 5))  # two in flight, one that waits
    assert (search.in_flight, len(search)) == (2, 3)
    search.advance()
    assert (search.in_flight, len(search)) == (3, 3)
    assert finish(search) == {number: [each.tokens for each in alone] for number in (2, 3, 4)}


def test_few_sentences_take_few_slots(monkeypatch) -> None:
    made = talkative(end=-30.0)
    recorded = RecordedSearch(made)
    search = SlotSearch(recorded, Decoding(beam=1))
    search.add("one", Task([7, 3], 10, []))
    search.advance()
    for number in range(20):
        search.add(number, Task([7, 3], 10, []))
    finish(search)
    assert {size for size, *_ in recorded._kept} == {4, 32}


def test_a_sentence_that_may_say_nothing_is_done_at_once() -> None:
    search = SlotSearch(RecordedSearch(talkative()), Decoding(beam=2))
    search.add("nothing", Task([5, 3], 0, []))
    assert search.advance() == [("nothing", [])]
    assert search.advance() == []


def test_a_warm_up_leaves_all_slots_free(monkeypatch) -> None:
    monkeypatch.setattr(continuous, "SIZES", (2, 4))
    recorded = RecordedSearch(talkative())
    search = SlotSearch(recorded, Decoding(beam=2))
    search.warm_up()
    assert not search
    assert {size for size, *_ in recorded._kept} == {2, 4}
