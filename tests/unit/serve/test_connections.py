"""Which connections are closed when room gets short, and whose turn it is."""

from collections.abc import Callable
from typing import Any

import pytest

from seq2see.serve.connections import Connections


class Loop:
    """An event loop of which each iteration is run by hand."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def call_soon(self, do: Callable[..., None], *given: Any) -> None:
        self.soon.append((do, given))

    def iterate(self) -> None:
        soon, self.soon = self.soon, []
        for do, given in soon:
            do(*given)


class Connection:
    """A connection with so many requests to read."""

    def __init__(self, network: str, loop: Any = None, requests: int = 0) -> None:
        self.network = network
        self.loop = loop
        self.surplus = False
        self.dropped = ""
        self.requests = requests
        self.read = 0

    @property
    def can_read(self) -> bool:
        return self.read < self.requests

    def read_request(self) -> bool:
        self.read += 1
        return True

    def drop(self, at_once: bool) -> None:
        self.dropped = "at once" if at_once else "idle"


def entered(room: Connections, network: str, number: int, busy: bool = False) -> list[Connection]:
    made = [Connection(network) for _ in range(number)]
    for each in made:
        room.enter(each)
        if busy:
            room.mark_busy(each)
    return made


def dropped(connections: list[Connection]) -> list[int]:
    return [number for number, each in enumerate(connections) if each.dropped]


def test_the_oldest_idle_connections_of_the_greediest_client_are_closed_first():
    room = Connections(10)
    greedy, others = entered(room, "greedy", 5), entered(room, "other", 4)
    entered(room, "polite", 3)
    assert dropped(greedy) == [0, 1]
    assert dropped(others) == []
    assert {each.dropped for each in greedy} == {"idle", ""}


def test_connections_that_were_used_outlive_those_that_never_were():
    room = Connections(10)
    first, *_ = greedy = entered(room, "greedy", 5)
    room.mark_busy(first)
    room.mark_idle(first)
    entered(room, "other", 4)
    entered(room, "polite", 3)
    assert dropped(greedy) == [1, 2]


def test_one_client_holds_half_of_them_and_makes_room_for_itself():
    room = Connections(10)
    idle = entered(room, "one", 9)
    assert dropped(idle) == [0, 1, 2, 3]
    assert not any(each.surplus for each in idle)


def test_where_all_are_at_work_more_of_the_same_client_are_surplus_and_in_the_end_not_taken():
    room = Connections(10)
    entered(room, "one", 5, busy=True)
    more = entered(room, "one", 16, busy=True)
    assert all(each.surplus for each in more)
    assert dropped(more) == [15]  # twice as many as are served
    assert more[15].dropped == "at once"


def test_for_another_client_the_newest_of_the_greediest_is_given_up():
    room = Connections(10)
    one, two = entered(room, "one", 5, busy=True), entered(room, "two", 4, busy=True)
    entered(room, "three", 1, busy=True)
    (polite,) = entered(room, "polite", 1)
    assert not polite.surplus
    assert one[4].dropped == "at once"
    assert dropped(two) == []


def test_the_only_idle_connection_of_a_small_client_is_not_closed_for_a_large_one():
    room = Connections(10)
    (small,) = entered(room, "small", 1)
    large = entered(room, "large", 5, busy=True)
    entered(room, "two", 4, busy=True)
    entered(room, "polite", 1)
    assert not small.dropped
    assert dropped(large) == [4]


def test_where_everybody_has_one_at_work_a_newcomer_is_surplus():
    room = Connections(4)
    for name in "abcd":
        entered(room, name, 1, busy=True)
    (late,) = entered(room, "e", 1)
    assert late.surplus


def test_who_left_makes_room():
    room = Connections(4)
    for each in entered(room, "one", 2):
        room.leave(each)
        room.leave(each)
        room.mark_idle(each)
        room.mark_busy(each)
    later = [*entered(room, "one", 2), *entered(room, "two", 2)]
    assert dropped(later) == []


@pytest.mark.parametrize("connections", [1, 100])
def test_a_client_has_one_turn_however_many_connections_it_has(connections):
    loop, room = Loop(), Connections(1000)
    greedy = [Connection("greedy", loop, requests=50) for _ in range(connections)]
    polite = Connection("polite", loop, requests=3)
    for each in (*greedy, polite):
        room.enter(each)
        room.wait_for_turn(each)
    for turn in range(1, 4):
        loop.iterate()
        assert polite.read == turn
        assert sum(each.read for each in greedy) == turn
    for _ in range(7):
        loop.iterate()
    assert max(each.read for each in greedy) - min(each.read for each in greedy) <= 1


def test_after_the_last_request_no_more_turns_are_given():
    loop, room = Loop(), Connections(10)
    one = Connection("one", loop, requests=2)
    room.enter(one)
    room.wait_for_turn(one)
    room.wait_for_turn(one)
    for _ in range(4):
        loop.iterate()
    assert (one.read, loop.soon) == (2, [])
