"""Connections, and clients that do not get on."""

import random
import resource
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")

import uvicorn
from uvicorn.server import ServerState

from seq2see.serve import server
from seq2see.serve.connections import Connections
from seq2see.serve.server import IDLE_SECONDS, Patient

LONGEST = 3 * IDLE_SECONDS
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"


class Loop:
    """One whose time passes when it is told to; only timers of Patient are kept."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Any, tuple[Any, ...]]] = []
        self.tasks: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, do: Any, *given: Any) -> Any:
        if given and isinstance(given[0], Patient):  # a pipelined request need not wait here
            do(*given)
            return Loop()
        if not given:
            return Loop()
        self.due = [(self.now + seconds, do, given)]
        return self

    def call_soon(self, do: Any, *given: Any) -> None:
        do(*given)

    def cancel(self) -> None:
        self.due = []

    def create_task(self, coroutine: Any) -> Any:
        coroutine.close()
        return self

    def add_done_callback(self, what: Any) -> None:
        pass

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and self.due[0][0] <= end:
            self.now, do, given = self.due.pop()
            do(*given)
        self.now = end


class Transport:
    """One whose client reads nothing."""

    def __init__(self) -> None:
        self.closed = self.aborted = self.is_paused = False
        self.written = b""

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        return None

    def write(self, data: bytes) -> None:
        self.written += data

    def resume_reading(self) -> None:
        self.is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True


@pytest.fixture
def loop() -> Loop:
    return Loop()


def connected(loop: Loop, state: ServerState | None = None, **options: Any) -> tuple[Patient, Transport]:
    async def nothing(scope: Any, receive: Any, send: Any) -> None: ...

    options.setdefault("room", Connections(10))
    made: Any = Patient(uvicorn.Config(nothing), state or ServerState(), {}, loop, longest=LONGEST, **options)
    transport = Transport()
    made.connection_made(transport)
    return made, transport


def test_who_does_not_get_to_the_end_of_the_headers_is_not_waited_for(loop):
    client, transport = connected(loop)
    client.data_received(b"GET / HT")
    loop.passes(IDLE_SECONDS - 1)
    client.data_received(b"TP/1.1\r\n")
    assert not transport.closed
    loop.passes(1)
    assert transport.closed


def test_who_has_just_been_answered_may_ask_again(loop):
    """The answer comes long after the first look, and shortly before the second."""
    client, transport = connected(loop)
    client.data_received(REQUEST)
    loop.passes(2 * IDLE_SECONDS - 0.1)
    client.cycle.response_complete = True
    loop.passes(0.2)
    assert not transport.closed
    loop.passes(IDLE_SECONDS)  # as long as uvicorn keeps a connection: the rest of a request that began has not come
    assert transport.closed


def test_who_does_not_read_is_cut_off_in_the_end(loop):
    client, transport = connected(loop)
    client.data_received(REQUEST)
    loop.passes(LONGEST)
    assert not transport.closed  # it may still be worked on
    loop.passes(2 * IDLE_SECONDS)
    assert transport.closed
    loop.passes(IDLE_SECONDS)
    assert transport.aborted


def test_who_was_closed_elsewhere_has_a_while_to_read_the_rest(loop):
    client, transport = connected(loop)
    client.data_received(REQUEST)
    loop.passes(1)
    client.cycle.response_complete = True
    transport.close()
    loop.passes(IDLE_SECONDS)
    assert not transport.aborted
    loop.passes(IDLE_SECONDS)
    assert transport.aborted


class Refusing:
    """Refuses what has `no` in its body, while it is told to."""

    def __init__(self) -> None:
        self.full = True
        self.asked: list[tuple[str, str, bytes]] = []

    def __call__(self) -> Any:
        return self.answer if self.full else None

    def answer(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes, peer: Any) -> bytes | None:
        assert headers[b"host"] == b"x"
        self.asked.append((method, path, body))
        return b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n" if b"no" in body else None


def post(body: bytes, more: bytes = b"", path: bytes = b"/a") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), more, body)


def test_a_request_that_came_whole_is_refused_before_it_is_worked_on(loop):
    refusing, state = Refusing(), ServerState()
    state.default_headers = [(b"date", b"today")]
    client, transport = connected(loop, state, refusal=refusing)
    client.data_received(post(b"no", path=b"/b?c=1"))
    assert transport.written == b"HTTP/1.1 429 Too Many Requests\r\ndate: today\r\ncontent-length: 0\r\n\r\n"
    assert refusing.asked == [("POST", "/b?c=1", b"no")]
    assert client.cycle is None
    client.data_received(post(b"no") + post(b"no"))  # two at once
    assert transport.written.count(b"429") == 3
    assert not transport.closed


def test_what_is_not_refused_goes_to_the_app_with_its_body(loop):
    client, transport = connected(loop, refusal=Refusing())
    client.data_received(post(b"yes"))
    assert client.cycle.body == b"yes"
    assert not client.cycle.more_body
    assert transport.written == b""


@pytest.mark.parametrize(
    "data",
    [
        post(b"no and the rest")[:-8],
        post(b"no", b"Connection: close\r\n"),
        post(b"no", b"Expect: 100-continue\r\n"),
        b"GET /no HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /no HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\nno",
        b"POST /no HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno",
    ],
    ids=["in pieces", "the last", "expects", "get", "1.0", "1.0, kept"],
)
def test_what_is_not_quickly_refused_is_left_to_the_app(loop, data):
    refusing = Refusing()
    client, transport = connected(loop, refusal=refusing)
    client.data_received(data)
    assert client.cycle is not None
    assert refusing.asked == []
    assert transport.written == b""


def answer(client: Any, status: bytes = b"200") -> None:
    """Answer the request that the app is at work on, as uvicorn's cycle does."""
    cycle = client._answering
    client.transport.write(b"HTTP/1.1 %b OK\r\n\r\n" % status)
    cycle.response_started = cycle.response_complete = True
    cycle.on_response()


