"""Requests of many users wait in one line, and go to an engine together.

An engine that is free takes what has come; what comes while it works waits, and goes together next. So nobody waits for
company, and the more there is to do, the larger the batches. The oldest request says of which kind a batch is.
"""

import asyncio
import contextlib
import itertools
import math
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from seq2see.data.processes import framed
from seq2see.serve.engine_process import Facts, Key, Setup
from seq2see.serve.limits import Limits, RefusedError
from seq2see.serve.log import report

_numbers = itertools.count(1)
_PROGRAM = "import sys; sys.path[:] = {path!r}; from seq2see.serve.engine_process import main; main()"
FEW = 128
"""Tokens that go together even where the engine is slow; a batch of less than half of that says nothing of its pace."""
PING = 5.0
"""Seconds after which an engine that has nothing to do is asked whether it is still there."""
LONGEST_PAUSE = 30.0
"""Seconds before an engine that keeps failing is started again; 1, 2, 4, ... at first."""


@dataclass(eq=False)
class Job:
    """One request on its way: who may keep it company, what is to be done, and where the answer goes."""

    key: Key
    what: dict[str, Any]
    tokens: int
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    told: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    """Tokens as they come, and None after the last."""
    number: int = field(default_factory=lambda: next(_numbers))
    begun: bool = False


