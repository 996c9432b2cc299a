"""The queue in front of an engine: jobs are served in turns, so that large ones do not delay small ones for long.

The order is fair queueing, on two levels. Every client has a clock that counts the work done for it; the
client whose clock is furthest behind is served next. Within a client every job has such a clock, too. A large job is
therefore served in slices with other jobs in between, and many jobs of one client do not delay those of another.
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seq2see.serve.engine_process import Key

_numbers = itertools.count(1)


@dataclass(eq=False)
class Job:
    """One request on its way to an engine, and where its answer goes."""

    key: Key
    """Jobs with equal keys may be worked on together."""
    what: dict[str, Any]
    """The request, as the engine process takes it; its "lines" may be split over several batches."""
    costs: Sequence[int]
    """The estimated work for each line, or for the whole where it cannot be split; see `work.cost`."""
    client: str = ""
    about: str = ""
    """How much is asked for, in words, for a refusal."""
    due: float = math.inf
    """When its deadline passes, by `time.monotonic`."""
    answer: asyncio.Future[list[Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The answers to all slices, in the order of the lines."""
    told: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    """Tokens of a stream as they come, and None after the last."""
    number: int = field(default_factory=lambda: next(_numbers))
    begun: int = 0
    """How many of `costs` were handed to the engine."""
    parts: dict[int, Any] = field(default_factory=dict)
    """Answers to slices, by the place of their first line."""
    clock: float = 0.0
    told_any: bool = False
    """Whether a token of a stream was delivered: to begin anew would tell it twice."""
    alone: bool = False
    """Whether it shares no batch any more, since the engine stopped in one that it was part of."""

    @property
    def work(self) -> int:
        """The estimated work that has not begun."""
        return sum(self.costs[self.begun :])


class Slice(NamedTuple):
    """Consecutive lines of a job that are worked on in one batch."""

    job: Job
    number: int
    begin: int
    end: int

    @property
    def cost(self) -> int:
        return sum(self.job.costs[self.begin : self.end])

    @property
    def what(self) -> dict[str, Any]:
        """The request for these lines only."""
        if len(self.job.costs) == 1:
            return self.job.what
        return self.job.what | {"lines": self.job.what["lines"][self.begin : self.end]}


class FairQueue:
    """Jobs that wait, wholly or in part."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._clocks: dict[str, float] = {}
        """Work done for each client that waits or waited lately."""
        self._inner: dict[str, float] = {}
        """Work done for each job of a client, if it had been shared out evenly among them: where new ones begin."""
        self._now = 0.0
        """Work done for each client, if it had been shared out evenly among those that wait: where new ones begin."""
        self.work = 0
        """The estimated work of all that waits."""
        self._counts: Counter[str] = Counter()
        """How many jobs of each client wait."""
        self._ahead: dict[tuple[int, str | None], int] = {}
        """What `ahead_of` found since the queue changed last: under overload it is asked for every request."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def add(self, job: Job) -> None:
        """Put a job at the place that its client's clock gives it."""
        if not self._jobs:  # the engine was idle: what anybody has had before does not count any more
            self._clocks, self._inner, self._now = {}, {}, 0.0
        if len(self._clocks) > 2 * len(self._jobs) + 100:
            waiting = {each.client for each in self._jobs.values()}
            self._clocks = {each: clock for each, clock in self._clocks.items() if clock > self._now or each in waiting}
            self._inner = {each: self._inner.get(each, 0.0) for each in self._clocks}
        self._clocks[job.client] = max(self._clocks.get(job.client, 0.0), self._now)
        job.clock = max(job.clock, self._inner.get(job.client, 0.0))
        self._jobs[job.number] = job
        self._counts[job.client] += 1
        self._ahead.clear()
        self.work += job.work

    def remove(self, job: Job) -> bool:
        """Take out a job that nobody waits for any more; whether it was there."""
        if job.number not in self._jobs:
            return False
        self.work -= job.work
        self._forget(job)
        return True

    def _forget(self, job: Job) -> None:
        del self._jobs[job.number]
        self._counts[job.client] -= 1
        if not self._counts[job.client]:
            del self._counts[job.client]
        self._ahead.clear()

    def put_back(self, taken: Slice) -> None:
        """Let a slice wait again that the engine has not answered."""
        self.remove(taken.job)
        taken.job.begun = taken.begin
        self.add(taken.job)

    def count(self, client: str) -> int:
        return self._counts[client]

    def largest_client(self) -> str:
        """The client with the most jobs here."""
        return max(self._counts, key=lambda client: self._counts[client])

    @property
    def dominated(self) -> bool:
        """Whether one client has most of what waits, and others wait or waited since the queue was last empty."""
        return len(self._clocks) > 1 and 2 * max(self._counts.values(), default=0) > len(self._jobs)

    def newest(self, client: str) -> Job:
        return next(job for job in reversed(self._jobs.values()) if job.client == client)

    def ahead_of(self, cost: int, client: str | None) -> int:
        """About how much of the waiting work is done before a new job of this cost would be finished.

        Args:
            client: who would send it; None: the one who sent everything that waits.
        """
        if (found := self._ahead.get((cost, client))) is not None:
            return found
        by_client: dict[str, int] = {}
        for job in self._jobs.values():
            by_client[job.client] = by_client.get(job.client, 0) + min(job.work, cost)
        own = sum(by_client.values()) if client is None else by_client.pop(client, 0)
        if client is None:
            by_client = {}
        found = own + sum(min(work, own + cost) for work in by_client.values())
        if len(self._ahead) < 1000:
            self._ahead[cost, client] = found
        return found

    def take(self, budget: float) -> list[Slice]:
        """The next batch: the job whose turn it is, and others with an equal key, line by line up to the budget."""

        def turn(job: Job) -> tuple[float, int, float, bool, int]:
            return self._clocks[job.client], self._counts[job.client], job.clock, job.begun > 0, job.number

        if not self._jobs:
            return []
        first = min(self._jobs.values(), key=turn)
        company = [job for job in self._jobs.values() if job.key == first.key and not job.alone]
        candidates = [first] if first.alone else company
        begins: dict[int, int] = {}
        taken: dict[int, Job] = {}
        while candidates:
            job = min(candidates, key=turn)
            cost = job.costs[job.begun]
            if taken and cost > budget:
                candidates.remove(job)
                continue
            begins.setdefault(job.number, job.begun)
            taken[job.number] = job
            budget -= cost
            self.work -= cost
            job.begun += 1
            self._now += cost / len(self._counts)
            self._clocks[job.client] += cost
            self._inner[job.client] = self._inner.get(job.client, 0.0) + cost / self._counts[job.client]
            job.clock += cost
            if job.begun == len(job.costs):
                candidates.remove(job)
                self._forget(job)
        self._ahead.clear()
        return [Slice(job, next(_numbers), begins[number], job.begun) for number, job in taken.items()]
