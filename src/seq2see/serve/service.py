"""The service without HTTP: runs by name, their engines, and all decisions about a request.

`Service.admit` checks the API key and the rate of a client; `Service.decide` accepts or refuses a request, in the same
way for all routes.
"""

import itertools
import json
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from seq2see import conversation, machine
from seq2see.decoding.translator import encode_prefix
from seq2see.display.wording import translated
from seq2see.errors import SettingError, nearest
from seq2see.run import Run
from seq2see.serve.jobs import Asked, Job, Key, Kind, Setup, cost, source_tokens
from seq2see.serve.lanes import Lane
from seq2see.serve.limits import Keys, Limits, Rates, RefusedError, network
from seq2see.serve.log import log
from seq2see.tokens.interface import SURROGATE

Event = tuple[str, Any]
Peer = tuple[str, int] | None
"""IP address and port from which a request was sent; None if they are unknown."""
CLIENT = "seq2see.client"
"""Key in the ASGI scope of a request for the name of its client, as `Service.admit` returns it."""
KEY_SCHEMES = ("bearer", "deepl-auth-key")
"""Words that may precede an API key in the Authorization header; the second is that of DeepL's clients."""
SMALL_SECONDS = 0.02
"""Expected duration, in seconds, up to which a request is small, whatever its cost, and does not go to the engine for
long requests. With a fast model a typical request takes a few milliseconds, and would wait many times as long behind a
batch of a large one.
"""
QUICK_TIMES = 3
"""Multiple of the cost of a typical text (`Facts.ordinary`, with alignments or a look if requested) up to which a
request is small on any engine.
"""
NICENESS = 10
"""Niceness (see `os.nice`) of the engine process for long requests, so that small requests are preferred when the CPU
is busy.
"""
DETECTED = 200
"""In language detection, number of characters whose comparison with the vocabulary of a run costs 1 (`jobs.cost`)."""
ALIGNED = 2
"""Cost of translating a text with word alignments, as a multiple of the cost of translating it without."""
TERMED = 3
"""Additional cost for each glossary term in a text, as a multiple of the cost of translating the text."""
LOOKED = 4
"""Cost of translating a text and describing its recorded activations, as a multiple of the cost of translating it."""
LOOK_TOKENS = 128
"""Maximum number of source tokens of a text whose activations are recorded; longer ones are refused by the engine."""
LEFT_OUT = 3
"""Number of forward passes, each without one source token or one head, that cost as much as translating the text."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServiceMetrics:
    """Counters, gauges and histograms for Prometheus, in a registry of their own. No label has text of a request."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"seq2see_{name}", about, labels, registry=self.registry)

        def histogram(name: str, about: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"seq2see_{name}", about, [label], buckets=buckets, registry=self.registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"seq2see_{name}", about, ["engine"], registry=self.registry)

        self.requests = counter("requests", "Requests answered.", "method", "endpoint", "status")
        self.seconds = histogram(
            "request_seconds", "Seconds from a request to the end of its response.", "endpoint", buckets=BUCKETS
        )
        self.batches = histogram("batch_requests", "Number of requests in a batch.", "engine", buckets=SIZES)
        self.batch_seconds = histogram(
            "batch_seconds", "Seconds that an engine took for a batch.", "engine", buckets=BUCKETS
        )
        self.tokens = counter(
            "tokens", "Estimated work done, about the number of source tokens of typical texts.", "engine"
        )
        self.restarts = counter("engine_restarts", "Engine processes that ended and were replaced.", "engine")
        self.abandoned = counter(
            "abandoned", "Requests whose client disconnected, or whose deadline passed, before the response.", "engine"
        )
        self.log_lines_dropped = counter(
            "log_lines_dropped", "Lines of the log that could not be written to standard error."
        )
        self.ready = gauge("ready", "Whether an engine is loaded.")
        self.queue_requests = gauge("queue_requests", "Requests that wait for an engine.")
        self.queue_tokens = gauge("queue_tokens", "Estimated work of the requests that wait, as in seq2see_tokens.")