def test_behind_a_request_that_is_being_answered_nothing_is_refused_out_of_turn(loop):
    refusing = Refusing()
    client, transport = connected(loop, refusal=refusing)
    refusing.full = False
    client.data_received(post(b"yes"))
    refusing.full = True
    client.data_received(post(b"no"))
    assert transport.written == b""
    answer(client)
    assert [line[:12] for line in transport.written.split(b"HTTP/1.1 ")[1:]] == [b"200 OK\r\n\r\n", b"429 Too Many"]


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("cut", [len(GET), len(GET) - 1, len(GET) - 2, len(GET) - 3, 7])
def test_requests_are_parsed_one_at_a_time_and_the_rest_stays_unread(loop, cut):
    client, transport = connected(loop)
    many = GET * 1000
    client.data_received(many[:cut])
    client.data_received(many[cut:])
    assert len(client.pipeline) <= 1
    assert transport.is_paused
    client.flow.resume_reading()  # as uvicorn does when the app waits for the rest of a body
    assert transport.is_paused
    answered = 0
    while client._answering is not None and not client._answering.response_complete:
        answer(client)
        answered += 1
        assert len(client.pipeline) <= 1
        assert answered <= 1000
    assert answered == 1000
    assert not transport.is_paused


GARBAGE = b"\x16\x03garbage\r\n\r\n"


