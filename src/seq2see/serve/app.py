"""The HTTP app: its routes, which `/openapi.json` describes, and `Guard`, which checks requests before them.

`Guard` checks host and origin, size, API key and rate; `/translate` and `/detect` check key and rate themselves. Routes
are called with a complete body, and cancelled at the deadline or when the client has disconnected.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from seq2see import __version__
from seq2see.documents.glossary import Glossary, GlossaryEntry
from seq2see.errors import DataError
from seq2see.look import files
from seq2see.serve import bodies, libretranslate
from seq2see.serve.deepl import routes as deepl
from seq2see.serve.jobs import Asked
from seq2see.serve.lanes import Lane
from seq2see.serve.libretranslate import Wanted
from seq2see.serve.limits import Origins, RefusedError
from seq2see.serve.log import log, report
from seq2see.serve.service import CLIENT, Event, Peer, Service, in_words
from seq2see.text.words import Term

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Headers of responses, unless a route sets them: browsers must not guess types, load from other sites, or cache."""
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
DUE = "seq2see.due"
"""Key in the ASGI scope of a request for its deadline, in seconds by the clock of the event loop."""
SURPLUS = "seq2see.surplus"
"""Key in the ASGI scope, set if `Connection.surplus` is true: then only requests to /health are answered."""
INTERNAL = 500, "internal error; the log of the server says where"
UNCOUNTED = ("/health", "/ready")
KEY_IN_BODY = ("/translate", "/detect")
"""Paths of routes that check the API key themselves, because clients may send it in the body."""
DEEPL = "/v2/"
"""Prefix of the paths of DeepL's API, whose error responses are `{"message": ...}`."""
QUICK: dict[str, tuple[bytes, ...]] = {
    "/translate": (),
    "/v1/translate": (b'"stream"', b'"sample"', b'"alignments"', b'"prefix"', b'"markup"'),
    "/v1/chat": (b'"stream"', b'"sample"'),
    "/v2/translate": (b"tag_handling",),
}
"""Paths that `Guard.at_once` may refuse, unless one of the words in the body shows a need for another engine."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


def build(
    service: Service,
    log: bool = False,
    failed: Callable[[str], None] = lambda line: None,
    origins: Origins | None = None,
) -> "Guard":
    """Return the complete ASGI app around a service; it starts and stops the engines.

    Args:
        log: whether to log a line for each request.
        failed: called with the reason if an engine cannot be loaded at the start, or a bug keeps it from running on.
        origins: which web pages may send requests; by default only those of this server.
    """

    async def keep(lane: Lane) -> None:
        line = f"the engine ({lane.name}) cannot be kept running; the log says why"
        try:
            line = await lane.run()
        except Exception as problem:
            report(problem, f"the queue of the engine ({lane.name})")
        failed(line)

    @contextlib.asynccontextmanager
    async def engines(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(keep(lane)) for lane in service.lanes]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    app = bodies.Described(
        title="seq2see",
        version=__version__,
        description="Translate, chat, and look inside a Transformer.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        lifespan=engines,
        responses=bodies.PROBLEMS,
    )
    # The routes that are used most come first: each request is compared with them one after the other.
    app.include_router(_v1(service))
    app.include_router(_inside(service))
    app.include_router(libretranslate.routes(service))
    app.include_router(deepl.routes(service))
    app.include_router(_root(service))
    for problem in (RefusedError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(problem, _problem)
    return Guard(app, service, log, origins or Origins())


def _root(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health", tags=["operation"])
    async def health() -> bodies.StatusResponse:
        """Report that the service is alive."""
        return bodies.StatusResponse(status="ok")

    @routes.get("/ready", tags=["operation"])
    async def ready() -> bodies.StatusResponse:
        """Report whether requests would be answered now: engines loaded and working, queues not full; else 503."""
        if why := service.obstacle:
            raise RefusedError(503, why, 2)
        return bodies.StatusResponse(status="ready")

    @routes.get("/metrics", tags=["operation"], response_class=Response)
    async def metrics() -> Response:
        """Return counters and gauges in the text format of Prometheus."""
        return Response(
            generate_latest(service.metrics.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    # Put together once: nothing that a request names is looked up on the disk.
    names = ("index.html", "live.css", "interventions.js", "live.js")
    own = {name: files.read(f"page/{name}", "seq2see.serve") for name in names}
    pages = {
        "index.html": files.in_language(own["index.html"]).replace("<!-- sections -->", files.read("sections.html")),
        "page.css": files.style() + own["live.css"],
        "page.js": files.script(own["interventions.js"] + own["live.js"]),
    }

    @routes.get("/", include_in_schema=False)
    @routes.get("/page/{name}", include_in_schema=False)
    async def page(name: str = "index.html") -> Response:
        if name not in pages:
            raise RefusedError(404, "there is no such page")
        return Response(pages[name], media_type=KINDS[name[name.rindex(".") :]])

    return routes


def _v1(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["v1"])

    def streamed(body: bodies.SearchRequest, asked: Asked, scope: Message) -> Response:
        events = service.stream(asked, scope[CLIENT], body.model, body.beam)
        return StreamingResponse(
            sent_events(events, scope[DUE], service.limits.deadline), media_type="text/event-stream"
        )

    @routes.post("/translate", response_model=bodies.TranslateResponse, responses=bodies.STREAMED)
    async def translate(body: bodies.TranslateRequest, request: Request) -> Any:
        """Translate one text or several; with `stream`, send the translation of one text token by token."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        sampling = body.model_dump(include=bodies.SAMPLING) if body.sample else None
        if body.markup is not None:
            if sampling or body.stream or body.prefix or body.alignments or body.beam:
                raise RefusedError(400, "markup excludes stream, sample, prefix, alignments and beam: leave these out")
            finder = partial(_terms, service, body.glossary) if body.glossary else None
            wanted = Wanted("auto", "", body.model, body.markup, body.n_best, find_terms=finder)
            return await libretranslate.translate_documents(service, texts, wanted, body.to, request.scope[CLIENT])
        terms = await _terms(service, body.glossary, texts)
        asked = Asked(texts, body.to, body.n_best, body.prefix or "", sampling, body.alignments, terms=terms)
        if body.stream:
            return streamed(body, asked, request.scope)
        name, engine, results = await service.translate(asked, request.scope[CLIENT], body.model, body.beam)
        return JSONResponse({"model": name, "engine": engine, "results": results})

    @routes.post("/chat", response_model=bodies.ChatResponse, responses=bodies.STREAMED)
    async def chat(body: bodies.ChatRequest, request: Request) -> Any:
        """Answer a line as `seq2see chat` does; with `stream`, token by token."""
        sampling = body.model_dump(include=bodies.SAMPLING) if body.sample else None
        asked = Asked([body.text], body.to, sampling=sampling, chat=body.stream)
        if body.stream:
            return streamed(body, asked, request.scope)
        return JSONResponse(await service.chat(asked, request.scope[CLIENT], body.model, body.beam))

    @routes.get("/models")
    async def models() -> bodies.ModelsResponse:
        """List the models that are served."""
        facts = service.quick.facts
        return bodies.ModelsResponse(
            models=[
                bodies.ServedModel(
                    name=name,
                    source=run.languages.source,
                    targets=run.tags or [code for code in (run.languages.target,) if code],
                    choose=len(run.tags) > 1,
                    engine=facts[name].engine if name in facts else None,
                    parameters=run.manifest.get("parameters", 0),
                    examples=run.examples,
                )
                for name, run in service.runs.items()
            ]
        )

    return routes


