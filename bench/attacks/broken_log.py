"""A log that cannot be written: `python -m bench.attacks.broken_log RUN`.

Three servers, one after the other: the reader of standard error goes away, the reader is stopped while the pipe is
full, and standard error is on a full disk (/dev/full). A polite client asks each of them before and after its log
breaks; then the engine is killed, and must be replaced.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.attacks import polite

KINDS = ("reader gone", "reader stopped", "disk full")
SECONDS = 6.0
"""Seconds of polite requests before the log breaks, and as many after that."""


@contextlib.contextmanager
def serving(run: Path, stderr: int) -> Iterator[tuple[polite.Target, int]]:
    """A server that logs to a descriptor, and its process id."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = [sys.executable, "-m", "seq2see", "serve", str(run), "--port", str(port)]
    process = subprocess.Popen(words, stderr=stderr)
    try:
        target = polite.Target(port, polite.ordinary_texts(run))
        asyncio.run(ready(target))
        yield target, process.pid
    finally:
        process.kill()
        process.wait()


async def ready(target: polite.Target) -> None:
    ends = time.monotonic() + polite.START_SECONDS
    while True:
        with contextlib.suppress(*polite.LOST):
            if (await target.exchange("GET", "/ready"))[0] == 200:
                return
        if time.monotonic() > ends:
            raise SystemExit("the server is not ready")
        await asyncio.sleep(0.1)


def engine(server: int) -> int:
    """The process that translates."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    found = [pid for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2] == b"translate"]
    return int(found[0])


async def pursue(kind: str, target: polite.Target, server: int, reading: int | None) -> dict[str, Any]:
    """Ask, break the log, ask again, kill the engine, and wait until another one answers."""
    company = polite.client(target, polite.Record(), begin=3)
    before = await polite.beside(target, company, SECONDS)
    if kind == "reader gone" and reading is not None:
        os.close(reading)
    if kind == "reader stopped" and reading is not None:  # it has not read a byte: fill what is left of the pipe
        for _ in range(2000):
            await target.send("GET", "/health")
    after = await polite.beside(target, polite.client(target, polite.Record(), begin=3), SECONDS)
    restarts = await target.metric("seq2see_engine_restarts_total")
    os.kill(engine(server), signal.SIGKILL)
    begun = time.monotonic()
    while await target.metric("seq2see_engine_restarts_total") == restarts and time.monotonic() < begun + 60:
        await asyncio.sleep(0.1)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ready(target), 60)
    status = await target.post("/v1/translate", {"text": target.texts[0]}, polite.Record())
    share = after.share_within(2 * before.percentile(polite.SHARE))
    return {
        "repelled": share >= polite.SHARE and status == 200,
        "share_within_twice_the_baseline": round(share, 3),
        "baseline": before.figures(),
        "polite": after.figures(),
        "status_after_the_engine_was_killed": status,
        "seconds_until_it_was_replaced": round(time.monotonic() - begun, 1),
        "log_lines_dropped": await target.metric("seq2see_log_lines_dropped_total"),
    }


def main() -> None:
    """Print one line of JSON; exit code 1 where the service gave way."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks.broken_log")
    parser.add_argument("run", type=Path, help="run folder")
    run = parser.parse_args().run
    figures: dict[str, Any] = {"attack": "broken_log"}
    for kind in KINDS:
        reading = None
        if kind == "disk full":
            writing = os.open("/dev/full", os.O_WRONLY)
        else:
            reading, writing = os.pipe()
        with serving(run, writing) as (target, server):
            os.close(writing)
            figures[kind] = asyncio.run(pursue(kind, target, server, reading))
        if kind == "reader stopped" and reading is not None:
            os.close(reading)
    figures["repelled"] = all(figures[kind]["repelled"] for kind in KINDS)
    print(json.dumps(figures))
    sys.exit(not figures["repelled"])


if __name__ == "__main__":
    main()
