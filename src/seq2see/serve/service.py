"""The service without HTTP: runs by name, their engines, and what a request may ask of them."""

import itertools
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from seq2see.data.normalization import SURROGATE
from seq2see.errors import SettingError, nearest
from seq2see.run import Run
from seq2see.serve.batching import Job, Lane
from seq2see.serve.engine_process import Key, Setup
from seq2see.serve.limits import Keys, Limits, Rates, RefusedError, network
from seq2see.serve.log import log
from seq2see.serve.measures import Measures

Event = tuple[str, Any]


class Service:
    """Runs, and two lanes before engines: one that only translates, and one that looks inside, draws and streams.

    Apart, since a look may take seconds, which nobody's translation should wait for.
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
        self.lanes = [
            Lane(
                name,
                Setup(folders, engine, precision, self.limits.output_tokens, name == "inside"),
                self.limits,
                self._heard,
            )
            for name in ("translate", "inside")
        ]
        self.quick, self.inside = self.lanes
        self._alone = itertools.count(1)
        for lane in self.lanes:
            for name, about, value in (
                ("seq2see_ready", "Whether an engine is loaded.", lambda lane=lane: float(lane.ready)),
                ("seq2see_queue_requests", "Requests that wait.", lambda lane=lane: float(lane.waiting)),
                ("seq2see_queue_tokens", "Their tokens times beam.", lambda lane=lane: float(lane.waiting_tokens)),
            ):
                self.measures.gauge(name, about, lane.name, value)

    def _heard(self, what: str, lane: str, *numbers: float) -> None:
        """What a lane tells of."""
        self.measures.heard(what, lane, *numbers)
        if what in ("ready", "restart"):
            log(f"engine ({lane}): {'ready' if what == 'ready' else 'ended; started again'}")

    @property
    def obstacle(self) -> str | None:
        """Why no request would be answered now; None where it would."""
        for lane in self.lanes:
            if not lane.ready:
                return f"the engine ({lane.name}) is not loaded"
            if lane.full:
                return f"the queue ({lane.name}) is full"
            if lane.silent > self.limits.deadline:
                return f"the engine ({lane.name}) has not answered for {lane.silent:.0f} seconds"
        return None

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
        if self.keys:
            self.rates.check(f"key {key}")
        else:
            self.count(client)

    def count(self, client: tuple[str, int] | None) -> None:
        """Count a request that needs no key, by the address that it comes from, and refuse it if there are too many."""
        self.rates.check(f"address {network(client[0])}" if client else "")

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

    def _tokens(self, lane: Lane, model: str, texts: Sequence[str], beam: int) -> int:
        """About how many they are, each with its end, times the beam."""
        lane.check()
        return math.ceil(sum(len(text) * lane.facts[model].tokens_for_character + 1 for text in texts)) * beam

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
        engine, results = await lane.do(Job(key, what, self._tokens(lane, name, texts, width)))
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
        said: dict[str, str] = await lane.do(Job(key, what, self._tokens(lane, name, [text], width)))
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
        job = Job(key, what, self._tokens(self.inside, name, [text], 1))
        self.inside.put(job)
        return self._streamed(job)

    async def _streamed(self, job: Job) -> AsyncIterator[Event]:
        async for kind, what in self.inside.stream(job):
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
        job = Job(key, what, self._tokens(self.inside, name, [text, target or ""], 1))
        found: bytes = await self.inside.do(job)
        return found

    async def familiar(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """For each text, the share that each run knows from its sources, by name of the run, likeliest first."""
        name, _ = self.run(None)
        self.check_texts(texts)
        job = Job(Key("detect", name), {"texts": texts}, self._tokens(self.quick, name, texts, 1))
        found: list[dict[str, float]] = await self.quick.do(job)
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
