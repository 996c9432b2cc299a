"""A line of jobs before an engine that is only played."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from seq2see.serve import batching
from seq2see.serve.batching import Job, Lane
from seq2see.serve.engine_process import Facts, Key, Setup
from seq2see.serve.limits import Limits, RefusedError

ONE, OTHER = Key("translate", "one", 5), Key("translate", "one", 1)


class Played:
    """Instead of an engine process: answers a batch when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gone: list[int] = []
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.messages.put_nowait(("ready", {"one": Facts("played", 1.0)}))
        self.ended = False
        self.death: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send(self, message: Any) -> None:
        if message[0] == "gone":
            self.gone.append(message[1])
        else:
            self.batches.append([number for number, _ in message[2]])

    async def receive(self) -> Any:
        message = await self.messages.get()
        if message == "die":
            raise EOFError
        return message

    def answer(self) -> None:
        """All of the last batch."""
        for number in self.batches[-1]:
            self.messages.put_nowait(("done", number, f"answer {number}"))
        self.messages.put_nowait(("end",))

    async def end(self) -> None:
        self.ended = True


def play(
    monkeypatch: pytest.MonkeyPatch, scene: Callable[[Lane, list[Played]], Awaitable[None]], **limits: Any
) -> list[Any]:
    """A scene with a lane whose engines are played; what was heard of it."""
    heard: list[Any] = []

    async def run() -> None:
        engines: list[Played] = []

        async def start(name: str, setup: Setup) -> Played:
            engines.append(Played())
            return engines[-1]

        monkeypatch.setattr(batching.Process, "start", start)
        lane = Lane("played", Setup({}, "auto", None, 10, False), Limits(**limits), lambda *what: heard.append(what))
        working = asyncio.create_task(lane.run())
        await settle()
        try:
            await asyncio.wait_for(scene(lane, engines), 20)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run())
    return heard


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_waits_goes_together_by_kind_and_budget(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        first = asyncio.create_task(lane.do(Job(ONE, {}, 5)))
        await settle()
        jobs = [Job(key, {}, 5) for key in (ONE, OTHER, ONE, ONE, ONE)]
        rest = [asyncio.create_task(lane.do(job)) for job in jobs]
        await settle()
        assert lane.waiting == 5
        assert lane.waiting_tokens == 25
        (engine,) = engines
        for size in (1, 3, 1, 1):  # alone; three of a kind fill the budget; the other kind; what is left
            assert len(engine.batches[-1]) == size
            engine.answer()
            await settle()
        assert engine.batches[1] == [jobs[place].number for place in (0, 2, 3)]
        assert engine.batches[2] == [jobs[1].number]
        assert [await each for each in rest] == [f"answer {job.number}" for job in jobs]
        await first
        assert lane.waiting_tokens == 0

    heard = play(monkeypatch, scene, batch_tokens=15)
    assert [what[2] for what in heard if what[0] == "batch"] == [1, 3, 1, 1]


def test_a_job_larger_than_the_budget_goes_alone(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        tasks = [asyncio.create_task(lane.do(Job(ONE, {}, tokens))) for tokens in (100, 1)]
        await settle()
        assert len(engines[0].batches[-1]) == 1
        engines[0].answer()
        await settle()
        engines[0].answer()
        await asyncio.gather(*tasks)

    play(monkeypatch, scene, batch_tokens=15)


@pytest.mark.parametrize("limits", [{"queue_requests": 2}, {"queue_tokens": 10}])
def test_a_full_queue_refuses(monkeypatch, limits):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        tasks = [asyncio.create_task(lane.do(Job(ONE, {}, 5)))]
        await settle()
        tasks += [asyncio.create_task(lane.do(Job(ONE, {}, 5))) for _ in range(2)]
        await settle()
        assert lane.full
        with pytest.raises(RefusedError) as refused:
            await lane.do(Job(ONE, {}, 5))
        assert refused.value.status == 429
        assert refused.value.retry_after == 1
        for _ in range(2):
            engines[0].answer()
            await settle()
        assert not lane.full
        await asyncio.gather(*tasks)

    play(monkeypatch, scene, **limits)


def test_who_stops_waiting_leaves(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        running, waiting = Job(ONE, {}, 5), Job(ONE, {}, 5)
        tasks = [asyncio.create_task(lane.do(running))]
        await settle()
        tasks.append(asyncio.create_task(lane.do(waiting)))
        await settle()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert lane.waiting == lane.waiting_tokens == 0
        assert engines[0].gone == [running.number]
        engines[0].answer()  # to nobody
        await settle()
        last = asyncio.create_task(lane.do(Job(ONE, {}, 5)))
        await settle()
        engines[0].answer()
        await last

    assert play(monkeypatch, scene).count(("hang_up", "played")) == 2


def test_an_answer_to_one_who_has_just_stopped_waiting_does_no_harm(monkeypatch, capsys):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        (engine,) = engines
        for last in ("end", "die"):
            job = Job(ONE, {}, 5)
            task = asyncio.create_task(lane.do(job))
            await settle()
            task.cancel()  # which cancels the answer now, and leaves the line only when it is the task's turn
            if last == "end":
                lane._deliver("done", job.number, "too late")
                engine.messages.put_nowait(("end",))
            else:
                lane._fail_running()
            await asyncio.gather(task, return_exceptions=True)
            await settle()
        engine.messages.put_nowait(("end",))
        again = asyncio.create_task(lane.do(Job(ONE, {}, 5)))
        await settle()
        engine.answer()
        assert (await again).startswith("answer")
        assert len(engines) == 1

    play(monkeypatch, scene)
    assert not capsys.readouterr().err


def test_an_engine_that_cannot_be_started_is_tried_again(monkeypatch, capsys):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        start = batching.Process.start
        refusals = iter([OSError(12, "Cannot allocate memory")])

        async def sometimes(name: str, setup: Setup) -> Any:
            for refusal in refusals:
                raise refusal
            return await start(name, setup)

        monkeypatch.setattr(batching.Process, "start", sometimes)
        engines[0].messages.put_nowait("die")
        asyncio.create_task(lane.do(Job(ONE, {}, 5))).add_done_callback(lambda task: task.exception())
        await settle()
        assert not lane.ready
        while not lane.ready:
            await asyncio.sleep(0.01)
        assert len(engines) == 2

    heard = play(monkeypatch, scene)
    assert heard.count(("restart", "played")) == 2
    assert "OSError" in capsys.readouterr().err


def test_a_dead_engine_is_replaced_and_only_its_jobs_fail(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        running = asyncio.create_task(lane.do(Job(ONE, {}, 5)))
        await settle()
        waiting = asyncio.create_task(lane.do(Job(ONE, {}, 5)))
        await settle()
        engines[0].messages.put_nowait("die")
        await settle()
        with pytest.raises(RefusedError) as refused:
            await running
        assert refused.value.status == 503
        assert engines[0].ended
        while len(engines) < 2 or not engines[1].batches:
            await asyncio.sleep(0.01)
        engines[1].answer()
        assert (await waiting).startswith("answer")

    assert ("restart", "played") in play(monkeypatch, scene)


def test_an_engine_that_dies_with_nothing_to_do_is_replaced_at_once(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        engines[0].death.set_result(-9)
        await settle()
        assert len(engines) == 2
        assert lane.ready

    assert ("restart", "played") in play(monkeypatch, scene)


def test_an_idle_engine_is_asked_whether_it_is_there(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        while not engines[0].batches:
            await asyncio.sleep(0.01)
        assert engines[0].batches == [[]]
        assert lane.silent > 0
        engines[0].answer()
        await settle()
        assert lane.silent == 0
        assert lane.ready

    monkeypatch.setattr(batching, "PING", 0.01)
    assert not [what for what in play(monkeypatch, scene) if what[0] == "batch"]


def test_a_stuck_engine_is_replaced(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        with pytest.raises(RefusedError) as refused:
            await lane.do(Job(ONE, {}, 5))
        assert refused.value.status == 503
        assert engines[0].ended

    play(monkeypatch, scene, deadline=-4.9)


def test_before_it_is_loaded_nothing_is_taken(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        engines[0].messages.put_nowait("die")
        job = asyncio.create_task(lane.do(Job(ONE, {}, 5)))
        await settle()
        with pytest.raises(RefusedError):
            await job
        lane.facts = {}
        with pytest.raises(RefusedError) as refused:
            await lane.do(Job(ONE, {}, 5))
        assert refused.value.status == 503

    play(monkeypatch, scene)


def test_tokens_come_before_the_answer(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        job = Job(Key("stream", "one", 1), {}, 5)
        lane.put(job)
        await settle()
        engines[0].messages.put_nowait(("token", job.number, {"token": "a"}))
        engines[0].answer()
        found = [each async for each in lane.stream(job)]
        assert found == [("token", {"token": "a"}), ("end", f"answer {job.number}")]

    play(monkeypatch, scene)


def test_more_than_can_be_done_in_time_is_refused_and_batches_stay_short(monkeypatch):
    now = 0.0
    monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: now))

    async def scene(lane: Lane, engines: list[Played]) -> None:
        nonlocal now
        (engine,) = engines
        tasks = [asyncio.create_task(lane.do(Job(ONE, {}, 10)))]
        await settle()
        tasks += [asyncio.create_task(lane.do(Job(ONE, {}, 10))) for _ in range(250)]
        await settle()
        sizes = []
        for seconds in (9, 0.5, 0.5, 25.6):  # one alone may be slow; then 500 tokens a second, and then 20
            sizes.append(len(engine.batches[-1]))
            now += seconds
            engine.answer()
            await settle()
            lane.check()
        assert sizes == [1, 12, 25, 51]
        assert len(engine.batches[-1]) == 12
        for _ in range(2):
            now += 64
            engine.answer()
            await settle()
        with pytest.raises(RefusedError) as refused:
            lane.check()
        assert refused.value.status == 429
        assert refused.value.retry_after == 12
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(monkeypatch, scene, deadline=20.0, queue_requests=1000)
