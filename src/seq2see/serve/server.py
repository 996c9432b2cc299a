"""The server: the socket, uvicorn with limits per client, and an orderly shutdown."""

import re
import resource
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from seq2see.display.wording import translated
from seq2see.errors import SettingError
from seq2see.run import Run
from seq2see.serve import app
from seq2see.serve.app import SURPLUS, Guard, on_the_wire
from seq2see.serve.connections import Connections
from seq2see.serve.limits import Keys, Limits, Origins, Rates, host_names, network, unmapped
from seq2see.serve.log import Log
from seq2see.serve.log import log as log_line
from seq2see.serve.service import Peer, Service

MOST_CONNECTIONS = 2000
"""Maximum number of connections that are served at a time, if the limit of open files allows twice as many; see
`Connections` for what happens to more.
"""
OTHER_FILES = 100
"""Number of file descriptors reserved for files and pipes, so that connections cannot use them all."""
MOST_HEAD_BYTES = 64 * 1024
"""Maximum size in bytes of the request line and headers of a request; above it, the request is refused with status
431.
"""
MOST_UNREAD_BYTES = 64 * 1024
"""Number of received bytes of a connection that are not parsed yet, above which no more are read from its socket."""
MOST_PIECES = 64
"""Maximum number of pieces of received data, each up to an empty line, that are parsed in one turn of a connection,
the rest in later turns; a body with empty lines consists of several pieces.
"""
IDLE_SECONDS = 10
"""Seconds without a request after which a connection is closed; up to twice as many if part of one has arrived."""
SWITCH_SECONDS = 0.0005
"""Seconds after which Python interrupts another thread for the event loop: its default of 5 ms would delay a request at
each of its steps while other threads work on glossaries or documents.
"""
_EMPTY_LINE = re.compile(rb"\n\r?\n")

Refusal = Callable[[str, str, dict[bytes, bytes], bytes, Peer], bytes | None]
"""Function that returns the bytes of a refusal, or None if the request is to be answered, given its method, path,
headers, body and sender.
"""


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
    allow_hosts: Sequence[str] = (),
) -> None:
    """Serve runs by HTTP until SIGTERM or Ctrl-C; requests that have arrived by then are still answered.

    Raise a SettingError if an engine cannot be loaded at the start.

    Args:
        keys_file: a file with API keys, one per line; None: no key is needed.
        each_minute: maximum number of requests per minute of a client; 0: no limit.
        log: whether to log a line for each request, without its texts.
        log_texts: whether to log texts and their translations.
    """
    limits = limits or Limits()
    runs: dict[str, Run] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in runs:
            raise SettingError(f"{folder}: a second run with the name '{name}'. Rename one of the folders")
        runs[name] = Run(folder)
        _ = runs[name].settings  # damaged ones are found before anything is started
    keys = Keys.read(Path(keys_file)) if keys_file else None
    service = Service(runs, engine, precision, limits, keys, Rates(each_minute) if each_minute else None, log_texts)
    failures: list[str] = []

    def failed(line: str) -> None:
        failures.append(line)
        server.should_exit = True

    sys.setswitchinterval(SWITCH_SECONDS)
    names = host_names(allow_hosts)
    Origins(allow_origins)  # what is wrong with them is said before anything is started
    with Log(service.metrics.log_lines_dropped.inc), _listening(host, port) as listening:
        address = listening.getsockname()[0]
        shown = f"[{address}]" if ":" in address else address
        guard = app.build(service, log, failed, _origins(address, allow_origins, names))
        server = uvicorn.Server(_config(guard, service))
        port = listening.getsockname()[1]
        log_line(translated(f"serving {', '.join(runs)} at http://{shown}:{port}/ (Ctrl-C ends)"))
        if not keys and not _is_loopback(address):
            warning = (
                "warning: everybody who can reach this machine may use the service; --api-keys FILE asks for a key"
            )
            log_line(translated(warning))
        server.run(sockets=[listening])
    if failures:
        raise SettingError(failures[0])


def _config(guard: Guard, service: Service) -> uvicorn.Config:
    limits, room = service.limits, Connections(_room_for_connections())

    def refusal() -> Refusal | None:
        return guard.at_once if service.quick.is_full() else None

    return uvicorn.Config(
        guard,
        log_level="error",
        access_log=False,  # it would write down what a URL contains
        server_header=False,
        http=partial(Patient, room=room, longest=limits.longest, refusal=refusal),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(limits.deadline) + 1,
    )