@pytest.mark.parametrize("first", [GET, post(b"body")], ids=["get", "post"])
@pytest.mark.parametrize("wrong", [GARBAGE, b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000], ids=["garbage", "headers"])
def test_the_refusal_of_what_is_no_http_waits_for_the_answer_before_it(loop, first, wrong):
    client, transport = connected(loop)
    client.data_received(first + wrong)
    assert transport.written == b""
    answer(client)
    assert transport.written.startswith(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 4")
    assert transport.written.count(b"HTTP/1.1") == 2
    assert b"connection: close" in transport.written


def test_garbage_in_the_body_is_refused_in_place_of_the_request(loop):
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    client, transport = connected(loop)
    client.data_received(head + b"ZZ\r\n")
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert client.cycle.disconnected  # so that the app stops, and sends nothing after it
    client, transport = connected(loop)
    client.data_received(post(b"yes") + head + b"ZZ\r\n")
    assert transport.written == b""
    answer(client)
    assert [line[:3] for line in transport.written.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_a_body_full_of_empty_lines_is_whole(loop):
    body = b"\r\n\r\n\n\n" * 500
    client, _ = connected(loop)
    client.data_received(post(body) + GET)
    assert client.cycle.body == body
    assert not client.cycle.more_body


@pytest.mark.parametrize("seed", range(20))
def test_however_a_stream_is_cut_the_same_requests_come_out(loop, seed):
    """Bodies of known length and in chunks, with empty lines in them."""
    dice = random.Random(seed)
    bodies, stream = [], b""
    for _ in range(12):
        body = bytes(dice.choices(b"\r\nab", k=dice.randrange(40)))
        bodies.append(body)
        head = b"POST / HTTP/1.1\r\nHost: x\r\n"
        if dice.random() < 0.5 or not body:
            stream += head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        else:
            middle = dice.randrange(len(body)) or 1
            parts = [each for each in (body[:middle], body[middle:]) if each]
            chunks = b"".join(b"%x\r\n" % len(each) + each + b"\r\n" for each in parts)
            stream += head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    client, transport = connected(loop)
    found = []

    def answer_all() -> None:
        for _ in range(2 * len(bodies)):
            cycle = client._answering
            if cycle is None or cycle.response_complete or cycle.more_body:
                return
            found.append(bytes(cycle.body))
            answer(client)

    while stream:
        size = dice.choice([1, 2, 3, 10, 100, 1000])
        client.data_received(stream[:size])
        stream = stream[size:]
        assert len(client.pipeline) <= 1
        if dice.random() < 0.5:
            answer_all()
    answer_all()
    assert found == bodies
    assert not transport.is_paused
    assert b"400" not in transport.written


@pytest.mark.parametrize(
    "line", [b"GET /\r\n", b"GET / HTTP/1.1\n\n", b"\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_however_odd_requests_are_no_more_than_one_waits_parsed(loop, line):
    client, _ = connected(loop)
    client.data_received(line * 500)
    assert len(client.pipeline) <= 1


@pytest.mark.parametrize(("old", "new"), [("::ffff:127.0.0.1", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")])
def test_ipv4_clients_of_a_socket_for_both_versions_are_known_by_their_address(loop, monkeypatch, old, new):
    monkeypatch.setattr("uvicorn.protocols.http.httptools_impl.get_remote_addr", lambda transport: (old, 5))
    client, _ = connected(loop)
    assert client.client == (new, 5)
    assert client.network == new


def test_who_does_not_read_refusals_gets_no_more_of_them(loop):
    client, transport = connected(loop, refusal=Refusing())
    client.flow.pause_writing()
    client.data_received(post(b"no"))
    assert transport.written == b""
    assert client.cycle is not None


def test_what_comes_with_a_refused_request_is_not_cut_off_by_the_timer_of_the_refusal(loop):
    client, _ = connected(loop, refusal=Refusing())
    client.data_received(post(b"no") + post(b"yes"))
    assert client.cycle.body == b"yes"
    assert client.timeout_keep_alive_task is None


@pytest.mark.parametrize("data", [post(b"no", path=b"http://x"), post(b"no", path=b"http://x")[:-1]])
def test_a_path_that_is_none_is_said_to_be_wrong(loop, data):
    refusing = Refusing()
    refusing.answer = lambda *_: None  # type: ignore[method-assign]
    client, transport = connected(loop, refusal=refusing)
    client.data_received(data)
    assert transport.written.startswith(b"HTTP/1.1 400 ")


def test_who_is_refused_again_and_again_is_not_taken_for_idle(loop):
    client, transport = connected(loop, refusal=Refusing())
    for _ in range(6):
        client.data_received(post(b"no"))
        loop.passes(IDLE_SECONDS / 2)
    assert not transport.closed
    loop.passes(2 * IDLE_SECONDS)
    assert transport.closed


@pytest.mark.parametrize(
    ("limits", "asked", "most"),
    [
        ((1024, 1_048_576), 4100, 2000),
        ((1024, resource.RLIM_INFINITY), 4100, 2000),
        ((1024, 2048), 2048, 974),
        ((256, 1024), 1024, 462),
        ((64, 64), 64, 1),
        ((100_000, 100_000), None, 2000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 2000),
    ],
)
def test_as_many_descriptors_are_asked_for_as_connections_need(monkeypatch, limits, asked, most):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda what, new: set_to.append(new))
    assert server._room_for_connections() == most
    assert set_to == ([(asked, limits[1])] if asked else [])
