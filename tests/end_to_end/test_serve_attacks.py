"""Attacks on a real server, in short forms; `python -m bench.attacks.expensive RUN` is the long one."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from serving import Server, wait_until

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
sys.path.insert(0, str(Path(__file__).parents[2]))  # where `bench` lies

from bench.attacks import expensive, polite

SLOW = """
import sys, time
from seq2see.decoding import ct2_engine, torch_engine
from seq2see.serve import engine_process

class Slow(engine_process.Bounded):
    def search(self, tasks, settings):
        time.sleep(sum(len(task.source) for task in tasks) * settings.beam * {second})
        return super().search(tasks, settings)

engine_process.Bounded = Slow
engine_process.main()
"""
SERVING = """
import sys
from seq2see.serve import lanes, server
from seq2see.serve.limits import Limits

assert lanes.PROGRAM
lanes.PROGRAM = {program!r}
server.serve(sys.argv[1:2], port=0, limits=Limits(deadline={deadline}, load_seconds={load}), log=False)
"""


def server_with(trained: Path, program: str, deadline: float = 10, load: float = 60) -> Server:
    """A server whose engine processes run another program."""
    return Server(trained, program=SERVING.format(program=program, deadline=deadline, load=load))


def test_one_expensive_request_is_refused_at_once_and_stops_nobody(trained: Path):
    """It got 504 after the deadline, its engine was killed, and everybody else got 504 meanwhile."""
    with server_with(trained, SLOW.format(second=0.002)) as server:  # two milliseconds for a token of a hypothesis
        body = {"text": ["abcdefgh" * 100] * 12, "beam": 10}
        for _ in range(2):
            begun = time.monotonic()
            found = server.post("/v1/translate", **body)
            assert found.status == 413
            assert time.monotonic() - begun < 5
            assert "too much work for one request" in found.json()["error"]
            assert "x beam 10" in found.json()["error"]
        assert server.post("/v1/translate", text="cab").status == 200
        assert server.measure("seq2see_engine_restarts_total") == 0
        assert server.get("/ready").status == 200


def test_an_engine_that_hangs_while_loading_is_given_up(trained: Path):
    hanging = "import sys; sys.stdin.buffer.read()"  # until its pipe is closed, so that it does not outlive the server
    server = server_with(trained, hanging, load=0.5)
    server.wait_until_ready = lambda: None  # type: ignore[method-assign]
    with server:
        wait_until(lambda: "--load-timeout" in server.get("/ready").json()["error"], server.log)
        assert server.get("/health").status == 200
        server.wait_for_log("not loaded within 0.5 seconds")
        server.wait_for_measure("seq2see_engine_restarts_total", 1)


def test_a_run_that_is_damaged_later_is_reported(trained: Path, tmp_path: Path):
    import shutil

    run = shutil.copytree(trained, tmp_path / "run")
    with Server(run, "--engine", "torch", "--quiet") as server:
        (run / "model.safetensors").write_bytes(b"damaged")
        os.kill(server.engines()["translate"], signal.SIGKILL)
        wait_until(lambda: "model.safetensors" in (server.get("/ready").json().get("error") or ""), server.log)
        said = server.get("/ready").json()["error"]
        server.wait_for_log("model.safetensors")
        assert str(tmp_path) not in said


@pytest.mark.slow
def test_a_polite_client_beside_an_expensive_one(trained: Path):
    with polite.serving(trained, "--engine", "torch") as target:
        figures = asyncio.run(polite.measured(target, "expensive", expensive.attack, 10, 30))
    assert figures["engine_restarts"] == 0
    assert figures["repelled"], figures
