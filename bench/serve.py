"""Measure the load that a server handles: `python -m bench.serve batching [RUN]`, or `overload [RUN]`.

Server and load have a core each (`taskset`), and speak over the loopback. Sentences are the sources that the run was
validated on, over and over.

batching    64 clients with dynamic batching, against one at a time (`--batch-tokens 1`); greedy; the answers to the
            first 1,000 sentences are compared with those of `seq2see translate`
overload    peak throughput (20 s for each number of clients), then five times as many requests each second as that, for
            some minutes: statuses, connections lost, the longest wait, and how memory grew; then peak and overload in
            turns, since a machine has faster and slower minutes, and throughput under overload against the peak
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import mean, median

SERVER_CORE, LOAD_CORE = 0, 1
PORT = 8399
DEADLINE = 30.0
LOST = (OSError, asyncio.IncompleteReadError)
PEAK_CLIENTS = (64, 128, 256)
"""The peak is that of as many as bring the most: against it, throughput under overload is measured."""
PEAK_SECONDS, TURN_SECONDS, TURNS = 20, 30, 5


@contextmanager
def server(run: Path, *options: str) -> Iterator[int]:
    """A server on its core, ready; its process id."""
    words = [sys.executable, "-m", "seq2see", "serve", str(run), "--port", str(PORT), "--quiet", *options]
    process = subprocess.Popen(["taskset", "-c", str(SERVER_CORE), *words], env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        while True:
            try:
                if asyncio.run(ask(b"", "GET", "/ready"))[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.2)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def ask(body: bytes, method: str = "POST", path: str = "/v1/translate") -> tuple[int, bytes]:
    """One request on a connection of its own, as most clients have it."""
    client = Client()
    try:
        return await client.ask(body, method, path)
    finally:
        client.close()


class Client:
    """A connection that is kept, for less long than the server keeps it: one that is lost was lost by the server."""

    IDLE = 5.0

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = 0.0

    async def ask(self, body: bytes, method: str = "POST", path: str = "/v1/translate") -> tuple[int, bytes]:
        if time.monotonic() > self._used + self.IDLE:
            self.close()
        try:
            return await self._ask(body, method, path)
        except BaseException:
            self.close()
            raise
        finally:
            self._used = time.monotonic()

    async def _ask(self, body: bytes, method: str, path: str) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", PORT)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        sizes = [int(line.split(":")[1]) for line in answer if line.startswith("content-length:")]
        found = await reader.readexactly(sizes[0])
        if "connection: close" in answer:
            self.close()
        return int(answer[0].split()[1]), found

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def body_of(sentence: str) -> bytes:
    return json.dumps({"text": sentence, "beam": 1}).encode()


async def keep_asking(
    sentences: list[str], clients: int, seconds: float, answers_needed: int = 0
) -> tuple[float, dict[str, str]]:
    """Answers a second to so many clients, each of whom asks again at once; and the answers."""
    rest, answers, done, lost = cycle(sentences), {}, 0, 0
    begun = time.monotonic()

    async def client() -> None:
        nonlocal done, lost
        connection = Client()
        while time.monotonic() < begun + seconds or len(answers) < min(answers_needed, len(sentences)):
            sentence = next(rest)
            try:
                status, found = await connection.ask(body_of(sentence))
            except LOST:
                lost += 1
                continue
            if status in (429, 504):
                await asyncio.sleep(0.2)
                continue
            assert status == 200, found
            answers[sentence] = json.loads(found)["results"][0]["translations"][0]["text"]
            done += 1
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    if lost:
        print(f"connections lost {lost:8,}")
    return done / (time.monotonic() - begun), answers


def batching(run: Path, sentences: list[str], seconds: float) -> None:
    rates = {}
    for name, options, needed in (("one at a time", ["--batch-tokens", "1"], 0), ("dynamic batching", [], 1000)):
        with server(run, "--deadline", "600", *options):
            asyncio.run(keep_asking(sentences[:64], 64, 3))
            rates[name], answers = asyncio.run(keep_asking(sentences, 64, seconds, needed))
        print(f"{name:<18}{rates[name]:8.1f} sentences/s, 64 clients, greedy")
    print(f"{'gain':<18}{rates['dynamic batching'] / rates['one at a time']:8.2f} times")
    asked = list(answers)[:1000]
    words = [sys.executable, "-m", "seq2see", "translate", str(run), "--beam", "1"]
    said = subprocess.run(words, input="\n".join(asked), text=True, capture_output=True, check=True).stdout
    same = sum(answers[source] == line for source, line in zip(asked, said.splitlines(), strict=True))
    print(f"the command line's answer: {same:,} of {len(asked):,}")


def processes_of(pid: int) -> dict[str, int]:
    """The server and its engines."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {"server": pid} | {Path(f"/proc/{each}/cmdline").read_text().split("\0")[-2]: int(each) for each in children}


def memory_of(pid: int) -> dict[str, float]:
    """MB that each process holds for itself."""
    found = {}
    for name, each in processes_of(pid).items():
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
        found[name] = private / 1024
    return found


