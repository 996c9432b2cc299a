"""A queue of jobs before an engine that is only played."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from seq2see.serve import lanes
from seq2see.serve.jobs import Asked, Facts, Job, Key, Setup
from seq2see.serve.lanes import EngineProcess, Lane
from seq2see.serve.limits import Limits, RefusedError

ONE, OTHER = Key("translate", "one", 5), Key("translate", "one", 1)
NOTHING = Asked([])


class Played:
    """Instead of an engine process: answers a batch when it is told to."""

    def __init__(self, slots: int = 0) -> None:
        self.batches: list[list[int]] = []
        """The numbers of the slices in each batch."""
        self.asked: list[list[Any]] = []
        """What they ask for."""
        self.gone: list[int] = []
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.messages.put_nowait(("ready", {"one": Facts("played", 1.0, slots=slots)}))
        self.ended = False
        self.death: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send(self, message: Any) -> None:
        if message[0] == "gone":
            self.gone.append(message[1])
        else:
            self.batches.append([number for number, _ in message[2]])
            self.asked.append([what for _, what in message[2]])

    async def receive(self) -> Any:
        message = await self.messages.get()
        if message == "die":
            raise EOFError
        return message

    def answer_one(self, number: int) -> None:
        """Answer one slice of a batch that others may join."""
        self.messages.put_nowait(("done", number, "answered"))

    def answer(self) -> None:
        """Answer all of the last batch, with what was asked."""
        for number, what in zip(self.batches[-1], self.asked[-1], strict=True):
            self.messages.put_nowait(("done", number, what.lines))
        self.messages.put_nowait(("end",))

    async def end(self) -> int:
        self.ended = True
        return self.death.result() if self.death.done() else 0


def play(
    monkeypatch: pytest.MonkeyPatch,
    scene: Callable[[Lane, list[Played]], Awaitable[None]],
    slots: int = 0,
    **limits: Any,
) -> list[Any]:
    """A scene with a lane whose engines are played; what was heard of it."""
    heard: list[Any] = []

    async def run() -> None:
        engines: list[Played] = []

        async def start(name: str, setup: Setup) -> Played:
            engines.append(Played(slots))
            return engines[-1]

        monkeypatch.setattr(EngineProcess, "start", start)
        lane = Lane("played", Setup({}, "auto", None, 10, False), Limits(**limits), lambda *what: heard.append(what))
        working = asyncio.create_task(lane.run())
        await settle()
        try:
            await asyncio.wait_for(scene(lane, engines), 120)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run())
    return heard


async def do(lane: Lane, job: Job) -> list[Any]:
    """The answers to a job, which is let in and waits as those of the service do."""
    lane.check(job.client)
    lane.put(job)
    return await lane.finish(job)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_waits_goes_together_by_kind_and_budget(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        first = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        jobs = [Job(key, Asked([place]), [5]) for place, key in enumerate((ONE, OTHER, ONE, ONE, ONE))]
        rest = [asyncio.create_task(do(lane, job)) for job in jobs]
        await settle()
        assert len(lane.queue) == 5
        assert lane.queue.work == 25
        (engine,) = engines
        for size in (1, 3, 1, 1):  # alone; three of a kind fill the budget; the other kind; what is left
            assert len(engine.batches[-1]) == size
            engine.answer()
            await settle()
        assert engine.asked[1:] == [[Asked([place]) for place in some] for some in ((0, 2, 3), (1,), (4,))]
        assert [await each for each in rest] == [[[place]] for place in range(5)]
        await first
        assert lane.queue.work == 0

    heard = play(monkeypatch, scene, batch_tokens=15)
    assert [what[2] for what in heard if what[0] == "batch"] == [1, 3, 1, 1]


def test_a_job_larger_than_the_budget_goes_alone(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        tasks = [asyncio.create_task(do(lane, Job(ONE, NOTHING, [tokens]))) for tokens in (100, 1)]
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
        tasks = [asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))]
        await settle()
        tasks += [asyncio.create_task(do(lane, Job(ONE, NOTHING, [5]))) for _ in range(2)]
        await settle()
        assert lane.is_full()
        with pytest.raises(RefusedError) as refused:
            await do(lane, Job(ONE, NOTHING, [5]))
        assert refused.value.status == 429
        assert refused.value.retry_after == 1
        for _ in range(2):
            engines[0].answer()
            await settle()
        assert not lane.is_full()
        await asyncio.gather(*tasks)

    play(monkeypatch, scene, **limits)


def test_who_stops_waiting_leaves(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        running, waiting = Job(ONE, NOTHING, [5]), Job(ONE, NOTHING, [5])
        tasks = [asyncio.create_task(do(lane, running))]
        await settle()
        tasks.append(asyncio.create_task(do(lane, waiting)))
        await settle()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(lane.queue) == lane.queue.work == 0
        assert engines[0].gone == engines[0].batches[0]
        engines[0].answer()  # to nobody
        await settle()
        last = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        engines[0].answer()
        await last

    assert play(monkeypatch, scene).count(("hang_up", "played")) == 2


def test_an_answer_to_one_who_has_just_stopped_waiting_does_no_harm(monkeypatch, capsys):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        (engine,) = engines
        for last in ("end", "die"):
            job = Job(ONE, NOTHING, [5])
            task = asyncio.create_task(do(lane, job))
            await settle()
            task.cancel()  # which cancels the answer now, and leaves the line only when it is the task's turn
            if last == "end":
                lane._deliver("done", engine.batches[-1][0], "too late")
                engine.messages.put_nowait(("end",))
            else:
                lane._recover()
            await asyncio.gather(task, return_exceptions=True)
            await settle()
        engine.messages.put_nowait(("end",))
        again = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        engine.answer()
        assert await again == [[]]
        assert len(engines) == 1

    play(monkeypatch, scene)
    assert not capsys.readouterr().err


def test_an_engine_that_cannot_be_started_is_tried_again(monkeypatch, capsys):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        start = EngineProcess.start
        refusals = iter([OSError(12, "Cannot allocate memory")])

        async def sometimes(name: str, setup: Setup) -> Any:
            for refusal in refusals:
                raise refusal
            return await start(name, setup)

        monkeypatch.setattr(EngineProcess, "start", sometimes)
        engines[0].messages.put_nowait("die")
        asyncio.create_task(do(lane, Job(ONE, NOTHING, [5]))).add_done_callback(lambda task: task.exception())
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
        running = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        waiting = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
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
        assert await waiting == [[]]

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

    monkeypatch.setattr(lanes, "PING", 0.01)
    assert not [what for what in play(monkeypatch, scene) if what[0] == "batch"]


def test_a_stuck_engine_is_replaced(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        with pytest.raises(RefusedError) as refused:
            await do(lane, Job(ONE, NOTHING, [5]))
        assert refused.value.status == 503
        assert engines[0].ended

    play(monkeypatch, scene, deadline=-4.9)


def test_before_it_is_loaded_nothing_is_taken(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        engines[0].messages.put_nowait("die")
        job = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        with pytest.raises(RefusedError):
            await job
        lane.facts = {}
        with pytest.raises(RefusedError) as refused:
            await do(lane, Job(ONE, NOTHING, [5]))
        assert refused.value.status == 503

    play(monkeypatch, scene)


def test_tokens_come_before_the_answer(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        job = Job(Key("stream", "one", 1), NOTHING, [5])
        lane.put(job)
        await settle()
        engines[0].messages.put_nowait(("token", engines[0].batches[0][0], {"token": "a"}))
        engines[0].answer()
        found = [each async for each in lane.stream(job)]
        assert found == [("token", {"token": "a"}), ("end", [])]

    play(monkeypatch, scene)


def test_more_than_can_be_done_in_time_is_refused_and_batches_stay_short(monkeypatch):
    now = 0.0
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: now))

    async def scene(lane: Lane, engines: list[Played]) -> None:
        nonlocal now
        (engine,) = engines
        tasks = [asyncio.create_task(do(lane, Job(ONE, NOTHING, [10])))]
        await settle()
        tasks += [asyncio.create_task(do(lane, Job(ONE, NOTHING, [10]))) for _ in range(450)]
        await settle()
        sizes = []
        for seconds in (9, 0.5, 0.5, 50):  # one alone may be slow; then 500 and 1,000 a second, and then 20
            sizes.append(len(engine.batches[-1]))
            now += seconds
            engine.answer()
            await settle()
            lane.check()
        assert sizes == [1, 25, 51, 102]
        assert len(engine.batches[-1]) == 25
        for _ in range(3):
            now += 250
            engine.answer()
            await settle()
        with pytest.raises(RefusedError) as refused:
            lane.check()
        assert refused.value.status == 429
        assert 11 <= refused.value.retry_after <= 60
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(monkeypatch, scene, deadline=20.0, queue_requests=1000)


def lines(count: int) -> Asked:
    return Asked([f"line {place}" for place in range(count)])


def test_a_request_is_split_over_batches_and_answered_as_one(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        (engine,) = engines
        long = asyncio.create_task(do(lane, Job(ONE, lines(5), [10] * 5)))
        await settle()
        short = asyncio.create_task(do(lane, Job(ONE, lines(1), [10])))
        await settle()
        sizes = []
        while not long.done():
            sizes.append([len(what.lines) for what in engine.asked[-1]])
            engine.answer()
            await settle()
        assert sizes == [[2], [1, 1], [2]]
        assert [line for part in await long for line in part] == lines(5).lines
        assert short.done()

    play(monkeypatch, scene, batch_tokens=20)


def test_what_was_not_begun_is_not_started_for_who_has_left(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        task = asyncio.create_task(do(lane, Job(ONE, lines(5), [10] * 5)))
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert lane.queue.work == 0
        engines[0].answer()
        await settle()
        assert len(engines[0].batches) == 1

    play(monkeypatch, scene, batch_tokens=20)


def test_a_refused_part_refuses_the_whole_and_starts_no_other(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        task = asyncio.create_task(do(lane, Job(ONE, lines(5), [10] * 5)))
        await settle()
        engines[0].messages.put_nowait(("refused", engines[0].batches[0][0], 400, "no", {"code": "never"}))
        engines[0].messages.put_nowait(("end",))
        await settle()
        with pytest.raises(RefusedError) as refused:
            await task
        assert (refused.value.status, refused.value.line, refused.value.details) == (400, "no", {"code": "never"})
        assert len(engines[0].batches) == 1
        assert lane.queue.work == 0

    play(monkeypatch, scene, batch_tokens=20)


def known(rate: float) -> dict[str, Facts]:
    return {"one": Facts("played", 1.0, 10, rate)}


def test_more_work_than_fits_into_the_deadline_is_refused_at_once(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        lane.facts = known(10.0)
        lane.assume(10.0)
        with pytest.raises(RefusedError) as refused:
            await do(lane, Job(ONE, lines(11), [100] * 11, about="2,464 tokens x beam 10"))
        assert refused.value.status == 413
        for word in ("too much work for one request", "2,464 tokens x beam 10", "110 seconds", "30 seconds"):
            assert word in refused.value.line
        assert not engines[0].batches
        asyncio.create_task(do(lane, Job(ONE, lines(1), [40]))).add_done_callback(lambda task: task.cancelled())
        await settle()
        assert engines[0].batches, "an ordinary request is never refused for its size"

    play(monkeypatch, scene)


def test_a_killed_batch_corrects_the_estimate_and_fails_nobody_else(monkeypatch):
    """The request that took the engine along is refused at once when it comes again; those who waited are answered."""
    now = 0.0
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(lanes, "STUCK", 0.05)

    async def scene(lane: Lane, engines: list[Played]) -> None:
        nonlocal now
        lane.assume(1000.0)
        lane.facts = known(1000.0)
        heavy = asyncio.create_task(do(lane, Job(ONE, NOTHING, [2000])))
        await settle()
        others = [asyncio.create_task(do(lane, Job(ONE, NOTHING, [5]))) for _ in range(3)]
        await settle()
        now += 100.0
        with pytest.raises(RefusedError) as refused:
            await heavy
        assert refused.value.status == 503
        assert "within" in str(lane.problem) or lane.ready
        while len(engines) < 2 or not engines[1].batches:
            await asyncio.sleep(0.01)
        with pytest.raises(RefusedError) as refused:
            await do(lane, Job(ONE, NOTHING, [2000]))
        assert refused.value.status == 413
        while not all(task.done() for task in others):
            engines[1].answer()
            await settle()
        now += 3600.0  # it may have been the machine: much later it is tried again
        lane.put(Job(ONE, NOTHING, [2000]))

    play(monkeypatch, scene)


def test_jobs_that_shared_a_batch_with_the_cause_are_tried_again_alone(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        blocker = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        tasks = [asyncio.create_task(do(lane, Job(ONE, Asked([place]), [5]))) for place in range(3)]
        await settle()
        engines[0].answer()
        await settle()
        assert len(engines[0].batches[-1]) == 3
        culprit = engines[0].asked[-1][1]
        engines[0].messages.put_nowait("die")
        for life in range(1, 3):
            while len(engines) <= life or not engines[life].batches:
                await asyncio.sleep(0.01)
            while len(engines) == life + 1 and not all(task.done() for task in tasks):
                assert len(engines[life].batches[-1]) == 1
                if engines[life].asked[-1] == [culprit]:
                    engines[life].messages.put_nowait("die")
                else:
                    engines[life].answer()
                await settle()
            if all(task.done() for task in tasks):
                break
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, RefusedError) for each in found] == [False, True, False]
        await blocker

    play(monkeypatch, scene)


def test_a_full_queue_takes_from_the_client_with_most_for_one_with_few(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        crowd = [asyncio.create_task(do(lane, Job(ONE, NOTHING, [1], "crowd")))]
        await settle()
        crowd += [asyncio.create_task(do(lane, Job(ONE, NOTHING, [1], "crowd"))) for _ in range(11)]
        await settle()
        assert lane.is_full()
        assert lane.is_full("crowd")
        assert not lane.is_full("polite")
        polite = asyncio.create_task(do(lane, Job(OTHER, Asked(["polite"]), [1], "polite")))
        await settle()
        assert [task.done() for task in crowd].count(True) == 2  # one was too many, one had to make room
        engines[0].answer()
        await settle()
        assert engines[0].asked[-1] == [Asked(["polite"])]
        engines[0].answer()
        assert await polite == [["polite"]]
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)

    play(monkeypatch, scene, queue_requests=10)


def test_an_engine_that_hangs_while_loading_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(lanes, "PING", 0.01)  # an idle engine that is dead is noticed soon

    async def scene(lane: Lane, engines: list[Played]) -> None:
        engines[0].messages.put_nowait("die")
        monkeypatch.setattr(EngineProcess, "start", hanging)
        while len(hung) < 2:
            await asyncio.sleep(0.01)
        assert hung[0].ended
        assert "--load-timeout" in str(lane.problem)
        assert not lane.ready
        with pytest.raises(RefusedError) as refused:
            lane.check()
        assert refused.value.status == 503
        monkeypatch.setattr(EngineProcess, "start", well)
        while not lane.ready:
            await asyncio.sleep(0.01)
        assert lane.problem is None

    hung: list[Played] = []

    async def hanging(name: str, setup: Setup) -> Played:
        hung.append(Played())
        hung[-1].messages.get_nowait()
        return hung[-1]

    async def well(name: str, setup: Setup) -> Played:
        return Played()

    heard = play(monkeypatch, scene, load_seconds=0.05)
    assert heard.count(("restart", "played")) >= 2


def test_a_failure_to_load_again_is_said_and_tried_again(monkeypatch):
    monkeypatch.setattr(lanes, "PING", 0.01)  # an idle engine that is dead is noticed soon

    async def scene(lane: Lane, engines: list[Played]) -> None:
        async def damaged(name: str, setup: Setup) -> Played:
            process = Played()
            process.messages.get_nowait()
            process.messages.put_nowait(("failed", "run/model.safetensors: damaged"))
            return process

        monkeypatch.setattr(EngineProcess, "start", damaged)
        engines[0].messages.put_nowait("die")
        while lane.problem != "run/model.safetensors: damaged":
            await asyncio.sleep(0.01)

    play(monkeypatch, scene)


def test_how_an_engine_ended_is_said(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        monkeypatch.setattr(EngineProcess, "start", None)  # no other comes
        engines[0].death.set_result(-9)
        await settle()
        assert "signal 9" in str(lane.problem) or "TypeError" in str(lane.problem)

    heard = play(monkeypatch, scene)
    assert ("restart", "played") in heard


def test_an_engine_on_demand_is_started_by_the_first_job(monkeypatch):
    async def scene(_: Lane, __: list[Played]) -> None:
        engines: list[Played] = []

        async def start(name: str, setup: Setup) -> Played:
            engines.append(Played())
            return engines[-1]

        monkeypatch.setattr(EngineProcess, "start", start)
        lane = Lane("long", Setup({}, "auto", None, 10, False), Limits(), lambda *what: None, on_demand=True)
        working = asyncio.create_task(lane.run())
        await settle()
        assert not engines
        asked = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        await settle()
        engines[0].answer()
        assert await asked == [[]]
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    play(monkeypatch, scene)


def test_jobs_join_those_in_flight_as_slots_become_free(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        tasks = []
        for _ in range(4):
            tasks.append(asyncio.create_task(do(lane, Job(ONE, NOTHING, [5]))))
            await settle()
        (engine,) = engines
        assert [len(batch) for batch in engine.batches] == [1, 1, 1]  # as they came; the fourth waits
        assert len(lane.queue) == 1
        engine.answer_one(engine.batches[1][0])
        await settle()
        assert [len(batch) for batch in engine.batches] == [1, 1, 1, 1]
        assert await tasks[1] == ["answered"]  # before the others
        tasks[0].cancel()  # whoever leaves makes room, too
        tasks.append(asyncio.create_task(do(lane, Job(ONE, NOTHING, [5]))))
        await settle()
        assert engine.gone == engine.batches[0]
        assert len(engine.batches) == 5
        for place in (2, 3, 4):
            engine.answer_one(engine.batches[place][0])
        for _ in range(5):
            engine.messages.put_nowait(("end",))
        await asyncio.gather(*tasks, return_exceptions=True)
        await settle()
        assert lane.silent == 0.0
        again = asyncio.create_task(do(lane, Job(OTHER, NOTHING, [5])))
        await settle()
        engine.answer()
        await again

    heard = play(monkeypatch, scene, slots=3)
    assert sum(what[2] for what in heard if what[0] == "batch") == 5


def test_nobody_joins_while_it_is_the_turn_of_a_job_with_another_key(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        tasks = []
        for key in (ONE, OTHER, ONE):
            tasks.append(asyncio.create_task(do(lane, Job(key, NOTHING, [5]))))
            await settle()
        (engine,) = engines
        assert len(engine.batches) == 1
        engine.answer()
        await settle()
        assert len(engine.batches) == 2  # the other key alone
        engine.answer()
        await settle()
        engine.answer()
        await asyncio.gather(*tasks)

    play(monkeypatch, scene, slots=8)


def test_a_client_with_few_jobs_joins_before_the_many_of_another(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        many = asyncio.create_task(do(lane, Job(ONE, Asked(["a"] * 10), [5] * 10, client="many")))
        await settle()
        few = asyncio.create_task(do(lane, Job(ONE, Asked(["b"]), [5], client="few")))
        await settle()
        (engine,) = engines
        taken = sum(len(what.lines) for batch in engine.asked for what in batch)
        assert taken <= 10
        engine.answer_one(engine.batches[0][0])
        await settle()
        assert any(what.lines == ["b"] for batch in engine.asked for what in batch)
        for task in (many, few):
            task.cancel()
        await asyncio.gather(many, few, return_exceptions=True)

    play(monkeypatch, scene, slots=2, batch_tokens=10)


def test_jobs_in_flight_are_tried_alone_after_the_engine_has_died(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(do(lane, Job(ONE, NOTHING, [5]))))
            await settle()
        engines[0].messages.put_nowait("die")
        while len(engines) < 2 or not engines[1].batches:
            await asyncio.sleep(0.01)
        for count in (1, 2, 3):
            await settle()
            assert [len(batch) for batch in engines[1].batches] == [1] * count  # nobody joins them
            engines[1].answer()
        assert await asyncio.gather(*tasks) == [[[]]] * 3

    play(monkeypatch, scene, slots=8)


async def answers_after_death(engines: list[Played], tasks: list[asyncio.Task[list[Any]]]) -> list[list[str]]:
    """The lines that each job is answered with, by a second engine that answers everything."""
    while len(engines) < 2:
        await asyncio.sleep(0.01)
    answered = 0
    while not all(task.done() for task in tasks):
        await settle()
        if len(engines[1].batches) > answered:
            answered += 1
            engines[1].answer()
    return [[line for part in task.result() for line in part] for task in tasks]


def test_a_later_slice_that_was_answered_first_is_not_answered_twice(monkeypatch):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        jobs = [Job(ONE, Asked(list("abc")), [100] * 3), Job(ONE, Asked(["x"]), [150], client="other")]
        tasks = [asyncio.create_task(do(lane, job)) for job in jobs]
        await settle()
        (engine,) = engines
        assert [[what.lines for what in batch] for batch in engine.asked] == [[["a"], ["x"]], [["b", "c"]]]
        engine.messages.put_nowait(("done", engine.batches[1][0], ["b", "c"]))
        engine.messages.put_nowait("die")
        assert await answers_after_death(engines, tasks) == [list("abc"), ["x"]]

    play(monkeypatch, scene, slots=8)


@pytest.mark.parametrize("other", [True, False])
def test_a_job_with_two_slices_in_flight_is_tried_again_unless_it_was_alone(monkeypatch, other: bool):
    async def scene(lane: Lane, engines: list[Played]) -> None:
        jobs = [Job(ONE, Asked(list("abc")), [150] * 3), Job(ONE, Asked(["x"]), [100], client="other")]
        tasks = [asyncio.create_task(do(lane, job)) for job in jobs[: 1 + other]]
        await settle()
        assert [what.lines for batch in engines[0].asked for what in batch if what.lines != ["x"]] == [
            ["a"],
            ["b", "c"],
        ]
        engines[0].messages.put_nowait("die")
        if other:
            assert await answers_after_death(engines, tasks) == [list("abc"), ["x"]]
        else:
            with pytest.raises(RefusedError):
                await tasks[0]

    play(monkeypatch, scene, slots=8)


def test_an_engine_in_slots_that_says_nothing_is_stuck(monkeypatch):
    monkeypatch.setattr(lanes, "STUCK", 0.05)

    async def scene(lane: Lane, engines: list[Played]) -> None:
        lane.assume(1e6)
        task = asyncio.create_task(do(lane, Job(ONE, NOTHING, [5])))
        with pytest.raises(RefusedError) as refused:
            await task
        assert refused.value.status == 503
        assert engines[0].ended

    play(monkeypatch, scene, slots=8)