def _inside(service: Service) -> APIRouter:
    """Return the router of /look, /patch and /contrast, which show or change activations during a translation."""
    routes = APIRouter(prefix="/v1", tags=["v1"])

    @routes.post("/look", response_model=bodies.LookResponse)
    async def look(body: bodies.LookRequest, request: Request) -> Any:
        """Return activations and explanations of one translation, in parts named as in `seq2see look --json`."""
        without = [(each.place, each.layer, each.head) for each in body.without]
        asked = Asked(
            [body.text], body.to, target=body.target, parts=body.parts, without=without, first_tokens=body.prefix
        )
        found = await service.look(asked, request.scope[CLIENT], body.model)
        return Response(found, media_type="application/json")

    @routes.post("/patch", response_model=bodies.PatchResponse)
    async def patch(body: bodies.PatchRequest, request: Request) -> Any:
        """Translate with some activations replaced by those of another sentence, as `run.patch` does."""
        asked = Asked(
            [body.text, body.donor], body.to, patch=body.model_dump(include={"name", "tokens", "donor_tokens"})
        )
        found = await service.look(asked, request.scope[CLIENT], body.model)
        return Response(found, media_type="application/json")

    @routes.post("/contrast", response_model=bodies.ContrastResponse)
    async def contrast(body: bodies.ContrastRequest, request: Request) -> Any:
        """Return why the model prefers an output token to another, as `run.contrast` does."""
        at = None if body.position is None or body.token is None else (body.position, body.token)
        given = sum(each is not None for each in (body.that, body.position, body.token))
        if given != (1 if at is None else 2) or (at is None and body.that is None):
            raise RefusedError(400, "contrast: give either 'that', or 'position' and 'token'")
        asked = Asked([body.text], body.to, target=body.target, contrast={"that": body.that, "at": at})
        found = await service.look(asked, request.scope[CLIENT], body.model)
        return Response(found, media_type="application/json")

    return routes


