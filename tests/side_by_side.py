"""The same function in several processes that find each other as if torchrun had started them; quick to start."""

import contextlib
import multiprocessing
import os
import random
import socket
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

WAIT = 120
"""Seconds: what takes longer hangs."""


def wait_until(done: Callable[[], bool]) -> bool:
    """Whether it came true in time, counted in looks: a machine that stood still for a while has not waited."""
    for _ in range(WAIT * 20):
        if done():
            return True
        time.sleep(0.05)
    return False


def start(work: Callable[..., Any], *words: Any, world: int = 2) -> list[ForkServerProcess]:
    """`work(*words)` in `world` processes, from a server that has imported everything once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["seq2see.api", "seq2see.pictures.translations", "torch.utils.tensorboard", "torch._dynamo"]
    )
    port = _free_port()
    processes = [context.Process(target=_be, args=(rank, world, port, work, words)) for rank in range(world)]
    for process in processes:
        process.start()
    return processes


def _free_port() -> int:
    """Return a port below those that the system gives to servers of other tests: the first process takes it later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with contextlib.closing(socket.socket()) as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def finish(processes: list[ForkServerProcess], wait: bool = True) -> list[int | None]:
    """Their exit codes; those that hang are ended, and have None."""
    if wait:
        wait_until(lambda: all(process.exitcode is not None for process in processes))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def _be(rank: int, world: int, port: int, work: Callable[..., Any], words: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    work(*words)
