"""A polite client beside an attack: `python -m bench.attacks.polite RUN` measures it beside no attack at all.

A polite client sends one ordinary request, waits for the answer, pauses and sends the next. The baseline is its latency
beside one other client that sends the same. An attack is then judged by the share of polite requests that are answered
(200) within twice the baseline; it is repelled where that share is at least 90 %. The baseline is the latency below
which 90 % of the requests were answered, so that both sides of the comparison count the same share.

An attack is a coroutine that gets the address of the server, and is cancelled when its time is over:

    async def attack(target: Target) -> None: ...

    polite.main("crowd", attack)        # as the last line of `python -m bench.attacks.crowd RUN`
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
"""Seconds in which a server must become ready."""
ANSWER_SECONDS = 60.0
"""Seconds after which a client stops waiting for an answer."""
PAUSE = 0.25
"""Seconds between the answer to a polite request and the next one."""
SHARE = 0.9
"""Share of polite requests that must be answered within twice the baseline."""
LOST = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


@dataclass
class Record:
    """The statuses and latencies of the requests that one client sent; status 0 is a lost connection, -1 no answer."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Latencies of the requests that were answered with 200."""
    unfinished: list[float] = field(default_factory=list)
    """Waiting times of the requests that were still running when the time was over."""

    @property
    def count(self) -> int:
        return self.statuses.total()

    def percentile(self, share: float) -> float:
        """Latency below which this share of the answered requests lies; infinite where none was answered."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")

    def share_within(self, seconds: float) -> float:
        """Share of all requests, refused and lost ones included, that were answered within so many seconds."""
        late = sum(each > seconds for each in self.unfinished)
        return sum(each <= seconds for each in self.seconds) / max(1, self.count + late)

    def figures(self) -> dict[str, Any]:
        return {
            "requests": self.count,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "median_seconds": _rounded(self.percentile(0.5)),
            "p90_seconds": _rounded(self.percentile(0.9)),
            "longest_unfinished_seconds": _rounded(max(self.unfinished, default=0.0)),
        }


def _rounded(seconds: float) -> float | None:
    return round(seconds, 3) if seconds != float("inf") else None


@dataclass
class Target:
    """The server under attack."""

    port: int
    texts: list[str]
    """Ordinary texts for the run that it serves."""
    host: str = "127.0.0.1"
    record: Record = field(default_factory=Record)
    """Responses to the attacker; an attack that uses `post` fills them in."""

    async def post(self, path: str, fields: dict[str, Any], record: Record | None = None) -> int:
        """Send one request on a connection of its own, and return the status."""
        return await self.send("POST", path, json.dumps(fields).encode(), record)

    async def send(self, method: str, path: str, body: bytes = b"", record: Record | None = None) -> int:
        """Send one request on a connection of its own, and return the status."""
        record = self.record if record is None else record
        begun = time.monotonic()
        try:
            status, _ = await asyncio.wait_for(self.exchange(method, path, body), ANSWER_SECONDS)
        except TimeoutError:
            status = -1
        except LOST:
            status = 0
        except asyncio.CancelledError:
            record.unfinished.append(time.monotonic() - begun)
            raise
        record.statuses[status] += 1
        if status == 200:
            record.seconds.append(time.monotonic() - begun)
        return status

    async def exchange(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send one request on a connection of its own; status and body of the answer."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.read()
            found, _, content = answer.partition(b"\r\n\r\n")
            return int(found.split()[1]) if found else 0, content
        finally:
            writer.close()

    async def metric(self, name: str) -> float:
        """The sum over all labels of one of the figures that /metrics shows."""
        _, text = await self.exchange("GET", "/metrics")
        lines = text.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}[ {{]", line))


Attack = Callable[[Target], Awaitable[None]]


async def client(target: Target, record: Record, pause: float = PAUSE, begin: int = 0) -> None:
    """Send ordinary requests one after the other, for ever."""
    place = begin
    while True:
        place += 1
        await target.post("/v1/translate", {"text": target.texts[place % len(target.texts)]}, record)
        await asyncio.sleep(pause)


async def beside_process(target: Target, module: str, option: str) -> None:
    """Run an attack in a process of its own until this is cancelled, and ask meanwhile whether the server is alive."""
    words = ["-m", module, option, target.host, str(target.port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *words)
    try:
        while process.returncode is None:
            await target.send("GET", "/health")
            await asyncio.sleep(0.5)
        raise RuntimeError(f"the attack ended by itself, with exit code {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def beside(target: Target, company: Awaitable[None], seconds: float) -> Record:
    """Measure the responses to a polite client for some seconds beside other work, which is cancelled afterwards."""
    record = Record()
    tasks = [asyncio.ensure_future(company), asyncio.ensure_future(client(target, record))]
    try:
        await asyncio.wait(tasks[:1], timeout=seconds)
        if tasks[0].done():  # an attack that is over before its time: the polite client still gets all of it
            tasks[0].result()
            await asyncio.wait(tasks[1:], timeout=seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return record


async def measured(
    target: Target, name: str, attack: Attack, baseline_seconds: float, seconds: float
) -> dict[str, Any]:
    """Baseline, then the attack; the figures of both and the verdict."""
    await beside(target, client(target, Record(), begin=3), min(3.0, baseline_seconds))  # warms up, not counted
    baseline = await beside(target, client(target, Record(), begin=3), baseline_seconds)
    restarts = await target.metric("seq2see_engine_restarts_total")
    attacked = await beside(target, attack(target), seconds)
    most = 2 * baseline.percentile(SHARE)
    share = attacked.share_within(most)
    recovery = Record()
    await target.post("/v1/translate", {"text": target.texts[0]}, recovery)
    return {
        "attack": name,
        "repelled": share >= SHARE and attacked.count > 0,
        "share_within_twice_the_baseline": round(share, 3),
        "share_within_twice_the_median": round(attacked.share_within(2 * baseline.percentile(0.5)), 3),
        "twice_the_baseline_seconds": _rounded(most),
        "baseline": baseline.figures(),
        "polite": attacked.figures(),
        "attacker": target.record.figures(),
        "engine_restarts": await target.metric("seq2see_engine_restarts_total") - restarts,
        "afterwards": recovery.figures(),
    }


@contextlib.contextmanager
def serving(run: Path, *options: str, log: bool = False) -> Iterator[Target]:
    """A server of its own process for a run, ready, on any free port."""
    words = [sys.executable, "-m", "seq2see", "serve", str(run), "--port", "0", *options]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*words, *([] if log else ["--quiet"])], stderr=errors, env=os.environ)

        def said() -> str:
            errors.seek(0)
            return errors.read()

        try:
            end = time.monotonic() + START_SECONDS
            while not (found := re.search(r"http://\S+?:(\d+)/ ", said())):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the server did not start:\n{said()}")
                time.sleep(0.05)
            target = Target(int(found[1]), ordinary_texts(run))
            while not _ready(target):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the server did not become ready:\n{said()}")
                time.sleep(0.1)
            yield target
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ready(target: Target) -> bool:
    try:
        return asyncio.run(target.exchange("GET", "/ready"))[0] == 200
    except LOST:
        return False


def ordinary_texts(run: Path) -> list[str]:
    """Sources of ordinary length that the run was validated on; words of its vocabulary where there are none."""
    path = run / "validation.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as file:
            found = [json.loads(line)["source"] for line, _ in zip(file, range(500), strict=False)]
        middle = sorted(filter(None, found), key=len)[len(found) // 4 : 3 * len(found) // 4 + 1]
        if middle:
            return sorted(middle)
    from seq2see.run import Run

    tokenizer = Run(run).tokenizers.source
    words = [each for each in tokenizer.spellings() if each.isalnum()][:2000] or ["a"]
    return [" ".join(words[begin : begin + 10]) for begin in range(0, len(words), 10)]


def main(name: str, attack: Attack, options: tuple[str, ...] = ()) -> None:
    """Parse the command line, start a server, attack it, and print one line of JSON; exit code 1 where it gave way."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.attacks.{name}")
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--baseline", type=float, default=15.0, help="seconds in which the baseline is measured")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds that the attack lasts")
    given, more = parser.parse_known_args()  # what is left goes to `seq2see serve`
    with serving(given.run, *options, *more) as target:
        figures = asyncio.run(measured(target, name, attack, given.baseline, given.seconds))
    print(json.dumps(figures))
    sys.exit(not figures["repelled"])


if __name__ == "__main__":

    async def nothing(target: Target) -> None:
        """Stand in for an attack: one more client like the polite one."""
        await client(target, target.record, begin=3)

    main("polite", nothing)
