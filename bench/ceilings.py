"""What the machine can do at most: the rate of matrix products, and of reading memory."""

import time
from statistics import median

import torch


def measure() -> dict[str, float]:
    """GFLOP/s of float32 products of 2048 x 2048, and GB/s of reading 512 MB; medians of nine."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    large = torch.ones(128 * 2**20)
    products, reads = [], []
    for _ in range(10):
        began = time.perf_counter()
        a @ b
        products.append(2 * 2048**3 / (time.perf_counter() - began) / 1e9)
        began = time.perf_counter()
        large.sum()
        reads.append(4 * large.numel() / (time.perf_counter() - began) / 1e9)
    return {"gflops": median(products[1:]), "gigabytes_per_second": median(reads[1:])}
