"""The service without HTTP: runs by name, their engines, and what a request may ask of them."""

import itertools
import json
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from seq2see import conversation
from seq2see.errors import SettingError, nearest
from seq2see.run import Run
from seq2see.serve import work
from seq2see.serve.batching import Lane
from seq2see.serve.engine_process import Key, Setup
from seq2see.serve.fair_queue import Job
from seq2see.serve.limits import Keys, Limits, Rates, RefusedError, network
from seq2see.serve.log import log
from seq2see.serve.measures import Measures
from seq2see.tokens.tokenizers import SURROGATE

Event = tuple[str, Any]
BATCH_SECONDS = 0.5
"""Seconds that a batch of small requests should take at most."""
SMALL_SECONDS = 0.02
"""Seconds that a request may be expected to take and still count as small, however many ordinary ones it is worth. With
a fast model an ordinary request takes a few milliseconds, and would wait for a batch of a large one many times that."""
QUICK_TIMES = 3
"""Times an ordinary request that a request may cost and still counts as small, however slow the engine is."""
NICENESS = 10
"""How much small requests are preferred over long ones when the processor is busy; see `os.nice`."""
CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Who sent the request that is being answered; see `Service.admit`."""


class Service:
    """Runs, and three lanes before engines: for translations, for all that needs torch, and for long requests.

    They are apart because a look may take seconds, and a long request as many as its deadline has, which nobody's
    translation should wait for. The engine for long requests is started with the first of them, and gives way to the
    others when the processor is busy.
    """

    def __init__(
        self,
        runs: dict[str, Run],
        engine: str = "auto",
        precision: str | None = None,
        limits: Limits | None = None,
        keys: Keys | None = None,
        rates: Rates | None = None,
        log_texts: bool = False,
    ) -> None:
        self.runs = runs
        self.limits = limits or Limits()
        self.keys = keys or Keys([])
        self.rates = rates or Rates(0)
        self.measures = Measures()
        self._engine = engine
        self._log_texts = log_texts
        folders = {name: run.folder.absolute() for name, run in runs.items()}
        most = self.limits.output_tokens
        translating, inside = (Setup(folders, engine, precision, most, each) for each in (False, True))
        long = Setup(folders, engine, precision, most, False, NICENESS)
        self.quick = Lane("translate", translating, self.limits, self._heard, BATCH_SECONDS)
        self.inside = Lane("inside", inside, self.limits, self._heard, BATCH_SECONDS)
        self.long = Lane("long", long, self.limits, self._heard, on_demand=True)
        self.lanes = [self.quick, self.inside, self.long]
        self._alone = itertools.count(1)
        for lane in self.lanes:
            for name, about, value in (
                ("seq2see_ready", "Whether an engine is loaded.", lambda lane=lane: float(lane.ready)),
                ("seq2see_queue_requests", "Requests that wait.", lambda lane=lane: float(lane.waiting)),
                ("seq2see_queue_tokens", "Their estimated work.", lambda lane=lane: float(lane.queue.work)),
            ):
                self.measures.gauge(name, about, lane.name, value)

    def _heard(self, what: str, lane: str, *numbers: float) -> None:
        """What a lane tells of."""
        self.measures.heard(what, lane, *numbers)
        if what == "ready":
            log(f"engine ({lane}): ready")
        elif what == "restart":
            problem = next(each.problem for each in self.lanes if each.name == lane)
            log(f"engine ({lane}): ended; started again. Reason: {problem}")

    @property
    def obstacle(self) -> str | None:
        """Why no ordinary request would be answered now; None where it would."""
        for lane in (self.quick, self.inside):
            if not lane.ready:
                return f"the engine ({lane.name}) is not loaded" + self._because(lane)
            if lane.full:
                return f"the queue ({lane.name}) is full"
            if lane.silent > self.limits.deadline:
                return f"the engine ({lane.name}) has not answered for {lane.silent:.0f} seconds"
        return None

    def _because(self, lane: Lane) -> str:
        """Why a lane is not loaded; paths are shortened to the names of runs, since everybody may ask."""
        line = f": {lane.problem}" if lane.problem else ""
        for run in self.runs.values():
            line = line.replace(f"{run.folder.absolute().parent}/", "")
        return line

    def admit(self, headers: Mapping[str, str], client: tuple[str, int] | None, own_key: str | None = None) -> None:
        """Let a request in by its key, which may be in its body, and count it."""
        authorization = headers.get("authorization", "")
        bearer = authorization[7:].strip() if authorization[:7].lower() == "bearer " else None
        key = own_key or bearer or headers.get("x-api-key")
        try:
            self.keys.check(key)
        except RefusedError:
            self.count(client)  # whoever tries keys does not do so as often as they like
            raise
        sender = f"key {key}" if self.keys else self.address(client)
        CLIENT.set(sender)
        self.rates.check(sender)

    def count(self, client: tuple[str, int] | None) -> None:
        """Count a request that needs no key, by the address that it comes from, and refuse it if there are too many."""
        self.rates.check(self.address(client))

    @staticmethod
    def address(client: tuple[str, int] | None) -> str:
        """Return the network that a request comes from, by which clients are told apart where there are no keys."""
        return f"address {network(client[0])}" if client else ""

    def run(self, name: str | None) -> tuple[str, Run]:
        """A run by its name, never by a path: the first where none is named."""
        if name is None:
            name = next(iter(self.runs))
        if name not in self.runs:
            raise RefusedError(404, f"model: there is no '{_shown(name)}'. {nearest(name[:80], self.runs)}")
        return name, self.runs[name]

    def check_texts(self, texts: Sequence[str]) -> None:
        if not texts:
            raise RefusedError(400, "text: nothing to translate")
        if len(texts) > self.limits.texts:
            raise RefusedError(413, f"{len(texts):,} texts: at most {self.limits.texts:,} in a request")
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise RefusedError(413, f"{characters:,} characters: at most {self.limits.characters:,} in a request")
        if any(map(SURROGATE.search, texts)):
            raise RefusedError(400, "text: half of a surrogate pair (U+D800 to U+DFFF), which is no character")

    def check_language(self, run: Run, to: str | None, texts: Sequence[str]) -> str | None:
        """The tag to put in front, if any."""
        try:
            run.tagged(texts, to)
        except SettingError:  # whose words are those of the command line
            if not run.tags:
                raise RefusedError(400, "to: this model translates to one language only. Leave it out") from None
            fault = "is missing" if to is None else f"unknown language '{_shown(to)}'"
            raise RefusedError(400, f"to: {fault}. Choose from: {', '.join(run.tags)}") from None
        return to

    def _beam(self, run: Run, beam: int | None, n_best: int = 1) -> int:
        """As wide as asked, and at least n-best."""
        width = max(beam or run.settings.decoding.beam, n_best)
        if width > max(self.limits.beam, run.settings.decoding.beam):
            raise RefusedError(400, f"beam, n_best: {width:,} is too wide, at most {self.limits.beam}")
        return width

    def _job(
        self,
        lane: Lane,
        key: Key,
        what: dict[str, Any],
        texts: Sequence[str],
        times: float = 1,
        least_output: int = 0,
        splits: bool = False,
    ) -> tuple[Lane, Job]:
        """A job for these texts, and the lane that does it: `lane`, or the one for long requests.

        Args:
            times: how much more it costs than to translate them.
            least_output: tokens that every output is known to have.
            splits: whether its lines may be worked on in several batches.
        """
        client = CLIENT.get()
        lane.check(client)
        run, facts, beam = self.runs[key.model], lane.facts[key.model], key.beam or 1
        tokens = work.source_tokens(run, texts)
        # Work is counted by the fastest model, since the lane has one rate for all.
        times *= max(each.rate for each in lane.facts.values()) / facts.rate if facts.rate else 1
        chat = key.kind == "chat" or what.get("chat")  # of a line no more is read than training had
        decoding = (conversation.settings_for(run.settings) if chat else run.settings).decoding
        most = self.limits.output_tokens
        each_one = [work.cost(each, beam, facts.output_ratio, decoding, most, least_output) for each in tokens]
        costs = [math.ceil(times * each) for each in each_one]
        about = f"{sum(tokens):,} tokens x beam {beam}"
        due = time.monotonic() + self.limits.deadline
        job = Job(key, what, costs if splits else [sum(costs)], client, about, due)
        rate = min(filter(None, (lane.rate, max(each.rate for each in lane.facts.values()))), default=0.0)
        small = job.work <= QUICK_TIMES * times * facts.ordinary or not rate or job.work / rate <= SMALL_SECONDS
        if small:
            return lane, job
        self.long.assume(rate)
        return self.long, job

    async def translate(
        self,
        texts: Sequence[str],
        model: str | None = None,
        to: str | None = None,
        beam: int | None = None,
        n_best: int = 1,
        prefix: str | None = None,
        alignments: bool = False,
        sampling: dict[str, Any] | None = None,
        familiar: bool = False,
    ) -> tuple[str, str, list[dict[str, Any]]]:
        """The model, its engine, and a result for each text."""
        name, run = self.run(model)
        self.check_texts(texts)
        if sampling and n_best > 1:
            raise RefusedError(400, "sample: draws one translation of a text. Leave n_best out")
        if sampling and beam is not None:
            raise RefusedError(400, "sample: draws token by token. Leave beam out")
        to = self.check_language(run, to, texts)
        forced = bool(prefix)
        if forced:
            self.check_texts([str(prefix)])
        width = 1 if sampling else self._beam(run, beam, n_best)
        lane = self.inside if sampling or alignments or (forced and self._engine == "auto") else self.quick
        what = {
            "lines": list(texts),
            "to": to,
            "n_best": n_best,
            "prefix": prefix,
            "alignments": alignments,
            "sampling": sampling,
            "familiar": familiar,
        }
        key = Key("translate", name, width, forced, next(self._alone) if sampling else 0)
        least = work.source_tokens(run, [str(prefix)])[0] if forced else 0
        times = work.ALIGNED if alignments else 1
        lane, job = self._job(lane, key, what, texts, times, least, splits=not sampling)
        parts = await lane.do(job)
        engine, results = parts[0][0], [each for _, some in parts for each in some]
        self._log(name, texts, [[each["text"] for each in result["translations"]] for result in results])
        return name, engine, results

    async def chat(
        self, text: str, model: str | None, to: str | None, beam: int | None, sampling: dict[str, Any] | None
    ) -> tuple[str, dict[str, str]]:
        name, run = self.run(model)
        self.check_texts([text])
        to = self.check_language(run, to, [text])
        width = 1 if sampling else self._beam(run, beam)
        lane = self.inside if sampling else self.quick
        key = Key("chat", name, width, False, next(self._alone) if sampling else 0)
        what = {"text": text, "to": to, "sampling": sampling}
        lane, job = self._job(lane, key, what, [text])
        said: dict[str, str]
        (said,) = await lane.do(job)
        self._log(name, [text], [[said["answer"]]])
        return name, said

    def _log(self, model: str, texts: Sequence[str], answers: list[list[str]]) -> None:
        """Only where it was asked for."""
        if self._log_texts:
            for text, said in zip(texts, answers, strict=True):
                log(json.dumps({"model": model, "text": text, "answers": said}, ensure_ascii=False))

    def stream(
        self,
        text: str,
        model: str | None,
        to: str | None,
        prefix: str | None,
        sampling: dict[str, Any] | None,
        chat: bool,
    ) -> AsyncIterator[Event]:
        """Token by token. Whatever is wrong with the request is said before the first."""
        name, run = self.run(model)
        self.check_texts([text, prefix or ""])
        to = self.check_language(run, to, [text])
        key = Key("stream", name, 1, False, next(self._alone) if sampling or chat else 0)
        what = {"text": text, "to": to, "prefix": prefix, "sampling": sampling, "chat": chat}
        least = work.source_tokens(run, [prefix])[0] if prefix else 0
        lane, job = self._job(self.inside, key, what, [text], least_output=least)
        lane.put(job)
        return self._streamed(lane, job)

    async def _streamed(self, lane: Lane, job: Job) -> AsyncIterator[Event]:
        async for kind, what in lane.stream(job):
            if kind == "end":
                self._log(job.key.model, [job.what["text"]], [[what["text"]]])
            yield kind, what

    async def look(
        self,
        text: str,
        model: str | None,
        to: str | None,
        target: str | None,
        parts: list[str],
        without: Sequence[tuple[str, int, int]],
        prefix: Sequence[int] = (),
    ) -> bytes:
        name, run = self.run(model)
        if not text.strip() or (target is not None and not target.strip()):
            raise RefusedError(400, "text: is empty, there is nothing to look at")
        self.check_texts([text, target or ""])
        to = self.check_language(run, to, [text])
        what = {"text": text, "to": to, "target": target, "parts": parts, "without": without, "prefix": prefix}
        key = Key("look", name, alone=next(self._alone))
        least = work.source_tokens(run, [target])[0] if target else 0
        (tokens,) = work.source_tokens(run, [text])
        lane, job = self._job(self.inside, key, what, [text], work.look_times(tokens, parts), least)
        found: bytes
        (found,) = await lane.do(job)
        return found

    async def familiar(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """For each text, the share that each run knows from its sources, by name of the run, likeliest first."""
        name, _ = self.run(None)
        self.check_texts(texts)
        characters = sum(map(len, texts)) * len(self.runs)
        job = Job(Key("detect", name), {"texts": texts}, [1 + characters // work.DETECTED], CLIENT.get())
        found: list[dict[str, float]]
        (found,) = await self.quick.do(job)
        return found


def _shown(text: str) -> str:
    """What a request said, short and harmless enough to be said back."""
    short = text[:40].encode("utf-8", "replace").decode()
    return short if short.isprintable() else ascii(short)[1:-1]


def in_words(errors: Any) -> str:
    """The first mistake in one line; nothing that was sent is sent back but the names of fields."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return "the body is not JSON"
    if first["loc"] in ((), ("body",)) and first["type"] in ("missing", "model_type", "model_attributes_type"):
        return 'the body: expected an object, {"...": ...}'
    place = ".".join(str(each)[:40] for each in first["loc"] if each != "body") or "the body"
    said = ascii(place)[1:-1] if not place.isprintable() else place
    return f"{said}: {first['msg'][:200]}"
