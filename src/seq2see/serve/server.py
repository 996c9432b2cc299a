"""The server: a socket, uvicorn, and an orderly end."""

import resource
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from seq2see.errors import SettingError
from seq2see.run import Run
from seq2see.serve import app
from seq2see.serve.guard import on_the_wire
from seq2see.serve.limits import PEER, Keys, Limits, Origins, Rates
from seq2see.serve.service import Service

MOST_CONNECTIONS = 2000
"""Whose requests are answered; as many again are told to come later, and the rest are not let in."""
OTHER_FILES = 100
"""Descriptors for anything but connections."""
MOST_HEAD_BYTES = 64 * 1024
"""Of the first line and the headers of a request."""
IDLE_SECONDS = 10
"""For which a client may leave a connection unused, or half used."""

Refusal = Callable[[str, str, dict[bytes, bytes], bytes], bytes | None]
"""From method, path, headers and body to the whole answer, or None."""


def serve(
    folders: list[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    engine: str = "auto",
    precision: str | None = None,
    keys_file: str | None = None,
    each_minute: int = 0,
    limits: Limits | None = None,
    log: bool = True,
    log_texts: bool = False,
    allow_origins: Sequence[str] = (),
) -> None:
    """Answer HTTP until somebody ends it: SIGTERM and Ctrl-C let the requests that have come be answered first."""
    limits = limits or Limits()
    runs: dict[str, Run] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in runs:
            raise SettingError(f"{folder}: a second run with the name '{name}'. Rename one of the folders")
        runs[name] = Run(folder)
        _ = runs[name].settings  # damaged ones are found before anything is started
    keys = Keys.read(Path(keys_file)) if keys_file else Keys([])
    service = Service(runs, engine, precision, limits, keys, Rates(each_minute), log_texts)
    failures: list[str] = []
    most = _room_for_connections()

    def crowded() -> bool:
        return len(server.server_state.connections) > most

    def failed(line: str) -> None:
        failures.append(line)
        server.should_exit = True

    Origins(allow_origins)  # what is wrong with them is said before anything is started
    with _listening(host, port) as listening:
        address = listening.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        hosts = {"localhost", "127.0.0.1", "[::1]", shown} if _is_loopback(address[0]) else None
        guard = app.build(service, log, failed, crowded, Origins(allow_origins, hosts))

        def refusal() -> Refusal | None:
            return guard.at_once if service.quick.full else None

        config = uvicorn.Config(
            guard,
            log_level="error",
            access_log=False,  # it would write down what a URL contains
            server_header=False,
            http=partial(Patient, most=2 * most, longest=limits.longest, refusal=refusal),  # type: ignore[arg-type]
            ws="none",
            lifespan="on",
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=int(limits.deadline) + 1,
        )
        server = uvicorn.Server(config)
        print(f"serving {', '.join(runs)} at http://{shown}:{address[1]}/ (Ctrl-C ends)", file=sys.stderr)
        if not keys and not _is_loopback(address[0]):
            print("warning: whoever reaches this machine may use it. --api-keys FILE asks for a key", file=sys.stderr)
        server.run(sockets=[listening])
    if failures:
        raise SettingError(failures[0])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except socket.gaierror:
        raise SettingError(f"--host {host}: there is no such address") from None
    except OSError as problem:
        raise SettingError(f"--host {host} --port {port}: {problem.strerror}. Choose another with --port") from None


def _room_for_connections() -> int:
    """How many there may be, after as many descriptors as twice that needs were asked for."""
    wanted = 2 * MOST_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, (min(wanted, soft) - OTHER_FILES) // 2)


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


class Patient(HttpToolsProtocol):
    """HTTP as uvicorn has it; but clients that do not get on, in asking or in reading, are not waited for for ever.

    Args:
        most: connections; more are not taken.
        longest: seconds in which any request has been answered, one way or another.
        refusal: while there is too much to do, what is asked whether to refuse a request before it goes to the app.
    """

    def __init__(
        self, *given: Any, most: int, longest: float, refusal: Callable[[], Refusal | None] = lambda: None, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._most = most
        self._longest = longest
        self._refusal = refusal
        self._held: tuple[Refusal, bytearray] | None = None
        """A request that may be refused: by what, and the body so far."""
        self._refused = 0
        self._deaf = False
        self._head_bytes: int | None = 0
        """Of a request whose headers are still coming."""
        self._answering: RequestResponseCycle | None = None
        """Not `self.cycle`, which is the last request that came, of several that a client sends at once."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._due = self.loop.call_later(IDLE_SECONDS, self._look_again, (None, False, 0, False), self.loop.time())
        if len(self.connections) > self._most:
            transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        self._due.cancel()
        if self._answering is not None:  # else it would go on, and complain that nobody takes its answer
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(problem)

    def shutdown(self) -> None:
        """Asked to end: what is being answered is the last on this connection, and says so."""
        super().shutdown()
        if self._answering is not None:
            self._answering.keep_alive = False

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if (refusal := self._refusal()) and self._is_plain_post():
            self._held = refusal, bytearray()
        else:
            self._let_in()

    def _is_plain_post(self) -> bool:
        """One whose answer is of one piece, leaves the connection as it was, and will be read."""
        alone = self.cycle is None or self.cycle.response_complete
        usual = self.parser.should_keep_alive() and not self.parser.should_upgrade() and not self.expect_100_continue
        is_post = self.parser.get_method() == b"POST" and self.parser.get_http_version() == "1.1"
        return alone and usual and is_post and not self.flow.write_paused

    def on_body(self, body: bytes) -> None:
        if self._held:
            self._held[1].extend(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._held:
            refusal, body = self._held
            PEER.set(self.client)
            if answer := refusal("POST", self.url.decode("latin-1"), dict(self.headers), bytes(body)):
                self._held = None
                self._refused += 1
                date = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
                self.transport.write(answer.replace(b"\r\n", b"\r\n" + date, 1))
                super().on_response_complete()
                return
            self._let_in()
        super().on_message_complete()

    def _let_in(self) -> None:
        """To the app, with what was held back of it."""
        held, self._held = self._held, None
        self._unset_keepalive_if_required()  # a refusal just before it, in the same piece of data, has set it
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle
        if held:
            super().on_body(bytes(held[1]))

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        super().on_response_complete()

    def _look_again(self, before: tuple[object, bool, int, bool], since: float) -> None:
        """Close where nothing has come of it since the last look; cut off who does not read what was sent even then."""
        cycle = self._answering
        answered = cycle is not None and cycle.response_complete
        now = (cycle, answered, self._refused, self.transport.is_closing())
        if now != before:
            since = self.loop.time()
        elif now[3]:
            self.transport.abort()
        elif cycle is None or answered or self.loop.time() - since > self._longest:
            self.transport.close()
            now = (cycle, answered, self._refused, True)
        self._due = self.loop.call_later(IDLE_SECONDS, self._look_again, now, since)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        super().data_received(data)
        if self._held and not self._deaf:  # it has not come whole: how long the rest may take is not our business
            try:
                self._let_in()
            except Exception:  # as the parser has it of what its callbacks cannot make sense of
                self.send_400_response("")
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._hang_up(431, "the headers are too large")

    def send_400_response(self, message: str) -> None:
        """As JSON, like all other refusals. Who is still sending then hears of it, and not of a broken connection."""
        self._hang_up(400, "not an HTTP request")

    def _hang_up(self, status: int, line: str) -> None:
        self._deaf = True
        self.transport.write(on_the_wire(status, line, hang_up=True))
        self.loop.call_later(1.0, self.transport.close)
