"""The parameters of a request, an estimate of its cost, and the fair queue in which it waits.

The order is fair queueing, on two levels. Every client has a clock that adds up the cost of the work done for it; the
client whose clock is furthest behind is served next. Within a client every job has such a clock, too. A large job is
therefore served in slices with other jobs in between, and many jobs of one client do not delay those of another.
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seq2see.config import Decoding
from seq2see.decoding import translator
from seq2see.run import Run
from seq2see.text.words import Term

Kind = Literal["translate", "chat", "stream", "look", "detect"]
FIXED_COST = 3
"""The part of the time of a decoding step that does not depend on the beam width (the weights are read once), as the
number of hypotheses that could be extended in that time; `cost` adds it to the beam width.
"""
RUN_ON = 0.25
"""Share of the difference between the maximum length of an output and its expected length that `cost` adds to the
expected length. An output that reaches the maximum then costs at most four times the estimate.
"""
COST_SCALE = 8
"""Divisor in `cost` that makes the cost of a typical sentence about equal to its number of source tokens."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Setup:
    """The first message to an engine process: the runs to load, by name, and how to load and use them."""

    runs: dict[str, Path]
    engine: str
    precision: str | None
    output_tokens: int
    inside: bool
    """Whether this engine records activations, aligns, samples and streams, for which it needs PyTorch."""
    niceness: int = 0
    """Number that the engine process adds to its niceness (`os.nice`); the higher it is, the more other processes are
    preferred.
    """
    in_slots: bool = False
    """Whether new sentences may join a running search (in slots) on a CPU, too, instead of waiting for the next
    batch.
    """


class Facts(NamedTuple):
    """Facts about a model, which an engine process measures when it loads the model."""

    engine: str
    output_ratio: float = 1.0
    """Number of target tokens per source token in up to 200 validation pairs; 1 if there are none."""
    ordinary: int = 0
    """Estimated cost (see `cost`) of translating a text of median length, with the beam width of the run or, for an
    engine with `Setup.inside`, by greedy search.
    """
    rate: float = 0.0
    """Speed of the engine in units of `cost` per second, measured while the model was loaded; 0 if it was not
    measured.
    """
    slots: int = 0
    """Number of texts that the engine can search at the same time in slots, which new texts enter when they are free; 0
    if it processes one batch after another.
    """


class Key(NamedTuple):
    """Properties of a job that decide with which others it may be processed: those whose keys are equal."""

    kind: Kind
    model: str
    beam: int | None = None
    forced: bool = False
    """Whether the translations must begin with given prefixes."""
    has_terms: bool = False
    """Whether terms of a glossary must be enforced in the translations."""
    alone: int = 0
    """A number that no other key has if the job must be processed alone; 0 if it may share a batch."""


@dataclass(frozen=True)
class Asked:
    """Parameters of a request, with the names of the HTTP API."""

    lines: Sequence[str]
    to: str | None = None
    n_best: int = 1
    prefix: str = ""
    sampling: dict[str, Any] | None = None
    alignments: bool = False
    familiar: bool = False
    """Whether to return, for each line, the share that is familiar to the model's source tokenizer (see
    `Tokenizer.familiar`).
    """
    chat: bool = False
    """Whether the request streams an answer of a conversation."""
    target: str | None = None
    parts: Sequence[str] = ()
    without: Sequence[tuple[Any, int, int]] = ()
    first_tokens: Sequence[int] = ()
    """Ids of the tokens with which the translation whose activations are recorded must begin."""
    patch: dict[str, Any] | None = None
    """Name and positions of activations to replace by those of a second line (see `look.page.Inside.patch`), if any."""
    contrast: dict[str, Any] | None = None
    """Another output that the translation is compared with (see `look.page.Inside.contrast`), if any."""
    terms: Sequence[Sequence[Term]] = ()
    """For each line, the glossary terms that must be enforced; empty if there is no glossary."""


def source_tokens(run: Run, texts: Sequence[str]) -> list[int]:
    """Return the number of source tokens of each text, with the end token and, if the run has them, a language tag.

    The tokenizer takes about a millisecond for 10,000 characters. One with a user's pattern may take longer and block
    the event loop, so there each character counts as a token.
    """
    tokenizer = run.tokenizers.source
    more = 2 if run.tags else 1
    if tokenizer.kind == "pattern":
        return [len(text) + more for text in texts]
    return [len(ids) + more for ids in tokenizer.encode([text.strip() for text in texts])]


