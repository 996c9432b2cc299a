"""Around all routes: bodies of bounded size that arrive in time, a deadline, clients that hang up, headers, the log.

Routes know nothing of this: they are called with a whole body, and cancelled when nobody waits for them any more.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

from seq2see.serve.limits import PEER, Limits, Origins, RefusedError
from seq2see.serve.log import log, report
from seq2see.serve.measures import Measures

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
"""Of every answer: a browser takes nothing for what it is not, loads nothing from elsewhere, and keeps nothing."""
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


LATE = "seq2see.late"
"""In the scope of a request: when its deadline passes, for those who have begun to answer."""


SURPLUS = "seq2see.surplus"
"""In the scope of a request: it came on a connection that there is no room for."""


INTERNAL = RefusedError(500, "an internal error; the log says where")


class Late(NamedTuple):
    """When it is too late for an answer, by the clock of the event loop, and what is said then."""

    when: float
    refusal: RefusedError


class Guard:
    """An ASGI app around another.

    Args:
        check: is told path and body, and may refuse.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        measures: Measures,
        check: Callable[[str, bytes], None],
        log: bool,
        origins: Origins,
    ) -> None:
        self._app = app
        self._limits = limits
        self._measures = measures
        self._check = check
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

        try:
            headers = dict(scope["headers"])
            shared += self._origins.check(scope["method"], headers)
            if scope.get(SURPLUS) and scope["path"] != "/health":
                raise RefusedError(503, "too many connections", 2, hang_up=True)
            body = await self._whole_body(scope, receive)
            if shared and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                await sending({"type": "http.response.start", "status": 204, "headers": []})
                await sending({"type": "http.response.body", "body": b""})
            elif body is not None:
                PEER.set(scope.get("client"))
                self._check(scope["path"], body)
                if scope["method"] == "HEAD":  # as GET; the server leaves the body out
                    scope = {**scope, "method": "GET"}
                await self._answer(scope, body, receive, sending, lambda: bool(status), begun)
        except RefusedError as refused:
            await refuse(sending, refused)
        except Exception as problem:
            report(problem, "the service")
            if not status:
                await refuse(sending, INTERNAL)
        except asyncio.CancelledError:  # the time to end the service in is over
            if not status:
                await refuse(sending, RefusedError(503, "the service is being stopped", 5, hang_up=True))
            raise
        route = getattr(scope.get("route"), "path", None) or "other"
        self._note(scope["method"], route, status, time.monotonic() - begun)

    def at_once(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes) -> bytes | None:
        """The refusal of a request that has come whole, as it is sent; None where it is to be answered.

        Under five times the load that can be borne this is what most requests meet: a task, and the way through ASGI,
        would take several times as long, and the engine works on the same cores.
        """
        try:
            if self._origins.check(method, headers):  # a page of another site, which has to be told that it may read
                return None
            self._check(path, body)
        except RefusedError as refused:
            if refused.hang_up:
                return None
            self._note(method, "other", refused.status, 0.0)
            return on_the_wire(refused.status, refused.line, refused.retry_after)
        return None

    def _note(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in ("GET", "POST", "OPTIONS") else "other"
        self._measures.request(method, route, status, seconds)
        if self._log:
            line = f"{method} {route} {status or 'hung up'} {1000 * seconds:.0f} ms"
            log(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    async def _whole_body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """All of it, or nothing where the client hung up."""
        most = self._limits.body_bytes
        too_large = RefusedError(413, f"the body is larger than {most:,} bytes")
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > most):
                raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {self._limits.body_seconds:g} seconds") from None

    async def _answer(
        self,
        scope: MutableMapping[str, Any],
        body: bytes,
        receive: Receive,
        send: Send,
        has_begun: Callable[[], bool],
        begun: float,
    ) -> None:
        """Until it is answered, the client hangs up, or the deadline has passed."""
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

        seconds = self._limits.deadline
        refusal = RefusedError(504, f"no answer within {seconds:g} seconds", 1)
        left = seconds - (time.monotonic() - begun)
        scope[LATE] = Late(asyncio.get_running_loop().time() + left, refusal)
        answering, watching = asyncio.ensure_future(self._app(scope, again, send)), asyncio.ensure_future(hung_up())
        try:
            both = {answering, watching}
            done, _ = await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done and has_begun():  # a stream has a second to say that it is too late
                await asyncio.wait(both, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, watching):
                task.cancel()
        await asyncio.wait({answering, watching})
        if not answering.cancelled():
            answering.result()
        elif not done and not has_begun():
            raise refusal


async def refuse(send: Send, refused: RefusedError) -> None:
    """One line, as JSON."""
    headers, body = in_json(refused)
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


@lru_cache(128)
def on_the_wire(status: int, line: str, retry_after: int | None = None, hang_up: bool = False) -> bytes:
    """A refusal as a client gets it, for where there is no ASGI."""
    headers, body = in_json(RefusedError(status, line, retry_after, hang_up))
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in HEADERS.items()), "\r\n"]).encode() + body


def in_json(refused: RefusedError) -> tuple[dict[str, str], bytes]:
    """Headers and body of a refusal."""
    body = json.dumps({"error": refused.line}, ensure_ascii=False).encode("utf-8", "replace")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.hang_up:
        headers["connection"] = "close"
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers, body