class Process:
    """An engine process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self.death = asyncio.ensure_future(process.wait())

    @staticmethod
    async def start(name: str, setup: Setup) -> "Process":
        program = _PROGRAM.format(path=sys.path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            name,  # to be told apart by whoever lists processes
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # With a heap for each thread, as glibc has it, the memory of an engine goes up and down by a third.
            env={"MALLOC_ARENA_MAX": "1"} | os.environ,
            start_new_session=True,
        )
        started = Process(process)
        started.send(setup)
        return started

    def send(self, message: object) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # that it is dead is found out in reading
            self._in.write(framed(message))

    async def receive(self) -> Any:
        """The next message; an error where the process is dead."""
        try:
            size = int.from_bytes(await self._out.readexactly(8), "little")
            return pickle.loads(await self._out.readexactly(size))
        except asyncio.IncompleteReadError:
            raise EOFError from None

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self.death
        self._in.close()


class Lane:
    """A line of jobs before one engine process, which is replaced when it dies."""

    def __init__(self, name: str, setup: Setup, limits: Limits, heard: Callable[..., None]) -> None:
        self.name = name
        self.facts: dict[str, Facts] = {}
        """Of each model; none while the engine is not ready."""
        self.failure: str | None = None
        """Why the engine cannot be started, in one line."""
        self.waiting_tokens = 0
        self._setup = setup
        self._limits = limits
        self._heard = heard
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._process: Process | None = None
        self._wake = asyncio.Event()
        self._rate = 0.0
        """Tokens a second that the engine has shown it can do; 0 while that is not known."""
        self._budget = float(min(2 * FEW, limits.batch_tokens))
        """Tokens of a batch: twice as many after one that was quick, fewer after one that took long."""
        self._begun: float | None = None

    @property
    def silent(self) -> float:
        """Seconds for which the engine has been at work on one batch."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    @property
    def ready(self) -> bool:
        return bool(self.facts)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether one more would be too many, or would be likely to wait for more than half of its deadline."""
        limits = self._limits
        return (
            self.waiting >= limits.queue_requests
            or self.waiting_tokens >= limits.queue_tokens
            or bool(self._rate and self.waiting_tokens / self._rate > limits.deadline / 2)
        )

    def check(self) -> None:
        """Refuse where nothing more can be taken."""
        if not self.ready:
            raise RefusedError(503, "the model is not loaded yet", 2)
        if self.full:
            raise RefusedError(429, "too many requests are waiting", self._retry_after())

    def _retry_after(self) -> int:
        return min(60, max(1, math.ceil(self.waiting_tokens / self._rate))) if self._rate else 1

    async def do(self, job: Job) -> Any:
        """The answer to a job. Whoever stops waiting for it takes it out of the line."""
        self.put(job)
        try:
            return await job.answer
        finally:
            self.leave(job)

    async def stream(self, job: Job) -> AsyncIterator[tuple[str, Any]]:
        """("token", event) as they come, then ("end", answer)."""
        try:
            while (event := await job.told.get()) is not None:
                yield "token", event
            yield "end", await job.answer
        finally:
            self.leave(job)

    def put(self, job: Job) -> None:
        self.check()
        self._waiting.append(job)
        self.waiting_tokens += job.tokens
        self._wake.set()

    def leave(self, job: Job) -> None:
        """Forget a job, done or not."""
        if not job.begun:
            job.begun = True
            with contextlib.suppress(ValueError):
                self._waiting.remove(job)
                self.waiting_tokens -= job.tokens
        elif self._running.pop(job.number, None) is not None and self._process is not None:
            self._process.send(("gone", job.number))
        if job.answer.done() and not job.answer.cancelled():
            job.answer.exception()  # has been heard of
        else:
            job.answer.cancel()
            self._heard("hang_up", self.name)

    async def run(self) -> None:
        """Keep an engine working, whatever happens to it."""
        pause, first = 0.0, True
        while True:
            process = None
            try:
                process = self._process = await Process.start(self.name, self._setup)
                kind, facts = await process.receive()
                if kind == "failed" and first:
                    self.failure = facts
                    return
                if kind == "failed":  # somebody may be writing the run anew
                    raise EOFError
                self.facts, pause, first = facts, 0.0, False
                self._heard("ready", self.name)
                process.death.add_done_callback(lambda _: self._wake.set())
                while True:
                    await self._do_batch(process, await self._next_batch(process))
            except (EOFError, TimeoutError):
                pass
            except Exception as problem:  # no memory for a process, no descriptor for its pipes, or a mistake of ours
                report(problem, f"the line before the engine ({self.name})")
            finally:
                self.facts, self._begun, self._process = {}, None, None
                self._fail_running()
                if process is not None:
                    await process.end()
            self._heard("restart", self.name)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause or 1.0)

    async def _next_batch(self, process: Process) -> list[Job]:
        """The oldest job and those behind it that may go with it, up to the budget; none where none comes for long."""
        while not self._waiting:
            self._wake.clear()
            if process.death.done():
                raise EOFError
            try:
                async with asyncio.timeout(PING):
                    await self._wake.wait()
            except TimeoutError:
                return []
        key, tokens = self._waiting[0].key, 0
        batch: list[Job] = []
        for job in list(self._waiting):
            if job.key != key or (batch and tokens + job.tokens > self._budget):
                continue
            tokens += job.tokens
            self._waiting.remove(job)
            batch.append(job)
        self.waiting_tokens -= tokens
        return batch

    async def _do_batch(self, process: Process, batch: list[Job]) -> None:
        self._begun = time.monotonic()
        key = batch[0].key if batch else Key("translate", "")
        for job in batch:
            job.begun = True
            self._running[job.number] = job
        process.send(("do", key, [(job.number, job.what) for job in batch]))
        # All of them are past their deadline after that: an engine that still works on them is stuck.
        async with asyncio.timeout(self._limits.deadline + 5):
            while (message := await process.receive())[0] != "end":
                self._deliver(*message)
        seconds, self._begun = time.monotonic() - self._begun, None
        if not batch:
            return
        tokens = sum(job.tokens for job in batch)
        self._learn(tokens, seconds)
        self._heard("batch", self.name, len(batch), tokens, seconds)

    def _learn(self, tokens: int, seconds: float) -> None:
        """Batches should take no more than a tenth of a deadline: else those who come last would wait in vain."""
        most, goal = self._limits.batch_tokens, self._limits.deadline / 10
        if 2 * tokens >= min(FEW, most):
            rate = tokens / max(seconds, 1e-3)
            self._rate += (0.3 if self._rate else 1.0) * (rate - self._rate)
        if seconds > goal:
            self._budget = max(min(FEW, most), min(self._budget, tokens * goal / seconds))
        elif self._waiting and seconds < goal / 2:
            self._budget = min(most, 2 * self._budget)

    def _deliver(self, kind: str, number: int, *what: Any) -> None:
        if (job := self._running.get(number)) is None:
            return
        if kind == "token":
            job.told.put_nowait(what[0])
            return
        del self._running[number]
        if job.answer.done():  # cancelled: whoever waited stopped waiting, and has not come to `leave` yet
            return
        if kind == "done":
            job.answer.set_result(what[0])
        else:
            job.answer.set_exception(RefusedError(*what))
        job.told.put_nowait(None)

    def _fail_running(self) -> None:
        for job in list(self._running.values()):
            self._deliver("refused", job.number, 503, "the engine stopped and is being started again", 1)
