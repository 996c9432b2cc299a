"""Who is served next, and how much of it, without an engine."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from seq2see.serve.jobs import Asked, FairQueue, Job, Key

KEY = Key("translate", "one", 5)


def job(name: str, *costs: int, client: str = "", key: Key = KEY) -> Job:
    lines = [f"{name}{place}" for place in range(len(costs))]
    return Job(key, Asked(lines), costs, client)


def played(scene: Callable[[FairQueue], None]) -> None:
    """Jobs need an event loop to be made in."""

    async def run() -> None:
        scene(FairQueue())

    asyncio.run(run())


def lines(queue: FairQueue, budget: float) -> list[list[str]]:
    """The lines of every slice of the next batch."""
    return [each.asked.lines for each in queue.take(budget)]


def test_a_long_job_is_split_and_others_come_in_between():
    def scene(queue: FairQueue) -> None:
        queue.add(job("long", *[10] * 6))
        assert lines(queue, 20) == [["long0", "long1"]]
        queue.add(job("short", 10))
        queue.add(job("late", 10))
        assert lines(queue, 20) == [["short0"], ["late0"]]
        assert lines(queue, 20) == [["long2", "long3"]]
        assert queue.work == 20
        assert lines(queue, 1000) == [["long4", "long5"]]
        assert (len(queue), queue.work, queue.take(10)) == (0, 0, [])

    played(scene)


def test_a_line_larger_than_the_budget_goes_alone():
    def scene(queue: FairQueue) -> None:
        queue.add(job("large", 100, 100))
        queue.add(job("small", 1))
        assert lines(queue, 15) == [["large0"]]
        assert lines(queue, 15) == [["small0"]]
        assert lines(queue, 15) == [["large1"]]

    played(scene)


def test_many_jobs_of_one_client_do_not_delay_another():
    def scene(queue: FairQueue) -> None:
        for number in range(100):
            queue.add(job(f"crowd{number}-", 10, client="crowd"))
        lines(queue, 10)
        queue.add(job("polite", 10, client="polite"))
        assert lines(queue, 10) == [["polite0"]]
        queue.add(job("polite", 10, 10, client="polite"))
        batches = [lines(queue, 10)[0][0] for _ in range(4)]
        assert sorted(each[:5] for each in batches) == ["crowd", "crowd", "polit", "polit"]

    played(scene)


def test_a_stream_of_small_jobs_does_not_starve_a_long_one():
    def scene(queue: FairQueue) -> None:
        queue.add(job("long", *[10] * 5))
        for turn in range(40):
            queue.add(job(f"small{turn}-", 10))
            taken = lines(queue, 10)[0][0]
            if taken == "long4":
                return
        pytest.fail("the long job was not finished")

    played(scene)


def test_only_jobs_of_one_key_share_a_batch_and_suspects_none():
    def scene(queue: FairQueue) -> None:
        queue.add(job("a", 1))
        queue.add(job("other", 1, key=KEY._replace(beam=1)))
        suspect = job("suspect", 1)
        suspect.alone = True
        queue.add(suspect)
        queue.add(job("b", 1))
        assert lines(queue, 100) == [["a0"], ["b0"]]
        assert lines(queue, 100) == [["other0"]]
        assert lines(queue, 100) == [["suspect0"]]

    played(scene)


def test_what_the_engine_has_not_answered_waits_again():
    def scene(queue: FairQueue) -> None:
        queue.add(job("long", 10, 10, 10))
        assert len(queue.take(10)) == 1
        (second,) = queue.take(10)
        queue.put_back(second)
        assert (second.begin, queue.work) == (1, 20)
        assert lines(queue, 100) == [["long1", "long2"]]

    played(scene)


def test_answers_to_lines_that_wait_again_are_dropped():
    def scene(queue: FairQueue) -> None:
        queue.add(job("long", 10, 10, 10))
        (first,), (second,) = queue.take(10), queue.take(10)
        second.job.parts[second.begin] = "answered"
        queue.put_back(first)
        assert (first.job.parts, queue.work) == ({}, 30)

    played(scene)


def test_who_leaves_takes_the_work_along():
    def scene(queue: FairQueue) -> None:
        one, other = job("one", 10, 10), job("other", 5)
        queue.add(one)
        queue.add(other)
        queue.take(10)
        for _ in range(2):  # it may be gone already
            queue.remove(one)
        assert (queue.work, len(queue)) == (5, 1)

    played(scene)


@pytest.mark.parametrize(("client", "ahead"), [("crowd", 50 * 10), ("polite", 10), (None, 50 * 10)])
def test_how_much_is_ahead_depends_on_who_asks(client: str | None, ahead: int):
    def scene(queue: FairQueue) -> None:
        for _ in range(50):
            queue.add(job("crowd", *[10] * 10, client="crowd"))
        assert queue.ahead_of(10, client) == ahead
        queue.take(1000)
        assert queue.ahead_of(10, client) <= ahead

    played(scene)


def test_clients_that_are_gone_are_forgotten():
    def scene(queue: FairQueue) -> None:
        queue.add(job("first", *[1] * 2000, client="first"))
        for number in range(1000):
            queue.add(job("", 1, client=f"client {number}"))
            queue.take(2)
        remembered: Any = queue._clocks
        assert len(remembered) < 200

    played(scene)


def test_one_client_with_most_of_what_waits_is_noticed():
    def scene(queue: FairQueue) -> None:
        for _ in range(5):
            queue.add(job("crowd", 1, client="crowd"))
        assert not queue.dominated  # there is nobody else
        queue.add(job("polite", 1, client="polite"))
        assert queue.dominated
        for number in range(5):
            queue.add(job("other", 1, client=f"other {number}"))
        assert not queue.dominated

    played(scene)