def _origins(address: str, allowed: Sequence[str], names: Collection[str]) -> Origins:
    """Return the check of hosts and origins. It accepts any host if `*` is in `names` or `allowed`; otherwise the hosts
    in `names`, those of the origins in `allowed`, and names that no other site can have (see `Origins`).
    """
    if "*" in names:
        return Origins(allowed)
    if _is_loopback(address):
        return Origins(
            allowed, {"localhost", "127.0.0.1", "[::1]", f"[{address}]" if ":" in address else address, *names}
        )
    return Origins(allowed, {"localhost", socket.gethostname().lower(), *names}, addresses=True)


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; that of the IPv6 address `::` accepts IPv4 connections too."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        both = family == socket.AF_INET6 and ip_address(str(address[0]).partition("%")[0]).is_unspecified
        return socket.create_server(
            (host, port), family=family, backlog=2048, dualstack_ipv6=both and socket.has_dualstack_ipv6()
        )
    except socket.gaierror:
        raise SettingError(f"--host {host}: there is no such address") from None
    except OSError as problem:
        raise SettingError(f"--host {host} --port {port}: {problem.strerror}. Choose another port or host") from None


def _room_for_connections() -> int:
    """Raise the limit of open files, if possible, so that twice `MOST_CONNECTIONS` can be accepted; return how many
    connections can be served.
    """
    wanted = 2 * MOST_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, (min(wanted, soft) - OTHER_FILES) // 2)


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


class Flow(FlowControl):
    """Flow control of a connection, in which nothing resumes reading between `hold` and `release`."""

    is_held = False

    def hold(self) -> None:
        """Stop reading until `release`."""
        self.is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Resume reading, if it was stopped."""
        if self.is_held:
            self.is_held = False
            self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless it was stopped by `hold`."""
        if not self.is_held:
            super().resume_reading()


