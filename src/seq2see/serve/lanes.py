"""Lanes: a lane is an engine process with a fair queue of jobs, which are sent to it in batches.

A free engine takes waiting jobs that have the same key, up to a cost derived from the duration of earlier batches. Jobs
that arrive while it works wait for a later batch, or join the present one if the engine works in slots (see
`Facts.slots`). The higher the load, the larger the batches.
"""

import asyncio
import contextlib
import math
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from seq2see.serve.jobs import Facts, FairQueue, Job, Key, Setup, Slice
from seq2see.serve.limits import Limits, RefusedError
from seq2see.serve.log import report

PROGRAM = "import sys; sys.path[:] = {path!r}; from seq2see.serve.engine_process import main; main()"
BATCH_SECONDS = 0.5
"""Intended maximum duration of a batch, in seconds, in the lanes for small requests; it is longer while much waits.
Batches are made smaller or larger accordingly. In slots, the minimum seconds between two measurements of the speed.
"""
FEW = 256
"""Maximum cost (see `jobs.cost`) of the first batch of a lane. A slow engine does not reduce the maximum below this,
since smaller batches take more time per sentence; only one that got stuck does.
"""
TELLING = 64
"""Minimum cost (see `jobs.cost`) of a batch that measures the speed; in smaller ones, fixed costs distort it."""
PING = 5.0
"""Seconds without jobs after which an engine gets an empty batch, to check that its process is alive."""
LONGEST_PAUSE = 30.0
"""Maximum seconds before a failed engine is restarted. The first restart is immediate; while it then cannot be loaded,
the pauses are 1, 2, 4, ... seconds.
"""
STUCK = 10.0
"""An engine is stuck, and is killed, if a batch takes longer than this many seconds and also longer than this many
times its expected duration; or, in any case, 5 seconds longer than `Limits.deadline`.
"""
RECOVERY = 60.0
"""Seconds of idleness in which the estimated speed of an engine doubles, up to the highest estimate so far, so that one
slow batch does not lead to refusals for ever.
"""
SMALL = 4
"""A job that costs at most this many times as much as a typical text is not refused for its own duration, only if the
queue is full for a typical text, too.
"""