async def _terms(
    service: Service, given: dict[str, str | list[str]] | list[list[str]], texts: list[str]
) -> list[list[Term]]:
    """Return, for each text, the terms of the glossary `given` that occur in it; [] if the glossary is empty."""
    if not given:
        return []
    service.check_texts(texts)
    if isinstance(given, list):
        if not all(given):
            raise RefusedError(400, "glossary: an empty row. Write [term, translation]")
        rows = [(row[0], row[1:]) for row in given]
    else:
        rows = [(term, [forms] if isinstance(forms, str) else forms) for term, forms in given.items()]
    try:
        glossary = Glossary((GlossaryEntry(term, tuple(forms)) for term, forms in rows), "glossary")
        return await asyncio.to_thread(lambda: [glossary.terms_in(text) for text in texts])
    except DataError as problem:
        raise RefusedError(400, str(problem)[:1000]) from None


async def sent_events(events: AsyncIterator[Event], due: float, seconds: float) -> AsyncIterator[bytes]:
    """Yield server-sent events: each `token`, then `end`; or `error`: refused, or no answer by `due` (in `seconds`)."""

    def event(kind: str, what: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps(what, ensure_ascii=False)}\n\n".encode("utf-8", "replace")

    try:
        while True:
            async with asyncio.timeout_at(due):
                found = await anext(events, None)
            if found is None:
                return
            yield event(*found)
    except TimeoutError:
        yield event("error", {"error": f"no answer within {seconds:g} seconds", "status": 504})
    except RefusedError as refused:
        yield event("error", refused.body() | {"status": refused.status})


async def _problem(request: Request, problem: Exception) -> Response:
    """Return a JSON response for an exception; Starlette raises unexpected ones again, and `Guard` logs them."""
    path = request.url.path
    if isinstance(problem, HTTPException) and problem.status_code != 400:  # no such path or method
        return JSONResponse({error_field(path): str(problem.detail)}, problem.status_code, problem.headers)
    if isinstance(problem, RefusedError):
        refused = problem
    elif not isinstance(problem, RequestValidationError | HTTPException):
        refused = RefusedError(*INTERNAL)
    elif "json" not in request.headers.get("content-type", ""):
        refused = RefusedError(415, "Content-Type: expected application/json")
    elif isinstance(problem, RequestValidationError):
        refused = RefusedError(400, in_words(problem.errors()))
    else:
        refused = RefusedError(400, "the body is not JSON in UTF-8")
    headers, body = in_json(refused, error_field(path))
    return Response(body, refused.status, headers)