class Patient(HttpToolsProtocol):
    """The HTTP protocol of uvicorn, with limits on how long and how much one client can keep the server busy.

    Pipelined requests are parsed one at a time, each when the one before has been answered and it is the turn of the
    client; the rest stays unread. So answers come in order, and a connection costs the same however much is sent on it.
    uvicorn would parse everything that has arrived at once.

    Args:
        room: all connections of the server; it decides which are closed when there are too many, and whose turn it is.
        longest: maximum seconds until any request has been answered or refused; then its connection is closed.
        refusal: returns, under overload, a function that may refuse a request before the app gets it; else None.
    """

    flow: Flow

    def __init__(
        self,
        *given: Any,
        room: Connections,
        longest: float,
        refusal: Callable[[], Refusal | None] = lambda: None,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self.network = ""
        self.surplus = False
        self._room = room
        self._longest = longest
        self._refusal = refusal
        self._held: tuple[Refusal, bytearray] | None = None
        """A request that may be refused: the function that decides, and the body received so far."""
        self._refused = 0
        self._begun = 0
        """Number of requests that were passed to the app."""
        self._deaf = False
        self._last_words: bytes | None = None
        """Bytes that are sent after all pending responses, before the connection is closed."""
        self._unread, self._position = b"", 0
        """Bytes that have arrived, and the position up to which they have been parsed."""
        self._head_bytes: int | None = 0
        """Size in bytes, so far, of the request line and headers that are arriving; None after them."""
        self._answering: RequestResponseCycle | None = None
        """The request that is being answered; with pipelining, `self.cycle` may be a later one."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = Flow(transport)
        if self.client is not None:
            address = unmapped(self.client[0])
            self.client = (address, self.client[1])  # trusted proxies are known by their IPv4 addresses
            self.network = network(address)
        self._due = self.loop.call_later(IDLE_SECONDS, self._look_again, (None, False, 0, False), self.loop.time())
        self._room.enter(self)

    def connection_lost(self, problem: Exception | None) -> None:
        self._room.leave(self)
        self._unread, self._position = b"", 0
        self._due.cancel()
        if self._answering is not None:  # else it would continue, and log an error because nobody reads its response
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(problem)

    def drop(self, at_once: bool) -> None:
        """Close the connection because there are too many: at once, or when data being sent has been sent."""
        if at_once:
            self.transport.abort()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Begin the shutdown: the current response is the last on this connection, and says so in its headers."""
        super().shutdown()
        if self._answering is not None:
            self._answering.keep_alive = False

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()
        if self.surplus:
            self.scope[SURPLUS] = True  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if (refusal := self._refusal()) and self._is_plain_post():
            self._held = refusal, bytearray()
        else:
            self._let_in()

    def _is_plain_post(self) -> bool:
        """Return whether the request could be refused by a single write that keeps the connection usable."""
        alone = not self._is_answering() and not self.surplus
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
            if answer := refusal("POST", self.url.decode("latin-1"), dict(self.headers), bytes(body), self.client):
                self._held = None
                self._refused += 1
                date = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
                self.transport.write(answer.replace(b"\r\n", b"\r\n" + date, 1))
                super().on_response_complete()
                self._room.mark_idle(self)
                return
            self._let_in()
        self._room.mark_busy(self)
        super().on_message_complete()

    def _let_in(self) -> None:
        """Pass a request to the app, with the part of its body that was held back."""
        held, self._held = self._held, None
        self._unset_keepalive_if_required()  # a refusal just before it, in the same piece of data, has set it
        super().on_headers_complete()
        self._begun += 1
        if not self.pipeline:
            self._answering = self.cycle
        if held:
            super().on_body(bytes(held[1]))

    def on_response_complete(self) -> None:
        """Continue with the next request, if one has arrived."""
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        super().on_response_complete()
        if not self._is_answering():
            self._room.mark_idle(self)
            if self._last_words is not None:
                self._end_with(self._last_words)
        if self.can_read:
            self._unset_keepalive_if_required()
            self._room.wait_to_go_on(self)

    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _look_again(self, before: tuple[object, bool, int, bool], since: float) -> None:
        """Close a connection that was idle since the last check, or has not progressed for `longest` seconds; abort it
        if it was already being closed at the last check.
        """
        cycle = self._answering
        answered = cycle is not None and cycle.response_complete
        now = (cycle, answered, self._refused, self.transport.is_closing())
        if now != before:
            since = self.loop.time()
        elif now[3]:
            self.transport.abort()
        elif ((cycle is None or answered) and not self.can_read) or self.loop.time() - since > self._longest:
            self.transport.close()
            now = (cycle, answered, self._refused, True)
        self._due = self.loop.call_later(IDLE_SECONDS, self._look_again, now, since)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        is_first = not self.can_read
        self._unread, self._position = self._unread[self._position :] + data, 0
        if is_first:
            self._room.wait_for_turn(self)
        if not self.can_read or len(self._unread) > MOST_UNREAD_BYTES:
            self.flow.hold()

    @property
    def can_read(self) -> bool:
        """Return whether bytes have arrived that need not wait for the response to an earlier request."""
        is_behind = self._is_answering() and (bool(self.pipeline) or not self.cycle.more_body)
        return self._position < len(self._unread) and not is_behind and not self.transport.is_closing()

    def read_request(self) -> bool:
        """Parse at most one request from the received bytes, and return whether it was passed to the app."""
        begun, refused = self._begun, self._refused
        for _ in range(MOST_PIECES):
            if not self.can_read or (self._begun, self._refused) != (begun, refused):
                break
            # The headers of at most one request are in it: where they end is an empty line.
            empty = _EMPTY_LINE.search(self._unread, self._position)
            begin, self._position = self._position, empty.end() if empty else len(self._unread)
            self._parse(self._unread[begin : self._position])
        if self._position < len(self._unread):
            self.flow.hold()
        else:
            self._unread, self._position = b"", 0
            self._let_in_partial()
            self.flow.release()
        return self._begun > begun

    def _parse(self, piece: bytes) -> None:
        super().data_received(piece)
        if self._head_bytes is not None and not self._deaf:
            self._head_bytes += len(piece)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._hang_up(431, f"the headers are larger than {MOST_HEAD_BYTES:,} bytes")

    def _let_in_partial(self) -> None:
        """Pass a held request whose body is incomplete to the app, which limits the time for the rest of it."""
        if self._held and not self._deaf:
            try:
                self._let_in()
            except Exception:  # as the parser has it of what its callbacks cannot make sense of
                self.send_400_response("")

    def send_400_response(self, message: str) -> None:
        """Send status 400 in JSON, even to a client that is still sending, instead of resetting the connection."""
        self._hang_up(400, "not an HTTP request")

    def _hang_up(self, status: int, line: str) -> None:
        """Refuse the last request, after the responses to those before it; stop reading, and close the connection."""
        self._deaf, self._held = True, None
        self._unread, self._position = b"", 0
        words = on_the_wire(status, line, hang_up=True)
        wrong = self.cycle
        if wrong is not None and wrong.more_body and not wrong.response_complete:  # it is its body that is wrong
            wrong.disconnected = True
            wrong.message_event.set()
            self.pipeline.clear()  # it is the only one there, if it is there
            if wrong is self._answering:
                self._answering = None
                words = b"" if wrong.response_started else words
        if self._is_answering():
            self._last_words = words
        else:
            self._end_with(words)

    def _end_with(self, words: bytes) -> None:
        self.transport.write(words)
        self.loop.call_later(1.0, self.transport.close)
