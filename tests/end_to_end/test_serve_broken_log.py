"""`seq2see serve` whose log cannot be written: it answers as before, and replaces engines that die."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from serving import PATIENCE, Server, wait_until

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")


class Unheard(Server):
    """A server on a port that is known before: its log does not tell. Standard error is closed where none is given."""

    def __init__(self, run: Path, stderr: int | None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        words = [sys.executable, "-m", "seq2see", "serve", str(run), "--port", str(port)]
        if stderr is None:
            words = ["sh", "-c", 'exec "$@" 2>&-', "sh", *words]
        self.process = subprocess.Popen(words, stderr=stderr, env=os.environ | {"OMP_NUM_THREADS": "1"})
        self.url = f"http://127.0.0.1:{port}"

    def __enter__(self) -> "Unheard":
        wait_until(self._answers)
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return ""

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server has ended"
        try:
            return self.get("/health").status == 200
        except OSError:
            return False


def answers_and_survives(server: Server) -> None:
    """Refusals have their status, connections are kept, and an engine that dies is replaced."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)
    headers = {"Content-Type": "application/json"}
    for body, status in ((b'{"text": "cab"}', 200), (b"{", 400), (b'{"text": "cab"}', 200)):
        connection.request("POST", "/v1/translate", body, headers)
        answer = connection.getresponse()
        assert (answer.status, "connection" in answer.headers) == (status, False)
        answer.read()
    sock = connection.sock
    connection.request("GET", "/health")
    assert json.load(connection.getresponse()) == {"status": "ok"}
    assert connection.sock is sock  # the same connection all the time
    connection.close()
    for engine in server.engines().values():
        os.kill(engine, signal.SIGKILL)
    server.wait_for_measure("seq2see_engine_restarts_total", 2)
    server.wait_until_ready()
    assert server.post("/v1/translate", text="cab").status == 200


def test_a_reader_of_the_log_that_goes_away(trained: Path):
    """As in `seq2see serve RUN 2>&1 | head -1`."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as log, os.fdopen(writing, "w") as end, Unheard(trained, writing) as server:
        end.close()
        assert "serving run at" in log.readline()
        log.close()
        answers_and_survives(server)
        server.wait_for_measure("seq2see_log_lines_dropped_total", 1)
        assert server.end() == 143


def test_a_reader_of_the_log_that_does_not_read(trained: Path):
    """The pipe is full: a write to it would never return."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb") as end:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(100_000):
                os.write(writing, b"x" * 4096)
        os.set_blocking(writing, True)
        with Unheard(trained, writing) as server:
            end.close()
            answers_and_survives(server)
            assert server.end() == 143


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk(trained: Path):
    with Path("/dev/full").open("wb") as disk, Unheard(trained, disk.fileno()) as server:
        answers_and_survives(server)
        server.wait_for_measure("seq2see_log_lines_dropped_total", 1)
        assert server.end() == 143


@pytest.mark.slow
def test_no_standard_error_at_all(trained: Path):
    with Unheard(trained, None) as server:
        answers_and_survives(server)
        assert server.end() == 143
