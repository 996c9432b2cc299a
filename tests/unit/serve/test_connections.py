"""Which connections are closed when room gets short, and whose turn it is."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from seq2see.serve.connections import MOST_BEGUN, PIPELINED_SECONDS, TURN_SECONDS, Connections


class Loop:
    """An event loop of which each iteration is run by hand."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.later: list[Callable[[], None]] = []
        self.now = 100.0
        self.paced: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def call_soon(self, do: Callable[..., None], *given: Any) -> None:
        self.soon.append((do, given))

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, do: Callable[..., None], *given: Any) -> None:
        if given:
            self.paced.append((self.now + seconds, do, given))
        else:
            self.later.append(do)

    def wait(self) -> None:
        """Let the time pass after which idle connections are closed."""
        later, self.later = self.later, []
        assert len(later) <= 1
        for do in later:
            do()

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


@pytest.fixture
def loop() -> Loop:
    return Loop()


def entered(room: Connections, loop: Loop, network: str, number: int, busy: bool = False) -> list[Connection]:
    made = [Connection(network, loop) for _ in range(number)]
    for each in made:
        room.enter(each)
        if busy:
            room.mark_busy(each)
    return made


def dropped(connections: list[Connection]) -> list[int]:
    return [number for number, each in enumerate(connections) if each.dropped]


def test_the_oldest_idle_connections_of_the_greediest_client_are_closed_first(loop):
    room = Connections(10)
    greedy, others = entered(room, loop, "greedy", 5), entered(room, loop, "other", 4)
    polite = entered(room, loop, "polite", 2)
    loop.wait()
    assert dropped(greedy) == [0]
    assert dropped(others) == dropped(polite) == []
    assert greedy[0].dropped == "idle"


def test_connections_that_were_used_outlive_those_that_never_were(loop):
    room = Connections(10)
    first, *_ = greedy = entered(room, loop, "greedy", 5)
    room.mark_busy(first)
    room.mark_idle(first)
    entered(room, loop, "other", 4)
    entered(room, loop, "polite", 3)
    loop.wait()
    assert dropped(greedy) == [1, 2]


def test_one_client_holds_half_of_them(loop):
    room = Connections(10)
    idle = entered(room, loop, "one", 9)
    assert dropped(idle) == []  # a request may be on its way
    room.mark_busy(idle[0])
    loop.wait()
    assert dropped(idle) == [1, 2, 3, 4]
    assert not any(each.surplus for each in idle)


def test_there_are_never_more_than_twice_as_many(loop):
    room = Connections(10)
    idle = entered(room, loop, "one", 30)
    assert dropped(idle) == [*range(10)]
    busy = Connections(10)
    assert dropped(entered(busy, loop, "one", 25, busy=True)) == [*range(20, 25)]


def test_where_all_are_at_work_more_of_the_same_client_are_surplus(loop):
    room = Connections(10)
    served = entered(room, loop, "one", 5, busy=True)
    assert all(each.surplus for each in entered(room, loop, "one", 3, busy=True))
    room.mark_idle(served[0])
    for each in served[1:]:
        room.leave(each)
    assert not any(each.surplus for each in entered(room, loop, "one", 1))


def test_for_another_client_the_newest_of_the_greediest_is_given_up(loop):
    room = Connections(10)
    one, two = entered(room, loop, "one", 5, busy=True), entered(room, loop, "two", 4, busy=True)
    entered(room, loop, "three", 1, busy=True)
    (polite,) = entered(room, loop, "polite", 1)
    assert not polite.surplus
    assert one[4].dropped == "at once"
    assert dropped(two) == []


def test_the_only_idle_connection_of_a_small_client_is_not_closed_for_a_large_one(loop):
    room = Connections(10)
    (small,) = entered(room, loop, "small", 1)
    entered(room, loop, "large", 5, busy=True)
    entered(room, loop, "two", 4, busy=True)
    (polite,) = entered(room, loop, "polite", 1)
    loop.wait()
    assert not small.dropped
    assert not polite.dropped


def test_where_everybody_has_one_at_work_a_newcomer_is_surplus(loop):
    room = Connections(4)
    for name in "abcd":
        entered(room, loop, name, 1, busy=True)
    (late,) = entered(room, loop, "e", 1)
    assert late.surplus


def test_who_left_makes_room(loop):
    room = Connections(4)
    for each in entered(room, loop, "one", 2):
        room.leave(each)
        room.leave(each)
        room.mark_idle(each)
        room.mark_busy(each)
    later = [*entered(room, loop, "one", 2), *entered(room, loop, "two", 2)]
    loop.wait()
    assert dropped(later) == []


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass while requests are read, however busy the machine is."""
    monkeypatch.setattr("seq2see.serve.connections.time.monotonic", lambda: 100.0)


@pytest.mark.parametrize("connections", [1, 100])
@pytest.mark.usefixtures("stopped_clock")
def test_a_client_has_one_turn_however_many_connections_it_has(loop, connections):
    room = Connections(1000)
    greedy = [Connection("greedy", loop, requests=100) for _ in range(connections)]
    polite = Connection("polite", loop, requests=3 * MOST_BEGUN // 2)
    for each in (*greedy, polite):
        room.enter(each)
        room.wait_for_turn(each)
    for iteration in range(1, 4):
        loop.iterate()
        assert polite.read == sum(each.read for each in greedy) == iteration * MOST_BEGUN // 2
    for _ in range(7):
        loop.iterate()
    assert max(each.read for each in greedy) - min(each.read for each in greedy) <= 1
    assert sum(each.read for each in greedy) == 17 * MOST_BEGUN // 2


@pytest.mark.usefixtures("stopped_clock")
def test_where_many_clients_wait_each_begins_one_request_in_an_iteration(loop):
    room = Connections(1000)
    many = [Connection(f"client {number}", loop, requests=5) for number in range(3 * MOST_BEGUN)]
    for each in many:
        room.enter(each)
        room.wait_for_turn(each)
    for iteration in range(1, 4):
        loop.iterate()
        assert {each.read for each in many} == {iteration}


def test_no_second_turn_is_given_when_the_first_took_long(loop, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr("seq2see.serve.connections.time.monotonic", lambda: next(clock) * TURN_SECONDS / 3)
    room = Connections(10)
    slow = Connection("slow", loop, requests=5)
    room.enter(slow)
    room.wait_for_turn(slow)
    loop.iterate()
    assert slow.read == 1


def test_after_the_last_request_no_more_turns_are_given(loop):
    room = Connections(10)
    one = Connection("one", loop, requests=2)
    room.enter(one)
    room.wait_for_turn(one)
    room.wait_for_turn(one)
    for _ in range(4):
        loop.iterate()
    assert (one.read, loop.soon) == (2, [])


def test_pipelined_requests_of_a_client_are_read_at_a_pace(loop):
    room = Connections(10)
    greedy = [Connection("greedy", loop, requests=9) for _ in range(3)]
    other = Connection("other", loop, requests=9)
    for each in (*greedy, other):
        room.enter(each)
        room.wait_to_go_on(each)
    pauses = [round((when - loop.now) / PIPELINED_SECONDS) for when, _, _ in loop.paced]
    assert pauses == [1, 2, 3, 1]
    assert loop.soon == []