class Guard:
    """An ASGI app around another: it refuses requests, or passes them on with their whole body and a deadline."""

    def __init__(self, app: App, service: Service, log: bool, origins: Origins) -> None:
        self._app = app
        self._service = service
        self._limits = service.limits
        self._log = log
        self._origins = origins

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        status = 0
        shared: list[tuple[bytes, bytes]] = []

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message.get("headers", [])}
                safe = (each for each in _HEADERS if each[0] not in own)
                message["headers"] = [*message.get("headers", []), *safe, *shared]
            await send(message)

        headers, path = dict(scope["headers"]), scope["path"]
        try:
            shared += self._origins.check(scope["method"], headers)
            if scope.get(SURPLUS) and path != "/health":
                raise RefusedError(503, "too many open connections; try again later", 2, hang_up=True)
            body = await self._whole_body(headers, receive)
            if shared and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                await sending({"type": "http.response.start", "status": 204, "headers": []})
                await sending({"type": "http.response.body", "body": b""})
            elif body is not None:
                if path.startswith(("/v1/", DEEPL)) or path == "/metrics":
                    scope[CLIENT] = self._service.admit(scope.get("client"), headers)
                elif path not in UNCOUNTED and path not in KEY_IN_BODY:
                    self._service.count(scope.get("client"))
                if scope["method"] == "HEAD":  # as GET; the server leaves the body out
                    scope = {**scope, "method": "GET"}
                await self._answer(scope, body, receive, sending, lambda: bool(status), begun)
        except RefusedError as refused:
            await refuse(sending, refused, path)
        except Exception as problem:
            report(problem, "the service")
            if not status:
                await refuse(sending, RefusedError(*INTERNAL), path)
        except asyncio.CancelledError:  # the time to end the service in is over
            if not status:
                await refuse(sending, RefusedError(503, "the service is being stopped", 5, hang_up=True), path)
            raise
        route = getattr(scope.get("route"), "path", None) or "other"
        self._note(scope["method"], route, status, time.monotonic() - begun)

    def at_once(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes, peer: Peer) -> bytes | None:
        """Return a refusal as bytes if the queue is full, or host or origin is not allowed; None to let the app decide.

        It is called under overload, with requests that have arrived completely: to refuse them through a task and the
        ASGI app would take several times as long, and the engine needs the same CPU cores.
        """
        quick = self._service.quick
        if not quick.ready or path not in QUICK or any(word in body for word in QUICK[path]):
            return None
        try:
            if self._origins.check(method, headers):  # a page of another site, which has to be told that it may read
                return None
            quick.check(self._service.address(peer))
        except RefusedError as refused:
            self._note(method, "other", refused.status, 0.0)
            return on_the_wire(refused.status, refused.line, refused.retry_after, field=error_field(path))
        return None

    def _note(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in ("GET", "POST", "DELETE", "OPTIONS") else "other"
        self._service.metrics.requests.labels(method, route, status).inc()
        self._service.metrics.seconds.labels(route).observe(seconds)
        if self._log:
            line = f"{method} {route} {status or 'hung up'} {1000 * seconds:.0f} ms"
            log(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    async def _whole_body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the body, or None if the client disconnected; refuse a body that is too large or too slow."""
        most = self._limits.body_bytes
        length = headers.get(b"content-length", b"0")
        is_too_large = not length.isdigit() or len(length) > 18 or int(length) > most
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while not is_too_large:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    is_too_large = len(body) > most
                    if not is_too_large and not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {self._limits.body_seconds:g} seconds") from None
        raise RefusedError(413, f"the body is larger than {most:,} bytes")

    async def _answer(
        self,
        scope: MutableMapping[str, Any],
        body: bytes,
        receive: Receive,
        send: Send,
        has_begun: Callable[[], bool],
        begun: float,
    ) -> None:
        """Run the app until it has answered, the client disconnects, or the deadline, counted from `begun`, is over."""
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                await asyncio.Event().wait()  # whether the client is still there is our business
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def hung_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        left = self._limits.deadline - (time.monotonic() - begun)
        scope[DUE] = asyncio.get_running_loop().time() + left
        answering, watching = asyncio.ensure_future(self._app(scope, again, send)), asyncio.ensure_future(hung_up())
        both = {answering, watching}
        try:
            done, _ = await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done and has_begun():  # a stream has a second to say that it is too late
                await asyncio.wait(both, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
        await asyncio.wait(both)
        if not answering.cancelled():
            answering.result()
        elif not done and not has_begun():
            raise RefusedError(504, f"no answer within {self._limits.deadline:g} seconds", 1)


async def refuse(send: Send, refused: RefusedError, path: str = "") -> None:
    """Send a refusal through ASGI, as JSON with the error field that clients of this path expect."""
    headers, body = in_json(refused, error_field(path))
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


@lru_cache(128)
def on_the_wire(
    status: int, line: str, retry_after: int | None = None, hang_up: bool = False, field: str = "error"
) -> bytes:
    """Return the bytes of an HTTP response that refuses a request and says `line`; sent without the ASGI app."""
    headers, body = in_json(RefusedError(status, line, retry_after, hang_up), field)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (headers | HEADERS).items()]
    return "\r\n".join([*lines, "\r\n"]).encode() + body


def error_field(path: str) -> str:
    """Return the JSON field for the message of a refusal: `message` for DeepL's paths, else `error`."""
    return "message" if path.startswith(DEEPL) else "error"


def in_json(refused: RefusedError, field: str = "error") -> tuple[dict[str, str], bytes]:
    """Return the headers and the JSON body of a refusal, whose message is in the field `field`."""
    body = json.dumps(refused.body(field), ensure_ascii=False).encode("utf-8", "replace")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.hang_up:
        headers["connection"] = "close"
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers, body
