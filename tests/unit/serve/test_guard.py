"""Around an app that is only played."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra 'serve' is not installed")

from seq2see.serve.guard import HEADERS, LATE, SURPLUS, Guard
from seq2see.serve.limits import Limits, Origins, RefusedError
from seq2see.serve.measures import Measures


class Caller:
    """A client: what it sends, and what it was sent."""

    def __init__(self, *messages: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.messages = list(messages)
        self.headers = headers or {}
        self.sent: list[dict[str, Any]] = []
        self.cancelled = False

    async def receive(self) -> dict[str, Any]:
        if not self.messages:
            await asyncio.Event().wait()
        message = self.messages.pop(0)
        if message["type"] == "http.disconnect":
            await asyncio.sleep(0.01)
        return message

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def call(
        self, app: Any, check: Any = lambda path, body: None, method: str = "POST", origins: Any = (), **limits: Any
    ) -> None:
        guard = Guard(app, Limits(**limits), Measures(), check, True, Origins(origins))
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        scope = {"type": "http", "method": method, "path": "/secret", "headers": headers}
        asyncio.run(asyncio.wait_for(guard(scope, self.receive, self.send), 20))

    @property
    def answer(self) -> tuple[int, Any]:
        start, body = self.sent
        return start["status"], json.loads(body["body"])

    async def for_ever(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def sent(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


def test_an_app_gets_the_whole_body_and_the_client_safe_headers():
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=9")]})
        await send({"type": "http.response.body", "body": body})

    caller = Caller(sent(b'"a', True), sent(b'b"'))
    caller.call(echo)
    assert caller.answer == (200, "ab")
    headers = {name.decode(): value.decode() for name, value in caller.sent[0]["headers"]}
    assert headers == HEADERS | {"cache-control": "max-age=9"}


@pytest.mark.parametrize(
    ("caller", "status"),
    [
        (Caller(sent(b"1234", True), sent(b"5678")), 413),
        (Caller(headers={"content-length": "8"}), 413),
        (Caller(headers={"content-length": "-1"}), 413),
        (Caller(headers={"content-length": "9" * 5000}), 413),
        (Caller(sent(b"1", True)), 408),
    ],
)
def test_bodies_that_are_too_large_or_too_slow(caller, status):
    caller.call(caller.for_ever, body_bytes=7, body_seconds=0.05)
    assert caller.answer[0] == status
    assert list(caller.answer[1]) == ["error"]


def test_who_hangs_up_is_worked_for_no_longer():
    caller = Caller(sent(b""), GONE)
    caller.call(caller.for_ever)
    assert caller.cancelled
    assert caller.sent == []
    early = Caller(sent(b"1", True), GONE)
    early.call(early.for_ever)
    assert not early.cancelled  # nor begun


def test_past_the_deadline():
    caller = Caller(sent(b""))
    caller.call(caller.for_ever, deadline=0.05)
    assert caller.cancelled
    assert caller.answer == (504, {"error": "no answer within 0.05 seconds"})


def test_a_mistake_of_ours_tells_nothing(capsys):
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError(f"cannot read {scope['path']}")

    caller = Caller(sent(b""))
    caller.call(broken)
    assert caller.answer[0] == 500
    logged = capsys.readouterr().err
    assert "ValueError" in logged
    assert "POST other 500" in logged
    assert "/secret" not in logged + caller.answer[1]["error"]


def test_who_is_still_waiting_when_the_service_ends_is_told_in_json():
    caller = Caller(sent(b""))

    async def end() -> None:
        guard = Guard(caller.for_ever, Limits(), Measures(), lambda path, body: None, False, Origins())
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        answering = asyncio.ensure_future(guard(scope, caller.receive, caller.send))
        await asyncio.sleep(0.01)
        answering.cancel()
        await answering

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(end())
    assert caller.answer[0] == 503
    assert list(caller.answer[1]) == ["error"]


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/v1/translate", 503), ("/ready", 503)])
def test_on_a_surplus_connection_only_health_is_answered(path, status):
    async def fine(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    caller = Caller(sent(b""))
    guard = Guard(fine, Limits(), Measures(), lambda path, body: None, False, Origins())
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], SURPLUS: True}
    asyncio.run(guard(scope, caller.receive, caller.send))
    assert caller.answer[0] == status
    assert ((b"connection", b"close") in caller.sent[0]["headers"]) == (status == 503)


def test_refused_before_the_app_hears_of_it():
    def full(path: str, body: bytes) -> None:
        assert (path, body) == ("/secret", b"ab")
        raise RefusedError(429, "full", 7)

    caller = Caller(sent(b"a", True), sent(b"b"))
    caller.call(caller.for_ever, full)
    assert caller.answer == (429, {"error": "full"})
    assert (b"retry-after", b"7") in caller.sent[0]["headers"]
    assert not caller.cancelled


def test_past_the_deadline_a_stream_has_time_to_say_so():
    async def late(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert scope[LATE].refusal.status == 504
        async with asyncio.timeout_at(scope[LATE].when + 0.01):
            await asyncio.gather(asyncio.Event().wait(), return_exceptions=True)

    async def in_time(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(TimeoutError):
            await late(scope, receive, send)
        await send({"type": "http.response.body", "body": b'"too late"'})

    caller = Caller(sent(b""))
    caller.call(in_time, deadline=0.05)
    assert caller.answer == (200, "too late")


def test_pages_of_other_sites_are_answered_only_where_they_are_allowed():
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'"answer"'})

    given = {"host": "localhost:8000", "origin": "https://example.org"}
    caller = Caller(sent(b""), headers=given)
    caller.call(caller.for_ever)
    assert caller.answer[0] == 403
    caller = Caller(sent(b""), headers=given)
    caller.call(answer, origins=["https://example.org"])
    assert caller.answer == (200, "answer")
    assert (b"access-control-allow-origin", b"https://example.org") in caller.sent[0]["headers"]
    caller = Caller(sent(b""), headers=given | {"access-control-request-method": "POST"})
    caller.call(caller.for_ever, method="OPTIONS", origins=["*"])
    assert [message.get("status") for message in caller.sent] == [204, None]
    names = {name for name, _ in caller.sent[0]["headers"]}
    assert {b"access-control-allow-origin", b"access-control-allow-headers"} <= names


def guarded(problem: RefusedError | None, origins: Any = ()) -> tuple[Guard, Measures]:
    async def nothing(scope: Any, receive: Any, send: Any) -> None: ...

    def check(path: str, body: bytes) -> None:
        if problem is not None:
            raise problem

    measures = Measures()
    return Guard(nothing, Limits(), measures, check, False, Origins(origins)), measures


def test_a_refusal_at_once_is_the_one_that_the_app_would_give():
    guard, measures = guarded(RefusedError(429, "too many requests are waiting", 3))
    answer = guard.at_once("POST", "/v1/translate", {b"host": b"localhost"}, b"{}")
    assert answer is not None
    head, _, body = answer.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert first == "HTTP/1.1 429 Too Many Requests"
    headers = dict(line.split(": ", 1) for line in lines)
    expected = {"content-type": "application/json", "content-length": str(len(body)), "retry-after": "3"}
    assert headers == HEADERS | expected
    assert json.loads(body) == {"error": "too many requests are waiting"}
    assert b'seq2see_requests_total{endpoint="other",method="POST",status="429"} 1.0' in measures.text()


@pytest.mark.parametrize(
    ("problem", "headers"),
    [
        (None, {}),
        (RefusedError(503, "too many connections", 2, hang_up=True), {}),
        (RefusedError(429, "later"), {b"origin": b"https://a.example"}),
    ],
    ids=["nothing to refuse", "with a hang-up", "to a page that must be told it may read"],
)
def test_other_refusals_are_left_to_the_app_and_not_counted(problem, headers):
    guard, measures = guarded(problem, ["https://a.example"])
    assert guard.at_once("POST", "/", headers, b"") is None
    assert b"seq2see_requests_total{" not in measures.text()
