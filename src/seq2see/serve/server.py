"""The server: a socket, uvicorn, and an orderly end."""

import json
import socket
import sys
from ipaddress import ip_address
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2see.errors import SettingError
from seq2see.run import Run
from seq2see.serve import app
from seq2see.serve.limits import Keys, Limits, Rates
from seq2see.serve.service import Service

MOST_CONNECTIONS = 2000


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

    def failed(line: str) -> None:
        failures.append(line)
        server.should_exit = True

    with _listening(host, port) as listening:
        config = uvicorn.Config(
            app.build(service, log, failed),
            log_level="error",
            access_log=False,  # it would write down what a URL contains
            server_header=False,
            http=Patient,
            ws="none",
            lifespan="on",
            timeout_keep_alive=10,
            timeout_graceful_shutdown=int(limits.deadline) + 1,
            limit_concurrency=MOST_CONNECTIONS,
        )
        server = uvicorn.Server(config)
        address = listening.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
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


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


class Patient(H11Protocol):
    """HTTP as uvicorn has it; but a client that does not get to the end of its headers is not waited for for ever."""

    HEADERS_SECONDS = 10

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]
        super().connection_made(transport)
        self._due = self.loop.call_later(self.HEADERS_SECONDS, self._look_again, None)

    def connection_lost(self, problem: Exception | None) -> None:
        self._due.cancel()
        super().connection_lost(problem)

    def _look_again(self, before: object) -> None:
        """Close where nothing has happened since the last look, and no request is being answered."""
        if self.cycle is before and (before is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._due = self.loop.call_later(self.HEADERS_SECONDS, self._look_again, self.cycle)

    def send_400_response(self, message: str) -> None:
        """As JSON, like all other refusals."""
        body = json.dumps({"error": "not an HTTP request"}).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