def cost(
    source_tokens: int, beam: int, output_ratio: float, decoding: Decoding, output_tokens: int, least_output: int = 0
) -> int:
    """Estimate the cost of one text, at least 1, in proportion to the time that translating it is expected to take.

    The cost of a typical text is about its number of source tokens. Decoding is most of it: one step for each
    output token, and the time of a step grows with the beam width.

    Args:
        source_tokens: number of tokens of the text with the end token.
        output_ratio: expected number of output tokens per source token.
        output_tokens: maximum length of an output, whatever `decoding` allows.
        least_output: number of tokens that the output has at least, such as those of a prefix.
    """
    source = min(source_tokens, decoding.max_source)
    most = min(output_tokens, max(least_output, translator.limit(source, decoding.max_ratio, decoding.max_extra)))
    expected = min(float(most), max(least_output, output_ratio * source))
    steps = expected + RUN_ON * (most - expected)
    return math.ceil((source + (beam + FIXED_COST) * steps) / COST_SCALE)


@dataclass(eq=False)
class Job:
    """One request that waits or is processed, and the future of its answer."""

    key: Key
    asked: Asked
    """Parameters of the request; its lines may be split over several batches."""
    costs: Sequence[int]
    """Estimated cost (see `cost`) of each line, or of the whole job as the only item if its lines cannot be split over
    batches.
    """
    client: str = ""
    about: str = ""
    """Size of the request as text (tokens and beam width), for error messages."""
    due: float = math.inf
    """Time, by `time.monotonic`, at which the request is refused if it is not answered."""
    answer: asyncio.Future[list[Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Future of the answers to all slices of the job, in the order of the lines."""
    told: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)
    """Queue of the events of a streamed answer; None follows the last event."""
    begun: int = 0
    """Number of items of `costs` whose lines have been sent to the engine."""
    parts: dict[int, Any] = field(default_factory=dict)
    """Answers to slices of the job that have arrived, by the index of the first line of the slice."""
    clock: float = 0.0
    told_any: bool = False
    """Whether an event with a token has been delivered; such a job is not repeated after the engine has died, since the
    client would get the token twice.
    """
    alone: bool = False
    """Whether the job must be processed without others, because the engine died while it processed a batch with this
    job.
    """

    @property
    def work(self) -> int:
        """Return the estimated cost (see `cost`) of the lines that have not been sent to the engine."""
        return sum(self.costs[self.begun :])


class Slice(NamedTuple):
    """Lines `begin` to `end - 1` of a job, processed in one batch; `number` identifies them in messages."""

    job: Job
    number: int
    begin: int
    end: int

    @property
    def asked(self) -> Asked:
        """Return the parameters of the request with this slice's lines only, or with all if the job cannot be split."""
        asked, part = self.job.asked, slice(self.begin, self.end)
        if len(self.job.costs) == 1:
            return asked
        return replace(asked, lines=asked.lines[part], terms=asked.terms[part])


class FairQueue:
    """The jobs of which all or some lines wait for an engine, in the fair order that the module `jobs` describes."""

    def __init__(self) -> None:
        self._jobs: dict[Job, None] = {}
        self._clocks: dict[str, float] = {}
        """Cost of the work done so far for each client that waits or waited recently; a new client begins at `_now`."""
        self._inner: dict[str, float] = {}
        """For each client, the fair share of cost per job so far, with which the clock of a new job begins."""
        self._now = 0.0
        """Fair share of cost per waiting client so far, with which the clock of a new client begins."""
        self.work = 0
        """Estimated cost (see `cost`) of all lines in the queue that have not been sent to the engine."""
        self.counts: Counter[str] = Counter()
        """Number of jobs of each client in the queue."""
        self._ahead: dict[tuple[int, str | None], int] = {}
        """Cache of `ahead_of` since the last change of the queue: under overload it is called for every request."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs))

    def add(self, job: Job) -> None:
        """Add a job; raise its clock, and that of its client, to the fair shares so far if they are below."""
        if not self._jobs:  # the engine was idle: what anybody has had before does not count any more
            self._clocks, self._inner, self._now = {}, {}, 0.0
        if len(self._clocks) > 2 * len(self._jobs) + 100:
            self._clocks = {each: at for each, at in self._clocks.items() if at > self._now or each in self.counts}
            self._inner = {each: self._inner.get(each, 0.0) for each in self._clocks}
        self._clocks[job.client] = max(self._clocks.get(job.client, 0.0), self._now)
        job.clock = max(job.clock, self._inner.get(job.client, 0.0))
        self._jobs[job] = None
        self.counts[job.client] += 1
        self._ahead.clear()
        self.work += job.work

    def remove(self, job: Job) -> None:
        """Remove a job, if it is still queued."""
        if job in self._jobs:
            self.work -= job.work
            self._forget(job)

    def _forget(self, job: Job) -> None:
        del self._jobs[job]
        self.counts[job.client] -= 1
        if not self.counts[job.client]:
            del self.counts[job.client]
        self._ahead.clear()

    def put_back(self, taken: Slice) -> None:
        """Queue a job again from the first line of a slice that the engine has not answered; answers to later lines are
        dropped.

        All these lines are sent again, and may be divided into other slices than before.
        """
        job = taken.job
        self.remove(job)
        job.begun = taken.begin
        job.parts = {begin: answer for begin, answer in job.parts.items() if begin < taken.begin}
        self.add(job)

    @property
    def dominated(self) -> bool:
        """Return whether one client has more than half of the waiting jobs, and others wait or waited recently."""
        return len(self._clocks) > 1 and 2 * max(self.counts.values(), default=0) > len(self._jobs)

    def newest_of_largest(self) -> Job:
        """Return the newest job of the client that has the most jobs in the queue."""
        largest = max(self.counts, key=lambda client: self.counts[client])
        return next(job for job in reversed(self._jobs) if job.client == largest)

    def ahead_of(self, cost: int, client: str | None) -> int:
        """Estimate the cost of the waiting work that would be done before a new job of this cost is finished.

        Of each waiting job at most `cost` counts; of each other client, at most as much as this client would have
        waiting.

        Args:
            client: the client of the new job; None to assume that everything that waits came from that client, too.
        """
        if (found := self._ahead.get((cost, client))) is None:
            by_client: Counter[str | None] = Counter()
            for job in self._jobs:
                by_client[job.client if client is not None else None] += min(job.work, cost)
            own = by_client.pop(client, 0)
            found = own + sum(min(work, own + cost) for work in by_client.values())
            if len(self._ahead) < 1000:
                self._ahead[cost, client] = found
        return found

    def take(self, budget: float, key: Key | None = None, lines: float = math.inf) -> list[Slice]:
        """Remove and return the next batch: lines of the job whose turn it is, and of others with an equal key.

        Args:
            budget: maximum cost (see `cost`) of the batch; its first line may cost more.
            key: if given, the batch is empty if the next job has another key, or must be processed alone.
            lines: maximum number of lines.
        """

        def turn(job: Job) -> tuple[float, int, float, bool]:
            return self._clocks[job.client], self.counts[job.client], job.clock, job.begun > 0

        if not self._jobs:
            return []
        first = min(self._jobs, key=turn)
        if key is not None and (first.key != key or first.alone):
            return []
        company = [job for job in self._jobs if job.key == first.key and not job.alone]
        candidates = [first] if first.alone else company
        begins: dict[Job, int] = {}
        while candidates and lines > 0:
            job = min(candidates, key=turn)
            cost = job.costs[job.begun]
            if begins and cost > budget:
                candidates.remove(job)
                continue
            begins.setdefault(job, job.begun)
            budget -= cost
            lines -= 1
            self.work -= cost
            job.begun += 1
            self._now += cost / len(self.counts)
            self._clocks[job.client] += cost
            self._inner[job.client] = self._inner.get(job.client, 0.0) + cost / self.counts[job.client]
            job.clock += cost
            if job.begun == len(job.costs):
                candidates.remove(job)
                self._forget(job)
        self._ahead.clear()
        return [Slice(job, next(_numbers), begin, job.begun) for job, begin in begins.items()]
