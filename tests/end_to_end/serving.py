"""A server in a process of its own, as an operator starts it, and calls to it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE = 120
"""Seconds: other work on the machine may stop a server for long."""


def wait_until(holds: Callable[[], object], about: Callable[[], str] = lambda: "") -> None:
    """Wait until a condition holds that another process makes true; the message says what was seen instead."""
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, about()
        time.sleep(0.02)


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`with Server(run, "--queue", 4) as server: server.post("/v1/translate", text="abc")`."""

    def __init__(self, *words: object, program: str | None = None, python: str | Path = sys.executable) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in __exit__)
        self.process = subprocess.Popen(
            [
                str(python),
                *(["-c", program] if program else ["-m", "seq2see", "serve"]),
                *map(str, words),
                "--port",
                "0",
            ],
            stderr=self._log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.url = ""

    def __enter__(self) -> "Server":
        def is_serving() -> bool:
            assert self.process.poll() is None, self.log()
            return "serving" in self.log()

        wait_until(is_serving, self.log)
        self.wait_for_log("/ (Ctrl-C ends)")
        found = re.search(r"http://\S+?(?=/ )", self.log())
        assert found, self.log()
        self.url = found[0]
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def wait_for_log(self, text: str) -> None:
        """Wait until a text is in the log: a line is written after the answer that it is about."""
        wait_until(lambda: text in self.log(), self.log)

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.get("/ready").status == 200, self.log)

    def wait_for_measure(self, name: str, least: float) -> None:
        """Wait until one of /metrics has a value."""
        wait_until(lambda: self.measure(name) >= least, lambda: f"{name} is {self.measure(name)}, expected {least}")

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def engines(self) -> dict[str, int]:
        """Process ids by what the engine is for."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        words = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
        return {each[-2].decode(): pid for pid, each in words.items() if each[-2] in (b"translate", b"inside", b"long")}

    def _processes(self) -> list[int]:
        return [self.process.pid, *self.engines().values()]

    def memory(self) -> float:
        """MB that all its processes hold for themselves."""
        lines = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self._processes()]
        return sum(int(size) for each in lines for size in re.findall(r"Private_\w+: +(\d+)", each)) / 1024

    def work(self) -> float:
        """Seconds of a core that they have had."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._processes()]
        return sum(int(each) for stat in stats for each in stat[11:13]) / os.sysconf("SC_CLK_TCK")

    def call(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, **fields: Any) -> Answer:
        body = json.dumps(fields).encode("utf-8", "surrogatepass")
        return self.call("POST", path, body, {"Content-Type": "application/json"})

    def measure(self, name: str) -> float:
        """The value of one of /metrics, or the sum over all its labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{re.escape(name)}[ {{]", line))
