"""The routes: what each takes, what it answers, and how a mistake is said. `/openapi.json` describes them all."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from seq2see import __version__
from seq2see.look import files
from seq2see.serve import bodies, libretranslate
from seq2see.serve.guard import INTERNAL, LATE, Guard, Late, in_json
from seq2see.serve.limits import PEER, Origins, RefusedError
from seq2see.serve.log import report
from seq2see.serve.service import Event, Service, in_words

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": bodies.Problem, "description": "The request is at fault, or comes at a bad time (429)."},
    "5XX": {"model": bodies.Problem, "description": "Not ready (503), or not within the deadline (504)."},
}
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {"event": {"enum": ["token", "end", "error"]}, "data": {"type": "string", "description": "JSON."}},
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": EVENT}}, "description": "Where `stream` is true, events."}
}
QUICK: dict[str, tuple[bytes, ...]] = {
    "/translate": (),
    "/v1/translate": (b'"stream"', b'"sample"', b'"alignments"', b'"prefix"'),
    "/v1/chat": (b'"stream"', b'"sample"'),
}
"""Routes to the engine that only translates; and what a body may have in it that asks for the other."""
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
) -> Guard:
    """The whole app around a service.

    Args:
        failed: told why no engine can be started.
        origins: who may ask by a browser; everybody who is not a page of another site, where it is left out.
    """

    @contextlib.asynccontextmanager
    async def engines(_: FastAPI) -> AsyncIterator[None]:
        async def keep(lane: Any) -> None:
            try:
                await lane.run()
            except Exception as problem:
                report(problem, f"the line before the engine ({lane.name})")
            failed(lane.failure or f"the engine ({lane.name}) cannot be kept; the log says why")

        tasks = [asyncio.create_task(keep(lane)) for lane in service.lanes]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    app = FastAPI(
        title="seq2see",
        version=__version__,
        description="Translate, chat, and look inside a Transformer.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # has a route of ours, which counts requests
        lifespan=engines,
        responses=PROBLEMS,
    )
    app.include_router(_root(service))
    app.include_router(_v1(service))
    app.include_router(libretranslate.routes(service))
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(Exception, _broken)

    @app.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> JSONResponse:
        service.count(request.client)
        return JSONResponse(app.openapi())

    async def invalid(request: Request, problem: Exception) -> Response:
        """Bodies are read before keys are looked at; who has none, or asks too often, is told that and no more."""
        try:
            if not getattr(request.state, "admitted", False):  # what is no JSON comes here before `let_in` was asked
                service.admit(request.headers, request.client)
        except RefusedError as refused:
            return await _refused(request, refused)
        return await _invalid(request, problem)

    app.add_exception_handler(RequestValidationError, invalid)

    async def http(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        if problem.status_code == 400:  # a body that is no JSON at all
            return await invalid(request, problem)
        try:
            service.count(request.client)  # no such path or method: no route has counted it
        except RefusedError as refused:
            return await _refused(request, refused)
        return JSONResponse({"error": str(problem.detail)}, problem.status_code, problem.headers)

    app.add_exception_handler(HTTPException, http)

    def check(path: str, body: bytes) -> None:
        """Refuse before a body is made sense of: under overload that is most of the work."""
        if service.quick.ready and path in QUICK and not any(word in body for word in QUICK[path]):
            service.quick.check(service.address(PEER.get()))

    return Guard(app, service.limits, service.measures, check, log, origins or Origins())


def _root(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health", tags=["operation"])
    async def health() -> bodies.Alive:
        """Whether the service is alive."""
        return bodies.Alive(status="ok")

    @routes.get("/ready", tags=["operation"])
    async def ready() -> bodies.Alive:
        """Whether it would answer now: models loaded, queue not full. 503 with the reason where it would not."""
        if why := service.obstacle:
            raise RefusedError(503, why, 2)
        return bodies.Alive(status="ready")

    @routes.get("/metrics", tags=["operation"], response_class=Response, dependencies=bodies.KEYS)
    async def metrics(request: Request) -> Response:
        """Counters and gauges for Prometheus."""
        service.admit(request.headers, request.client)
        return Response(service.measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    # Put together once: nothing that a request names is looked up on the disk.
    own = {name: files.read(f"page/{name}", "seq2see.serve") for name in ("index.html", "live.css", "live.js")}
    pages = {
        "index.html": own["index.html"].replace("<!-- sections -->", files.read("sections.html")),
        "page.css": files.read("page.css") + own["live.css"],
        "page.js": files.script(own["live.js"]),
    }

    @routes.get("/", include_in_schema=False)
    @routes.get("/page/{name}", include_in_schema=False)
    async def page(request: Request, name: str = "index.html") -> Response:
        service.count(request.client)
        if name not in pages:
            raise RefusedError(404, "there is no such page")
        return Response(pages[name], media_type=KINDS[name[name.rindex(".") :]])

    return routes


def _v1(service: Service) -> APIRouter:
    async def let_in(request: Request) -> None:  # in the task of the request, whose context remembers the client
        service.admit(request.headers, request.client)
        request.state.admitted = True

    routes = APIRouter(prefix="/v1", tags=["v1"], dependencies=[Depends(let_in), *bodies.KEYS])

    @routes.get("/models")
    async def models() -> bodies.Models:
        """The runs that are served."""
        facts = service.quick.facts
        return bodies.Models(
            models=[
                bodies.Model(
                    name=name,
                    source=run.languages.source,
                    targets=run.tags or [code for code in (run.languages.target,) if code],
                    choose=len(run.tags) > 1,
                    engine=facts[name].engine if name in facts else None,
                    parameters=run.manifest.get("parameters", 0),
                )
                for name, run in service.runs.items()
            ]
        )

    @routes.post("/translate", response_model=bodies.Translated, responses=STREAMED)
    async def translate(body: bodies.Translate, request: Request) -> Any:
        """Translate one text or several; or stream one, token by token."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        if body.stream:
            if len(texts) != 1 or body.n_best > 1 or (body.beam or 1) > 1 or body.alignments:
                raise RefusedError(400, "stream: one text, greedily or with sample. Leave beam, n_best, alignments out")
            events = service.stream(texts[0], body.model, body.to, body.prefix, body.sampling(), False)
            return StreamingResponse(_sent(events, request.scope[LATE]), media_type="text/event-stream")
        name, engine, results = await service.translate(
            texts, body.model, body.to, body.beam, body.n_best, body.prefix, body.alignments, body.sampling()
        )
        return JSONResponse({"model": name, "engine": engine, "results": results})

    @routes.post("/chat", response_model=bodies.Said, responses=STREAMED)
    async def chat(body: bodies.Chat, request: Request) -> Any:
        """Answer a line as `seq2see chat` does; or stream the answer."""
        if body.sample and body.beam is not None:
            raise RefusedError(400, "sample: draws token by token. Leave beam out")
        if body.stream:
            if (body.beam or 1) > 1:
                raise RefusedError(400, "stream: greedily or with sample. Leave beam out")
            events = service.stream(body.text, body.model, body.to, None, body.sampling(), True)
            return StreamingResponse(_sent(events, request.scope[LATE]), media_type="text/event-stream")
        name, said = await service.chat(body.text, body.model, body.to, body.beam, body.sampling())
        return JSONResponse({"model": name, **said})

    @routes.post("/look", response_model=bodies.Looked)
    async def look(body: bodies.Look) -> Any:
        """Parts of the inside of one translation, by the names that `seq2see look --json` has."""
        without = [(each.place, each.layer, each.head) for each in body.without]
        found = await service.look(body.text, body.model, body.to, body.target, body.parts, without, body.prefix)
        return Response(found, media_type="application/json")

    return routes


async def _sent(events: AsyncIterator[Event], late: Late) -> AsyncIterator[bytes]:
    """As server-sent events: `token` for each, then `end`, or `error` where it went wrong or took too long."""
    try:
        while True:
            async with asyncio.timeout_at(late.when):
                event = await anext(events, None)
            if event is None:
                return
            yield _event(*event)
    except TimeoutError:
        yield _event("error", {"error": late.refusal.line, "status": late.refusal.status})
    except RefusedError as refused:
        yield _event("error", {"error": refused.line, "status": refused.status})


def _event(kind: str, what: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(what, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, RefusedError)
    headers, body = in_json(problem)
    return Response(body, problem.status, headers)


async def _broken(request: Request, problem: Exception) -> Response:
    """Answer in JSON, too, where a route fails; the error is raised again after that, and the guard logs it."""
    return await _refused(request, INTERNAL)


async def _invalid(request: Request, problem: Exception) -> Response:
    if "json" not in request.headers.get("content-type", ""):
        return JSONResponse({"error": "Content-Type: expected application/json"}, 415)
    line = (
        in_words(problem.errors()) if isinstance(problem, RequestValidationError) else "the body is not JSON in UTF-8"
    )
    return JSONResponse({"error": line}, 400)