class Service:
    """The served runs, and their lanes (engines with queues): one for translations, one for all that needs PyTorch, if
    that is installed, and one for long requests.

    They are separate because `/v1/look` may take seconds, and a long request up to its deadline, and no translation
    should wait for that. The engine for long requests is started with the first of them, and has a lower CPU priority
    than the others.

    Args:
        keys: API keys, one of which every client must send; None: no key is needed.
        rates: limit of requests per minute of each client; None: no limit.
        log_texts: whether to log texts and their translations.
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
        self.keys = keys
        self.rates = rates
        self.metrics = ServiceMetrics()
        self.kept: OrderedDict[Any, dict[str, Any]] = OrderedDict()
        """Cached translations of sentences of documents, the least recently used first; see `Limits.cached`."""
        self._engine = engine
        self._log_texts = log_texts
        self._alone = itertools.count(1)
        folders = {name: run.folder.absolute() for name, run in runs.items()}
        most = self.limits.output_tokens
        translating, inside = (Setup(folders, engine, precision, most, each) for each in (False, True))
        long = Setup(folders, engine, precision, most, False, NICENESS)
        self.quick = Lane("translate", translating, self.limits, self._heard)
        self.inside = Lane("inside", inside, self.limits, self._heard)
        self.long = Lane("long", long, self.limits, self._heard, on_demand=True)
        self._has_torch = machine.has_torch()
        self.lanes = [self.quick, *([self.inside] if self._has_torch else []), self.long]
        for lane in self.lanes:
            self.metrics.ready.labels(lane.name).set_function(partial(getattr, lane, "ready"))
            self.metrics.queue_requests.labels(lane.name).set_function(partial(len, lane.queue))
            self.metrics.queue_tokens.labels(lane.name).set_function(partial(getattr, lane.queue, "work"))

    def _heard(self, what: str, lane: str, *numbers: float) -> None:
        """Update the metrics and the log for an event of a lane (an engine and its queue)."""
        match what:
            case "ready":
                log(translated(f"engine ({lane}): ready"))
            case "batch":
                requests, tokens, seconds = numbers
                self.metrics.batches.labels(lane).observe(requests)
                self.metrics.batch_seconds.labels(lane).observe(seconds)
                self.metrics.tokens.labels(lane).inc(tokens)
            case "hang_up":
                self.metrics.abandoned.labels(lane).inc()
            case "restart":
                self.metrics.restarts.labels(lane).inc()
                problem = next(each.problem for each in self.lanes if each.name == lane)
                log(translated(f"engine ({lane}): ended; started again. Reason: {problem}"))

    @property
    def obstacle(self) -> str | None:
        """Return why a typical request, other than a long one, would not be answered now; None if it would be."""
        for lane in self.lanes:
            if lane.on_demand:
                continue
            if not lane.ready:
                line = f"the engine ({lane.name}) is not loaded" + (f": {lane.problem}" if lane.problem else "")
                for run in self.runs.values():  # everybody may ask: paths are shortened to the names of runs
                    line = line.replace(f"{run.folder.absolute().parent}/", "")
                return line
            if lane.is_full():
                return f"the queue ({lane.name}) is full"
            if lane.silent > self.limits.deadline:
                return f"the engine ({lane.name}) has not answered for {lane.silent:.0f} seconds"
        return None

    def admit(self, peer: Peer, headers: Mapping[bytes, bytes], own_key: str | None = None) -> str:
        """Check the API key of a request, count it for the rate limit, and return its client: the key, or the network.

        Args:
            own_key: a key in the body of the request, used instead of one in the headers.
        """
        if self.keys is None:
            return self.count(peer)
        scheme, _, credentials = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        key = credentials.strip() if scheme.lower() in KEY_SCHEMES else ""
        key = own_key or key or headers.get(b"x-api-key", b"").decode("latin-1")
        try:
            self.keys.check(key)
        except RefusedError:
            self.count(peer)  # nobody may try as many keys as they like
            raise
        client = f"key {key}"
        if self.rates is not None:
            self.rates.check(client)
        return client

    def count(self, peer: Peer) -> str:
        """Count a request for the rate limit of the network that it came from, and return the network as its client."""
        client = self.address(peer)
        if self.rates is not None:
            self.rates.check(client)
        return client

    @staticmethod
    def address(peer: Peer) -> str:
        """Return the name of a sender's network, by which clients are told apart without keys; "" if it is unknown."""
        return f"address {network(peer[0])}" if peer else ""

    def run(self, name: str | None) -> tuple[str, Run]:
        """Return the name of a run and the run, found by its name and never by a path; the first if `name` is None."""
        if name is None:
            name = next(iter(self.runs))
        if name not in self.runs:
            raise RefusedError(404, f"model: there is no model '{_shown(name)}'. {nearest(name[:80], self.runs)}")
        return name, self.runs[name]

    def can_align(self, name: str) -> bool:
        """Return whether a run can compute word alignments: it needs PyTorch, and a model with attention."""
        return self._has_torch and bool(self.runs[name].settings.model.attention)

    def keep(self, key: Any, result: dict[str, Any]) -> None:
        """Cache the translation of a sentence; above `Limits.cached`, which may be 0, drop the least recently used."""
        self.kept[key] = result
        self.kept.move_to_end(key)
        while len(self.kept) > self.limits.cached:
            self.kept.popitem(last=False)

    def check_texts(self, texts: Sequence[str]) -> None:
        if not texts:
            raise RefusedError(400, "the list of texts is empty: send at least one text")
        if len(texts) > self.limits.texts:
            raise RefusedError(413, f"{len(texts):,} texts: at most {self.limits.texts:,} in a request")
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise RefusedError(413, f"{characters:,} characters: at most {self.limits.characters:,} in a request")
        if any(map(SURROGATE.search, texts)):
            raise RefusedError(400, "text: half of a surrogate pair (U+D800 to U+DFFF), which is no character")

    def decide(
        self, kind: Kind, asked: Asked, client: str, model: str | None = None, beam: int | None = None
    ) -> tuple[Lane, Job]:
        """Queue a request as a job, and return it with the lane of the engine that will answer it; or raise a refusal.

        Its options and texts are checked first, then whether its engine accepts requests, and last whether this
        request, whose cost is only estimated then, can be answered in time.
        """
        name, run = self.run(model)
        _check_options(kind, asked, beam)
        for texts in (asked.lines, [asked.prefix], [asked.target or ""], [(asked.contrast or {}).get("that") or ""]):
            self.check_texts(texts)
        if kind != "detect":
            _check_language(run, asked)
            if asked.prefix:
                _check_prefix(run, asked.prefix)
        width = None if kind in ("look", "detect") else 1
        if kind in ("translate", "chat") and not asked.sampling:
            width = self._beam(run, beam, asked.n_best)
        alone = kind == "look" or bool(asked.sampling) or asked.chat
        is_forced = bool(asked.prefix) and kind == "translate"
        key = Key(kind, name, width, is_forced, any(asked.terms), next(self._alone) if alone else 0)
        lane = self._lane(kind, asked)
        lane.check(client)
        if kind == "detect":
            characters = sum(map(len, asked.lines)) * len(self.runs)
            job = Job(key, asked, [1 + characters // DETECTED], client)
        else:
            chosen, job = self._estimated(lane, key, asked, client)
            if chosen is not lane:
                lane = chosen
                lane.check(client)
        lane.put(job)
        return lane, job

    def _lane(self, kind: Kind, asked: Asked) -> Lane:
        """Return the lane for a request that is not long; raise a refusal if PyTorch is needed and not installed."""
        if kind in ("look", "stream") or asked.sampling or asked.alignments:
            if not self._has_torch:
                raise RefusedError(
                    501, "look, patch, contrast, stream, sample and alignments need PyTorch: not installed here"
                )
            return self.inside
        return self.inside if asked.prefix and self._engine == "auto" and self._has_torch else self.quick

    def _beam(self, run: Run, beam: int | None, n_best: int) -> int:
        """Return the beam width: as requested or that of the run, and at least `n_best`; refuse it above the limit."""
        width = max(beam or run.settings.decoding.beam, n_best)
        if width > (most := max(self.limits.beam, run.settings.decoding.beam)):
            raise RefusedError(400, f"beam, n_best: a beam width of {width:,} is too large, at most {most}")
        return width

    def _estimated(self, lane: Lane, key: Key, asked: Asked, client: str) -> tuple[Lane, Job]:
        """Return a job with its cost, and its lane: the given one if the job is small, else the one for long requests.

        See `SMALL_SECONDS` and `QUICK_TIMES` for which jobs are small.
        """
        run, facts, beam = self.runs[key.model], lane.facts[key.model], key.beam or 1
        tokens = source_tokens(run, asked.lines)
        given = asked.prefix or asked.target
        least_output = source_tokens(run, [given])[0] if given else 0
        fastest = max(each.rate for each in lane.facts.values())
        times = [ALIGNED if asked.alignments else 1.0] * len(tokens)
        if key.kind == "look":
            heads = sum(layers * each for layers, each in run.settings.model.attention.values())
            times = [look_times(each, asked.parts, heads if asked.contrast else None) for each in tokens]
        # Work is counted by the fastest model, since the lane has one rate for all.
        times = [each * (fastest / facts.rate if facts.rate else 1) for each in times]
        settings = conversation.settings_for(run.settings) if asked.chat or key.kind == "chat" else run.settings
        most = self.limits.output_tokens
        costs = [
            math.ceil(factor * cost(each, beam, facts.output_ratio, settings.decoding, most, least_output))
            for each, factor in zip(tokens, times, strict=True)
        ]
        if asked.terms:
            costs = [each * (1 + TERMED * len(terms)) for each, terms in zip(costs, asked.terms, strict=True)]
        splits = key.kind == "translate" and not asked.sampling
        about = f"{sum(tokens):,} tokens x beam {beam}"
        due = time.monotonic() + self.limits.deadline
        job = Job(key, asked, costs if splits else [sum(costs)], client, about, due)
        rate = min(filter(None, (lane.rate, fastest)), default=0.0)
        if job.work <= QUICK_TIMES * max(times) * facts.ordinary or not rate or job.work / rate <= SMALL_SECONDS:
            return lane, job
        self.long.assume(rate)
        return self.long, job

    async def translate(
        self, asked: Asked, client: str, model: str | None = None, beam: int | None = None
    ) -> tuple[str, str, list[dict[str, Any]]]:
        """Return the name of the model, that of its engine, and a result for each line."""
        lane, job = self.decide("translate", asked, client, model, beam)
        parts = await lane.finish(job)
        results = [each for _, some in parts for each in some]
        self._log(job, [[each["text"] for each in result["translations"]] for result in results])
        return job.key.model, parts[0][0], results

    async def chat(self, asked: Asked, client: str, model: str | None, beam: int | None) -> dict[str, str]:
        """Return the name of the model, the answer to a line, and a note about it, as a JSON object."""
        lane, job = self.decide("chat", asked, client, model, beam)
        (said,) = await lane.finish(job)
        self._log(job, [[said["answer"]]])
        return {"model": job.key.model, **said}

    def stream(self, asked: Asked, client: str, model: str | None, beam: int | None) -> AsyncIterator[Event]:
        """Return an iterator over the events of a streamed answer; raise a refusal at once if it cannot be queued."""
        return self._streamed(*self.decide("stream", asked, client, model, beam))

    async def _streamed(self, lane: Lane, job: Job) -> AsyncIterator[Event]:
        async for kind, what in lane.stream(job):
            if kind == "end":
                self._log(job, [[what["text"]]])
            yield kind, what

    async def look(self, asked: Asked, client: str, model: str | None) -> bytes:
        """Return, as JSON, what `LookResponse`, `PatchResponse` or `ContrastResponse` describes."""
        lane, job = self.decide("look", asked, client, model)
        found: bytes
        (found,) = await lane.finish(job)
        return found

    async def familiar(self, texts: Sequence[str], client: str) -> list[dict[str, float]]:
        """Return, for each text, the share of its characters that the source tokenizer of each run finds familiar (see
        `Tokenizer.familiar`), by the name of the run, highest first.
        """
        lane, job = self.decide("detect", Asked(texts), client)
        found: list[dict[str, float]]
        (found,) = await lane.finish(job)
        return found

    def _log(self, job: Job, answers: list[list[str]]) -> None:
        """Log texts and answers, if `log_texts` was set."""
        if self._log_texts:
            for text, said in zip(job.asked.lines, answers, strict=True):
                log(json.dumps({"model": job.key.model, "text": text, "answers": said}, ensure_ascii=False))


def look_times(tokens: int, parts: Sequence[str], heads: int | None = None) -> float:
    """Return the cost of a look, patch or contrast, relative to translating a source with this many tokens.

    Args:
        parts: names of the requested parts of a look.
        heads: number of attention heads, if a contrast leaves out each head and each source token; otherwise None.
    """
    shown = min(tokens, LOOK_TOKENS)  # more are refused by the engine, before anything is searched for
    left_out = shown + heads if heads is not None else shown if "importance" in parts else 0
    return (LOOKED + left_out / LEFT_OUT) * shown / tokens


def _check_options(kind: Kind, asked: Asked, beam: int | None) -> None:
    """Raise a refusal for options that exclude each other, and for an empty text where activations are requested."""
    if kind == "stream":
        if len(asked.lines) != 1 or asked.n_best > 1 or (beam or 1) > 1 or asked.alignments:
            raise RefusedError(
                400, "stream: only one text, by greedy search or sampling. Leave beam, n_best and alignments out"
            )
        if asked.terms:
            raise RefusedError(400, "stream: terms need the whole translation. Leave glossary out")
    elif asked.sampling and asked.n_best > 1:
        raise RefusedError(400, "sample: gives one translation per text. Leave n_best out")
    elif asked.sampling and beam is not None:
        raise RefusedError(400, "sample: does not use a beam. Leave beam out")
    if kind == "look":
        that = asked.contrast["that"] if asked.contrast is not None else None
        if not all(text.strip() for text in (*asked.lines, asked.target, that) if text is not None):
            raise RefusedError(400, "text, donor, target or that is empty: there is nothing to explain")


def _check_language(run: Run, asked: Asked) -> None:
    try:
        run.tagged(asked.lines, asked.to)
    except SettingError:  # the message is about options of the command line
        if not run.tags:
            raise RefusedError(400, "to: this model translates to one language only. Leave it out") from None
        fault = "is missing" if asked.to is None else f"unknown language '{_shown(asked.to)}'"
        raise RefusedError(400, f"to: {fault}. Choose from: {', '.join(run.tags)}") from None


def _check_prefix(run: Run, prefix: str) -> None:
    try:
        encode_prefix(run.tokenizers.target, prefix)
    except SettingError as problem:
        raise RefusedError(400, str(problem)) from None


def _shown(text: str) -> str:
    """Return a text of a request, shortened and without control characters, for an error message."""
    short = text[:40].encode("utf-8", "replace").decode()
    return short if short.isprintable() else ascii(short)[1:-1]


def in_words(errors: Any) -> str:
    """Return the first of Pydantic's validation errors in one line; of the request it quotes only names of fields."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return "the body is not JSON"
    if first["loc"] in ((), ("body",)) and first["type"] in ("missing", "model_type", "model_attributes_type"):
        return 'the body: expected an object, {"...": ...}'
    place = ".".join(str(each)[:40] for each in first["loc"] if each != "body") or "the body"
    said = ascii(place)[1:-1] if not place.isprintable() else place
    return f"{said}: {first['msg'][:200]}"
