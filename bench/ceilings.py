"""Measured limits of the machine: throughput of matrix multiplication and of reading memory, medians of nine."""

import time
from collections.abc import Callable
from statistics import median

import torch


def products() -> float:
    """Return the GFLOP/s of a float32 matrix multiplication of 2048 x 2048."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return 2 * 2048**3 / _seconds(lambda: a @ b) / 1e9


def reads() -> float:
    """GB/s of reading 512 MB."""
    large = torch.ones(128 * 2**20)
    return 4 * large.numel() / _seconds(large.sum) / 1e9


def _seconds(deed: Callable[[], object]) -> float:
    taken = []
    for _ in range(10):  # the first warms up
        began = time.perf_counter()
        deed()
        taken.append(time.perf_counter() - began)
    return median(taken[1:])