class EngineProcess:
    """An engine process and the pipes to and from it, on the side of the server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self.death = asyncio.ensure_future(process.wait())

    @staticmethod
    async def start(name: str, setup: Setup) -> "EngineProcess":
        """Start an engine process, and send it its setup; `name` is shown in process lists."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM.format(path=sys.path), name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # With a heap for each thread, as glibc has it, the memory of an engine goes up and down by a third.
            env={"MALLOC_ARENA_MAX": "1"} | os.environ,
            start_new_session=True,
        )
        started = EngineProcess(process)
        started.send(setup)
        return started

    def send(self, message: object) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # that it is dead is found out in reading
            self._in.write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    async def receive(self) -> Any:
        """Return the next message from the process; raise EOFError if the process has died."""
        try:
            size = int.from_bytes(await self._out.readexactly(8), "little")
            return pickle.loads(await self._out.readexactly(size))
        except asyncio.IncompleteReadError:
            raise EOFError from None

    async def end(self) -> int:
        """Kill the process if it still runs, and return its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._in.close()
        return await self.death


class EngineError(Exception):
    """An engine cannot load its models, or is stuck; the message says why in one line."""


class Lane:
    """A queue of jobs for one engine process, which is restarted when it dies.

    Args:
        heard: called with an event ("ready", "restart", "batch", "hang_up") and the name of the lane; for "batch" also
            with the number of answers, their cost (see `jobs.cost`) and the seconds that they took.
        on_demand: whether the process is only started with the first job, and its batches may take a tenth of the
            deadline.
    """

    def __init__(
        self, name: str, setup: Setup, limits: Limits, heard: Callable[..., None], on_demand: bool = False
    ) -> None:
        self.name = name
        self.facts: dict[str, Facts] = {}
        """Facts about each model; empty while the engine is not ready."""
        self.problem: str | None = None
        """Why the engine is not loaded, in one line; None if it is, loads for the first time, or waits for demand."""
        self.queue = FairQueue()
        self.on_demand = on_demand
        self._setup = setup
        self._limits = limits
        self._heard = heard
        self._goal = limits.deadline / 10 if on_demand else BATCH_SECONDS
        self._running: dict[int, Slice] = {}
        self._open: Key | None = None
        """Key of the jobs that may join those being processed in slots; None for an engine without slots."""
        self._ends = 0
        """Number of messages with jobs that the engine has not reported as finished ("end")."""
        self._finished: list[int] = []
        """Costs of the slices (parts of jobs) that were answered or refused since the speed was last measured."""
        self._process: EngineProcess | None = None
        self._wake = asyncio.Event()
        self._rate = 0.0
        """Estimated speed of the engine, in units of `jobs.cost` per second; 0 while it is unknown."""
        self._best = 0.0
        self._learned = 0.0
        """Time, by `time.monotonic`, at which `_rate` was last updated."""
        self._budget = float(min(FEW, limits.batch_tokens))
        """Maximum cost (`jobs.cost`) of a batch; reduced after a slow one, doubled after a fast one if jobs wait."""
        self._begun: float | None = None

    @property
    def silent(self) -> float:
        """Return the seconds since the batch began or, in slots, since the speed was last measured; 0 while idle."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    @property
    def ready(self) -> bool:
        return bool(self.facts)

    @property
    def rate(self) -> float:
        """Return the estimated speed of the engine, in units of `jobs.cost` per second; 0 if it is unknown.

        While the engine is idle, a low estimate rises again, up to the highest one so far.
        """
        idle = 0.0 if self._begun is not None else max(0.0, time.monotonic() - self._learned)
        return min(self._best, self._rate * 2 ** min(60.0, idle / RECOVERY))

    def assume(self, rate: float) -> None:
        """Set the estimated speed, in units of `jobs.cost` per second, if none is known yet."""
        if not self._rate:
            self._rate = self._best = rate
            self._learned = time.monotonic()

    def is_full(self, client: str | None = None) -> bool:
        """Return whether a typical request of a client would find the queue full, or wait over half of the deadline.

        Without a client, assume that everything that waits came from the same client.
        """
        queue = self.queue
        if len(queue) >= self._limits.queue_requests and not self._may_displace(client):
            return True
        return queue.work >= self._limits.queue_tokens or self._waits_too_long(self._ordinary, client)

    def _may_displace(self, client: str | None) -> bool:
        """Return whether a new job of this client may displace one of the client with the most jobs: it may if that
        client has more than twice as many as this one would have.
        """
        counts = self.queue.counts
        return client is not None and 2 * counts[client] + 2 < max(counts.values(), default=0)

    def _waits_too_long(self, cost: int, client: str | None) -> bool:
        most = self.rate * self._limits.deadline / 2
        # Without load all that waits is less than that, and nobody has to compute the part of it that counts.
        return 0 < most < self.queue.work and self.queue.ahead_of(cost, client) > most

    @property
    def _ordinary(self) -> int:
        return max((each.ordinary for each in self.facts.values()), default=0) or FEW

    def check(self, client: str = "") -> None:
        """Raise a refusal if the model is not loaded, unless the engine starts on demand and has not just failed; or if
        the queue is full for a typical request of this client.
        """
        if not self.ready and (not self.on_demand or self.problem):
            raise RefusedError(503, "the model is not loaded yet", 2)
        if self.is_full(client):
            raise self._too_many()

    def _too_many(self) -> RefusedError:
        wait = math.ceil(self.queue.work / self.rate) if self.rate else 1
        return RefusedError(429, "too many requests are waiting", min(60, max(1, wait)))

    def put(self, job: Job) -> None:
        """Queue a job that `check` has admitted, if need be in place of the newest job of the client with the most
        jobs. A job above `SMALL` is refused if it would take, or wait for, more than half of the deadline.
        """
        if self._is_too_much(job, self._limits.deadline / 2):
            raise self._too_much(job)
        if job.work > SMALL * self._ordinary and self._waits_too_long(job.work, job.client):
            raise self._too_many()
        if len(self.queue) >= self._limits.queue_requests:
            self._refuse(self.queue.newest_of_largest(), self._too_many())
        self.queue.add(job)
        self._wake.set()
        self._join()

    def _is_too_much(self, job: Job, seconds: float) -> bool:
        """Return whether the waiting lines of a job cost more than `SMALL` typical texts, and are expected to take
        longer than `seconds`.
        """
        rate = self.rate
        return bool(rate and job.work > SMALL * self._ordinary and job.work / rate > seconds)

    def _too_much(self, job: Job) -> RefusedError:
        return RefusedError(
            413,
            f"too much work for one request: {job.about or 'this'} would take about "
            f"{sum(job.costs) / self.rate:,.0f} seconds here, and the deadline is {self._limits.deadline:g} seconds. "
            "Send fewer or shorter texts, or use a narrower beam",
        )

    async def finish(self, job: Job) -> list[Any]:
        """Return the answers to all slices of a job, in order; if the wait is cancelled, the job is removed."""
        try:
            return await job.answer
        finally:
            self.leave(job)

    async def stream(self, job: Job) -> AsyncIterator[tuple[str, Any]]:
        """Yield ("token", event) for each token as it arrives, then ("end", answer)."""
        try:
            while (event := await job.told.get()) is not None:
                yield "token", event
            (answer,) = await job.answer
            yield "end", answer
        finally:
            self.leave(job)

    def leave(self, job: Job) -> None:
        """Remove a job, finished or not: waiting lines are not started, and started ones are cancelled if possible."""
        self.queue.remove(job)
        for number in [number for number, each in self._running.items() if each.job is job]:
            del self._running[number]
            if self._process is not None:
                self._process.send(("gone", number))
                self._join()
        if job.answer.done() and not job.answer.cancelled():
            job.answer.exception()  # marks it as retrieved
        else:
            job.answer.cancel()
            self._heard("hang_up", self.name)

    async def run(self) -> str:
        """Run the engine, and restart it when it dies. If the first process of a lane that is not on demand reports
        that it cannot load a model, return the reason.
        """
        pause, first = 0.0, not self.on_demand
        while True:
            process = None
            try:
                while self.on_demand and not self.queue:
                    self._wake.clear()
                    await self._wake.wait()
                process = self._process = await EngineProcess.start(self.name, self._setup)
                async with asyncio.timeout(self._limits.load_seconds):
                    kind, found = await process.receive()
                if kind == "failed":
                    if first:
                        return str(found)
                    raise EngineError(found)  # after the start, somebody may be writing the run anew
                self.facts, self.problem, pause, first = found, None, 0.0, False
                self.assume(min((each.rate for each in self.facts.values()), default=0.0))
                self._heard("ready", self.name)
                process.death.add_done_callback(lambda _: self._wake.set())
                while True:
                    await self._do_batch(process, await self._next_batch(process))
            except EngineError as problem:
                self.problem = str(problem)
            except TimeoutError:
                seconds = self._limits.load_seconds
                self.problem = f"the models were not loaded within {seconds:g} seconds (--load-timeout)"
            except EOFError:
                self.problem = None
            except Exception as problem:  # no memory for a process, no descriptor for its pipes, or a mistake of ours
                self.problem = f"{type(problem).__name__} while it was being started or used"
                report(problem, f"the queue of the engine ({self.name})")
            finally:
                self.facts, self._begun, self._process, self._open, self._ends = {}, None, None, None, 0
                self._recover()
                code = await process.end() if process is not None else 0
            how = f"was ended by signal {-code}" if code < 0 else f"ended by itself (code {code})"
            self.problem = self.problem or f"its process {how}"
            if pause and self.on_demand:
                for job in self.queue:
                    self._refuse(job, RefusedError(503, "the engine for long requests cannot be started now", 30))
            self._heard("restart", self.name)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause or 1.0)
            if self.on_demand:
                self.problem = None  # the next job may try again

    async def _next_batch(self, process: EngineProcess) -> list[Slice]:
        """Wait for jobs, and return the next batch; an empty one after `PING` seconds, to check the engine."""
        while not self.queue:
            self._wake.clear()
            if process.death.done():
                raise EOFError
            try:
                async with asyncio.timeout(PING):
                    await self._wake.wait()
            except TimeoutError:
                return []
        budget = self._budget
        if self.queue.dominated:  # others than the client with most are not to wait for large batches of it
            budget = min(budget, max(TELLING, self._rate * self._goal))
        return self.queue.take(budget)

    async def _do_batch(self, process: EngineProcess, batch: list[Slice]) -> None:
        """Let the engine finish a batch, and jobs that join it in slots; raise an EngineError if it is stuck."""
        self._rate = self.rate  # with what was recovered meanwhile
        self._begun = self._learned = begun = time.monotonic()
        key = batch[0].job.key if batch else Key("translate", "")
        in_slots = bool(batch) and key.kind == "translate" and self.facts[key.model].slots > 0
        self._open = key if in_slots and not batch[0].job.alone else None
        self._finished.clear()
        cost = self._hand_over(process, key, batch)
        self._join()
        longest = self._patience(cost)
        try:
            async with asyncio.timeout(longest) as patience:
                while self._ends:
                    message = await process.receive()
                    if message[0] == "end":
                        self._ends -= 1
                        continue
                    self._deliver(*message)
                    if self._open is not None:
                        self._join()
                        if self._measure(BATCH_SECONDS):
                            longest = self._patience(sum(map(_cost, self._running.values())))
                        patience.reschedule(asyncio.get_running_loop().time() + longest)
        except TimeoutError:
            if self._open is None:
                self._learn(cost, time.monotonic() - begun, killed=True)
            else:
                self._learn(sum(map(_cost, self._running.values())), longest, killed=True)
            raise EngineError(f"it did not finish a batch within {longest:.0f} seconds") from None
        if self._open is not None:
            self._open = None
            self._measure(0.0)
        elif batch:
            self._note(len(batch), cost, time.monotonic() - begun)
        self._begun = None

    def _hand_over(self, process: EngineProcess, key: Key, batch: list[Slice]) -> int:
        """Send a batch to the engine process, and return its estimated cost (see `jobs.cost`)."""
        self._running |= {each.number: each for each in batch}
        self._ends += 1
        process.send(("do", key, [(each.number, each.asked) for each in batch]))
        return sum(map(_cost, batch))

    def _join(self) -> None:
        """If the engine works in slots, send it waiting jobs with the present key, up to the number of free slots.

        No job is sent if the next one has another key: that one is served as soon as the current jobs are done.
        """
        if self._open is None or self._process is None or not self.queue:
            return
        free = self.facts[self._open.model].slots - sum(each.end - each.begin for each in self._running.values())
        if free > 0 and (batch := self.queue.take(self._limits.batch_tokens, self._open, free)):
            self._hand_over(self._process, self._open, batch)

    def _patience(self, cost: int) -> float:
        """Return the seconds that a batch of this cost may take before the engine counts as stuck."""
        # All jobs are past their deadline then: an engine that still works on them is stuck.
        longest = self._limits.deadline + 5
        return min(longest, max(STUCK, STUCK * cost / self._rate)) if cost and self._rate else longest

    def _measure(self, least: float) -> bool:
        """Measure the speed if `least` seconds have passed since the last time; return whether it was measured.

        While nothing waits, the engine has free slots and could do more: then only a higher speed is recorded.
        """
        assert self._begun is not None
        seconds, cost = time.monotonic() - self._begun, sum(self._finished)
        if seconds < least or not self._finished:
            return False
        if self.queue or cost / max(seconds, 1e-3) > self._rate:
            self._note(len(self._finished), cost, seconds)
        else:
            self._heard("batch", self.name, len(self._finished), cost, seconds)
        self._finished.clear()
        self._begun = time.monotonic()
        return True

    def _note(self, requests: int, cost: int, seconds: float) -> None:
        """Update the estimated speed after a batch. Then refuse partly processed jobs whose remaining lines would miss
        the deadline, unless those cost at most as much as `SMALL` typical texts.
        """
        self._learn(cost, seconds)
        self._heard("batch", self.name, requests, cost, seconds)
        for job in self.queue:
            if job.begun and self._is_too_much(job, job.due - time.monotonic()):
                self._refuse(job, self._too_much(job))

    def _learn(self, cost: int, seconds: float, killed: bool = False) -> None:
        """Update the estimated speed, and the maximum cost of a batch, after a batch of this cost and duration. If
        `killed`, the batch was not finished: the engine was stuck, and was killed.
        """
        if not cost:
            return
        self._learned = time.monotonic()
        most = self._limits.batch_tokens
        if killed:  # it would have taken longer still
            self._rate = min(self._rate or math.inf, cost / seconds / 2)
            self._best = self._best or self._rate
        elif cost >= min(TELLING, most):
            rate = cost / max(seconds, 1e-3)
            self._rate += (0.3 if self._rate else 1.0) * (rate - self._rate)
            self._best = max(self._best, self._rate)
        # Where much waits anyway, larger batches make all of it faster and delay a newcomer by little in comparison.
        waits = self.queue.work / self._rate if self._rate else 0.0
        goal = max(self._goal, min(self._limits.deadline / 10, waits / 2))
        if seconds > goal:
            self._budget = max(1 if killed else min(FEW, most), min(self._budget, cost * goal / seconds))
        elif self.queue and seconds < goal / 2:
            self._budget = min(most, 2 * self._budget)

    def _deliver(self, kind: str, number: int, *what: Any) -> None:
        """Give a message of the engine (a token, an answer or a refusal) to the job that it belongs to."""
        if (done := self._running.get(number)) is None:
            return
        job = done.job
        if kind == "token":
            job.told_any = True
            job.told.put_nowait(what[0])
            return
        del self._running[number]
        self._finished.append(_cost(done))
        if kind != "done":
            status, line, details = what
            self._refuse(job, RefusedError(status, line, details=details))
            return
        job.parts[done.begin] = what[0]
        if job.answer.done():  # cancelled: whoever waited stopped waiting, and has not come to `leave` yet
            return
        if job.begun == len(job.costs) and not any(each.job is job for each in self._running.values()):
            job.answer.set_result([job.parts[begin] for begin in sorted(job.parts)])
            job.told.put_nowait(None)

    def _refuse(self, job: Job, refusal: RefusedError) -> None:
        """Answer a job with a refusal, and remove its waiting lines from the queue."""
        self.queue.remove(job)
        if not job.answer.done():
            job.answer.set_exception(refusal)
            job.told.put_nowait(None)

    def _recover(self) -> None:
        """Requeue the jobs that an engine was processing when it died, or refuse those that must not be repeated.

        Jobs that were processed together are tried once more, each alone. A job that was alone may have caused the
        death, and a client that has received tokens would receive them twice: these are refused.
        """
        first: dict[Job, Slice] = {}
        for each in self._running.values():  # the slices of a job are in the order of their lines
            first.setdefault(each.job, each)
        self._running.clear()
        for job, unanswered in first.items():
            if len(first) == 1 or job.alone or job.told_any:
                self._refuse(job, RefusedError(503, "the engine stopped and is being started again", 1))
            elif not job.answer.done():
                job.alone = True
                self.queue.put_back(unanswered)


def _cost(part: Slice) -> int:
    return sum(part.job.costs[part.begin : part.end])
