"""Around an app that is only played."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from seq2see.errors import SettingError
from seq2see.serve import bodies
from seq2see.serve.app import DUE, HEADERS, SURPLUS, Guard, in_json
from seq2see.serve.jobs import Facts
from seq2see.serve.limits import Keys, Limits, Origins, Rates, RefusedError, host_names
from seq2see.serve.service import Service


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

    def call(self, app: Any, method: str = "POST", origins: Any = (), path: str = "/secret", **limits: Any) -> None:
        self.guarded(app, Service({}, limits=Limits(**limits)), method, origins, path)

    def guarded(self, app: Any, service: Service, method: str = "POST", origins: Any = (), path: str = "/x") -> None:
        guard = Guard(app, service, True, Origins(origins))
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": headers}
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
        guard = Guard(caller.for_ever, Service({}), False, Origins())
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
    caller = Caller(sent(b""))
    guard = Guard(answer, Service({}), False, Origins())
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], SURPLUS: True}
    asyncio.run(guard(scope, caller.receive, caller.send))
    assert caller.answer[0] == status
    assert ((b"connection", b"close") in caller.sent[0]["headers"]) == (status == 503)


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/v1/translate", "", 401),
        ("/v1/translate", "wrong", 403),
        ("/v1/translate", "right", 200),
        ("/v1/nowhere", "", 401),
        ("/metrics", "", 401),
        ("/", "", 200),
        ("/translate", "", 200),  # its route looks for the key in the body
        ("/health", "", 200),
    ],
)
def test_who_has_no_key_does_not_reach_the_route(path, key, status):
    caller = Caller(sent(b"{"), headers={"x-api-key": key})
    caller.guarded(answer, Service({}, keys=Keys(["right"])), path=path)
    assert caller.answer[0] == status


@pytest.mark.parametrize(
    ("path", "statuses"), [("/v1/translate", [200, 429]), ("/", [200, 429]), ("/health", [200, 200])]
)
def test_requests_are_counted_before_they_reach_the_route(path, statuses):
    service = Service({}, rates=Rates(1, lambda: 0.0))
    for status in statuses:
        caller = Caller(sent(b""))
        caller.guarded(answer, service, path=path)
        assert caller.answer[0] == status


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b'"answer"'})


def test_past_the_deadline_a_stream_has_time_to_say_so():
    async def late(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with asyncio.timeout_at(scope[DUE] + 0.01):
            await asyncio.gather(asyncio.Event().wait(), return_exceptions=True)

    async def in_time(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(TimeoutError):
            await late(scope, receive, send)
        await send({"type": "http.response.body", "body": b'"too late"'})

    caller = Caller(sent(b""))
    caller.call(in_time, deadline=0.05)
    assert caller.answer == (200, "too late")


def test_pages_of_other_sites_are_answered_only_where_they_are_allowed():
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


def overloaded(is_full: bool = True) -> Service:
    """A service whose engine is loaded, and has no room for another request."""
    service = Service({}, limits=Limits(queue_tokens=0 if is_full else 1))
    service.quick.facts = {"run": Facts("played", 1.0, 10)}
    return service


def counted(service: Service) -> float:
    return sum(each.value for family in service.metrics.requests.collect() for each in family.samples)


@pytest.mark.parametrize(("path", "field"), [("/v1/translate", "error"), ("/v2/translate", "message")])
def test_a_refusal_at_once_is_the_one_that_the_app_would_give(path, field):
    service = overloaded()
    guard = Guard(answer, service, False, Origins())
    found = guard.at_once("POST", path, {b"host": b"localhost"}, b"{}", ("10.0.0.1", 1))
    assert found is not None
    head, _, body = found.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert first == "HTTP/1.1 429 Too Many Requests"
    headers = dict(line.split(": ", 1) for line in lines)
    expected = {"content-type": "application/json", "content-length": str(len(body)), "retry-after": "1"}
    assert headers == HEADERS | expected
    assert json.loads(body) == {field: "too many requests are waiting"}
    assert service.metrics.requests.labels("POST", "other", 429)._value.get() == 1.0


@pytest.mark.parametrize(
    ("service", "path", "headers", "body"),
    [
        (overloaded(False), "/v1/translate", {}, b"{}"),
        (overloaded(), "/v1/look", {}, b"{}"),
        (overloaded(), "/v1/translate", {}, b'{"stream": true}'),
        (overloaded(), "/v1/translate", {b"origin": b"https://a.example"}, b"{}"),
        (Service({}), "/v1/translate", {}, b"{}"),
    ],
    ids=["nothing to refuse", "another engine", "a stream", "to a page that must be told it may read", "not loaded"],
)
def test_other_requests_are_left_to_the_app_and_not_counted(service, path, headers, body):
    guard = Guard(answer, service, False, Origins(["https://a.example"]))
    assert guard.at_once("POST", path, headers, body, ("10.0.0.1", 1)) is None
    assert counted(service) == 0


LOCAL = {"localhost", "127.0.0.1", "[::1]"}


@pytest.mark.parametrize(
    ("host", "origin", "allowed", "fine"),
    [
        ("localhost:8000", "", [], True),
        ("LOCALHOST", "http://localhost", [], True),
        ("[::1]:8000", "http://[::1]:8000", [], True),
        ("127.0.0.1:8000", "http://localhost:8000", [], False),
        ("127.0.0.1:8000", "http://127.0.0.1:9000", [], False),
        ("evil.example:8000", "http://evil.example:8000", [], False),
        ("localhost.evil.example", "", [], False),
        ("evil.example:8000:8000", "", [], False),
        ("localhost", "null", [], False),
        ("localhost", "null", ["*"], True),
        ("localhost", "https://Example.org", ["https://example.org/"], True),
        ("localhost", "https://example.org:444", ["https://example.org"], False),
        ("example.org", "https://example.org", ["https://example.org"], True),
        ("anything", "https://example.org", ["*"], True),
        ("", "", [], True),
        ("\xff", "\xff", [], False),
    ],
)
def test_browsers_are_let_in_by_host_and_origin(host, origin, allowed, fine):
    headers = {b"host": host.encode("latin-1"), b"origin": origin.encode("latin-1")}
    origins = Origins(allowed, LOCAL)
    if fine:
        origins.check("POST", headers)
        return
    with pytest.raises(RefusedError) as refused:
        origins.check("POST", headers)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("192.0.2.1:8000", True),
        ("[2001:db8::1]:8000", True),
        ("[2001:db8::1]", True),
        ("localhost", True),
        ("Here.:8000", True),
        ("translate.example.org", True),
        ("evil.example", False),
        ("192.0.2.1.evil.example", False),
        ("[evil.example]", False),
        ("2001:db8::1", False),
        ("1", False),
        ("translate.example.org.evil.example", False),
    ],
)
def test_by_addresses_and_known_names_only(host, fine):
    origins = Origins((), {"localhost", "here", *host_names(["Translate.Example.org."])}, addresses=True)
    if fine:
        origins.check("GET", {b"host": host.encode()})
        return
    with pytest.raises(RefusedError, match="--allow-host") as refused:
        origins.check("GET", {b"host": host.encode()})
    assert refused.value.status == 403


def test_what_is_no_origin_is_refused():
    for wrong in ("example.org", "https://", "https://example.org/path", ""):
        with pytest.raises(SettingError, match="--allow-origin"):
            Origins([wrong])


def test_details_of_a_refusal_are_fields_in_any_language(monkeypatch):
    details = {"code": "too_long", "tokens": 201, "most": 128}
    refused = RefusedError(400, "the sentence has 201 tokens: at most 128 can be shown. Shorten it", details=details)
    for language in ("en", "ko"):
        monkeypatch.setenv("SEQ2SEE_LANG", language)
        body = json.loads(in_json(refused)[1])
        assert body.pop("error")
        assert body == details
        assert set(body) < set(bodies.ErrorResponse.model_fields)


def test_refusals_follow_the_locale(monkeypatch):
    refused = RefusedError(403, "unknown API key")
    assert json.loads(in_json(refused)[1]) == {"error": "unknown API key"}
    monkeypatch.setenv("SEQ2SEE_LANG", "ko")
    assert json.loads(in_json(refused)[1]) == {"error": "알 수 없는 API 키입니다"}
