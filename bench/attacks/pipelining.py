"""One client that sends requests without waiting for answers: `python -m bench.attacks.pipelining RUN`.

On a few connections it sends 29 MB of small GETs, reads the answers, and begins again. It has a process of its own, so
that the polite client is not slowed by it on the way to the server. The server limits requests to 600 a minute for each
client, as the issue that this attack comes from had it; the polite client stays below that.
"""

import contextlib
import selectors
import socket
import sys
import time

from bench.attacks import polite

CONNECTIONS = 4
SMALL = b"GET /languages HTTP/1.1\r\nHost: localhost\r\n\r\n"
MEGABYTES = 29
SOURCE = "127.0.0.2"
"""Another address of this machine, so that attacker and polite client are two clients."""


def flood(host: str, port: int, seconds: float) -> None:
    """Send and read as fast as the server takes it."""
    data = SMALL * (1_000_000 * MEGABYTES // len(SMALL))
    ends = time.monotonic() + seconds
    with contextlib.ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())

        def connect() -> None:
            made = opened.enter_context(socket.create_connection((host, port), 10, (SOURCE, 0)))
            made.setblocking(False)
            selector.register(made, selectors.EVENT_READ | selectors.EVENT_WRITE, [0])

        for _ in range(CONNECTIONS):
            connect()
        while time.monotonic() < ends:
            for key, events in selector.select(1.0):
                connection, sent = key.fileobj, key.data
                assert isinstance(connection, socket.socket)
                try:
                    if events & selectors.EVENT_READ and not connection.recv(1 << 20):
                        raise ConnectionResetError
                    if events & selectors.EVENT_WRITE:
                        sent[0] = (sent[0] + connection.send(data[sent[0] : sent[0] + 65536])) % len(data)
                except BlockingIOError:
                    pass
                except OSError:
                    selector.unregister(connection)
                    connection.close()
                    connect()


async def attack(target: polite.Target) -> None:
    """Run the flood until it is cancelled."""
    await polite.beside_process(target, "bench.attacks.pipelining", "--flood")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--flood"]:
        flood(sys.argv[2], int(sys.argv[3]), 120.0)
    else:
        polite.main("pipelining", attack, ("--rate-limit", "600"))