def work_of(pid: int) -> dict[str, float]:
    """Return the CPU seconds that each process has used."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = {name: Path(f"/proc/{each}/stat").read_text().split(") ")[1] for name, each in processes_of(pid).items()}
    return {name: sum(map(int, stat.split()[11:13])) / ticks for name, stat in stats.items()}


def show_work(before: dict[str, float], after: dict[str, float], answered: int, seconds: float) -> None:
    """Throughput as measured, and as it would be if the server had its core for itself."""
    used = {name: after[name] - before[name] for name in before}
    shares = ", ".join(f"{name} {100 * each / seconds:.0f} %" for name, each in used.items())
    print(f"answered         {answered / seconds:8.1f} a second; of a core: {shares}")
    print(f"                 {answered / sum(used.values()):8.1f} for each second of a core")


async def flood(sentences: list[str], peak: float, seconds: float, pid: int) -> float:
    """Five times as many requests each second as were answered at best, whatever becomes of them. Answers a second."""
    rate = 5 * peak
    statuses, waits = Counter[int](), list[float]()
    memory: list[dict[str, float]] = []
    rest, pending = cycle(sentences), set[asyncio.Task[None]]()
    free: list[Client] = []

    async def one(sentence: str) -> None:
        client = free.pop() if free else Client()
        asked = time.monotonic()
        try:
            status, _ = await asyncio.wait_for(client.ask(body_of(sentence)), 3 * DEADLINE)
            free.append(client)
        except TimeoutError:
            status = -1
        except LOST:
            status = -2
        statuses[status] += 1
        waits.append(time.monotonic() - asked)

    begun, before = time.monotonic(), work_of(pid)
    sent, next_memory = 0, min(60.0, seconds / 4)
    while (now := time.monotonic() - begun) < seconds:
        while sent < now * rate:
            sent += 1
            task = asyncio.create_task(one(next(rest)))
            pending.add(task)
            task.add_done_callback(pending.discard)
        if now > next_memory:
            memory.append(memory_of(pid))
            next_memory = now + min(10.0, seconds / 20)
        await asyncio.sleep(0.005)
    if pending:
        await asyncio.wait(pending)
    names = {-1: "hung", -2: "connection lost"}
    print("statuses         ", {names.get(status, status): count for status, count in sorted(statuses.items())})
    print(f"asked            {sent / seconds:8.1f} a second")
    took = time.monotonic() - begun
    show_work(before, work_of(pid), statuses[200], took)
    print(f"longest wait     {max(waits):8.2f} s of a deadline of {DEADLINE:g} s")
    totals = [each | {"all together": sum(each.values())} for each in memory]
    third = len(totals) // 3
    for name in totals[0] if totals else ():
        first, last = (mean(each[name] for each in some) for some in (totals[: third or 1], totals[-third or -1 :]))
        growth = f"{100 * (last / first - 1):+.2f} %"
        print(f"memory           {first:8.1f} MB in the first third, {last:.1f} in the last: {growth}, {name}")
    return statuses[200] / took


def peak_of(sentences: list[str], clients: int, pid: int) -> float:
    """Answers a second to so many clients."""
    before, begun = work_of(pid), time.monotonic()
    rate, _ = asyncio.run(keep_asking(sentences, clients, PEAK_SECONDS))
    seconds = time.monotonic() - begun
    print(f"{clients} clients, greedy")
    show_work(before, work_of(pid), round(rate * seconds), seconds)
    return rate


def overload(run: Path, sentences: list[str], minutes: float) -> None:
    with server(run, "--deadline", str(DEADLINE)) as pid:
        asyncio.run(keep_asking(sentences[:64], 64, 3))
        peaks = {clients: peak_of(sentences, clients, pid) for clients in PEAK_CLIENTS}
        most = max(peaks, key=lambda clients: peaks[clients])
        print(f"peak             {peaks[most]:8.1f} a second; now five times as many are asked")
        asyncio.run(flood(sentences, peaks[most], 60 * minutes, pid))
        print(f"in turns: {most} clients, and five times as much as they are answered")
        shares, before = [], peak_of(sentences, most, pid)
        for _ in range(TURNS):
            rate = asyncio.run(flood(sentences, before, TURN_SECONDS, pid))
            after = peak_of(sentences, most, pid)
            shares.append(100 * rate / mean([before, after]))
            before = after
        all_of_them = ", ".join(f"{share:.1f}" for share in sorted(shares))
        print(f"throughput       {median(shares):8.1f} % of the peaks before and after, the median of {all_of_them}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["batching", "overload"])
    parser.add_argument("run", type=Path, nargs="?", help="if not given: one of base size that copies its input")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    run = given.run or base_run()
    os.sched_setaffinity(0, {LOAD_CORE})
    lines = (run / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    sentences = list(dict.fromkeys(json.loads(line)["source"] for line in lines))
    if given.what == "batching":
        batching(run, sentences, given.seconds)
    else:
        overload(run, sentences, given.minutes)


def base_run() -> Path:
    """Make a run of the paper's base size whose weights copy the source, with 2,000 sentences as long as captions."""
    import numpy as np

    from bench import prepare, work

    run = prepare.copying_run(Path(".bench") / "serve-base", work.SIZES["base"])
    dice = np.random.default_rng(5)
    lengths = np.clip(np.exp(dice.normal(2.5, 0.35, 2000)), 4, 40).astype(int)
    with (run / "validation.jsonl").open("w", encoding="utf-8") as file:
        for length in lengths:
            text = " ".join(f"w{word}" for word in dice.integers(4, work.SIZES["base"].vocabulary, length))
            file.write(json.dumps({"source": text, "target": text}) + "\n")
    return run


if __name__ == "__main__":
    main()
