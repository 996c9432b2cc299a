"""One client that takes more than its share: others are served meanwhile, and answers come in order."""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from serving import PATIENCE, Server

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

CROWDED = """
import sys
from seq2see.serve import server

server.MOST_CONNECTIONS = 40
server.serve(sys.argv[1:2], host=sys.argv[2], port=0, log=False)
"""
GREEDY = "127.0.0.2"
"""Another address of this machine."""


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[Server]:
    with Server(trained, "127.0.0.1", program=CROWDED) as started:
        yield started


@contextlib.contextmanager
def connections(
    server: Server, number: int, begins: bytes = b"", source: str = GREEDY
) -> Iterator[list[socket.socket]]:
    """So many at once, each with the same beginning."""
    address = urlsplit(server.url)
    assert address.hostname
    assert address.port
    with contextlib.ExitStack() as opened:
        made = []
        for _ in range(number):
            one = socket.create_connection((address.hostname, address.port), PATIENCE, (source, 0))
            made.append(opened.enter_context(one))
            one.sendall(begins)
        yield made


HALF = (
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
)


@pytest.mark.parametrize(
    "begins", [b"", b"GET / HTTP/1.1\r\nHost: loc", HALF], ids=["idle", "half a head", "half a body"]
)
@pytest.mark.parametrize("source", [GREEDY, "127.0.0.1"], ids=["another client", "the same address"])
def test_a_crowd_that_does_nothing_keeps_nobody_out(server: Server, begins: bytes, source: str):
    kept = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE)
    kept.request("GET", "/health")
    kept.getresponse().read()
    before = kept.sock
    with connections(server, 100, begins, source) as crowd:
        for path in ("/health", "/ready"):
            assert server.get(path).status == 200
        assert server.post("/v1/translate", text="cab").status == 200
        kept.request("GET", "/ready")
        assert kept.getresponse().read() == b'{"status":"ready"}'
        assert kept.sock is before  # a connection that is used outlives those that never were
        crowd[0].settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            assert crowd[0].recv(1) == b""  # the first of them was closed
    kept.close()


def test_health_is_answered_where_all_connections_are_at_work(server: Server):
    """A client reads nothing of what it asked for: all of its connections wait for it."""
    request = b"GET /page/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connections(server, 30, request * 200, "127.0.0.1"):
        time.sleep(0.5)
        statuses = {server.get("/health").status for _ in range(5)}
        assert statuses == {200}
    server.wait_until_ready()


def test_pipelined_requests_are_read_as_they_are_answered(server: Server):
    """Others are answered while megabytes of small requests come, and the server holds none of them."""
    assert server.post("/v1/translate", text="cab").status == 200
    memory = server.memory()
    small = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500_000  # 20 MB
    with connections(server, 1) as (flood,):
        flood.setblocking(False)
        sent, answered = 0, b""
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                while sent < len(small):
                    sent += flood.send(small[sent : sent + 65536])
            with contextlib.suppress(BlockingIOError):
                answered += flood.recv(1 << 20)
            assert server.post("/v1/translate", text="cab").status == 200
        assert sent < len(small)  # the rest waits at the client
        assert server.memory() < memory + 20
        assert answered.startswith(b"HTTP/1.1 200 OK")


def test_the_refusal_of_garbage_comes_after_the_answers_before_it(server: Server):
    body = b'{"text": "cab"}'
    post = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    post += b"Content-Length: %d\r\n\r\n" % len(body) + body
    all_garbage = [b"\x16\x03\x01garbage\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000]
    with connections(server, len(all_garbage), post + post) as clients:
        for client, garbage in zip(clients, all_garbage, strict=True):
            client.sendall(garbage)
        for client in clients:
            answers = b"".join(iter(lambda client=client: client.recv(65536), b""))
            statuses = [each[:3] for each in answers.split(b"HTTP/1.1 ")[1:]]
            assert statuses[:2] == [b"200", b"200"]
            assert statuses[2:] in ([b"400"], [b"431"])
            assert list(json.loads(answers.rpartition(b"\r\n\r\n")[2])) == ["error"]


def test_names_and_addresses_that_lead_here(trained: Path):
    """A socket of IPv6 takes IPv4 connections, too; DNS rebinding: a site's name was made to lead to this machine."""
    both = socket.has_dualstack_ipv6()
    options = ["--host", "::" if both else "0.0.0.0", "--allow-host", "translate.example.org", "--quiet"]
    with Server(trained, *options) as server:
        port = urlsplit(server.url).port
        for host in ("[::1]", "127.0.0.1")[0 if both else 1 :]:
            server.url = f"http://{host}:{port}"
            assert server.get("/health").status == 200
        for name in ("127.0.0.1", "192.0.2.7", "localhost", socket.gethostname(), "translate.example.org"):
            assert server.get("/", Host=f"{name}:{port}").status == 200
        refused = server.get("/", Host=f"evil.example:{port}")
        assert refused.status == 403
        assert "--allow-host" in refused.json()["error"]
        digits = server.post("/translate", q="<p>&#" + "9" * 5000 + ";</p>", source="en", target="de", format="html")
        assert digits.status == 200
