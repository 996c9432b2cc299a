"""Compare with peers on a CUDA GPU: `python -m bench.gpu [training] [profile] [decoding] [losses] [--sizes base big]`.

All candidates live in this process and take turns, so that changes of the GPU's clock affect all alike; medians
over rounds are reported. Computed in bfloat16, weights in float32. Writes one JSON object to `--out`, and prints lines.

training    steps of 25,000 source and 25,000 target tokens, vocabulary 37,000: ours, Hugging Face's Marian eager and
            compiled, nn.Transformer; the share is that of the measured TFLOP/s of this GPU, padding not counted
profile     where our step's time goes, by kernel
decoding    30 tokens in, 30 out, random weights, bfloat16: ours and Hugging Face's `generate`
losses      200 steps of plain and of recorded passes from the same weights on the same batches, dropout off
"""

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))  # candidates import `work`, as they do in processes of their own

import work
from candidates import huggingface, ours, torch_transformer

from bench import prepare

SIZES = {
    "base": replace(work.SIZES["base"], vocabulary=37_000),
    "big": work.Size(6, 1024, 16, 4096, 37_000),
}
STEP_TOKENS = 50_000
"""Source and target together."""
DECODINGS = [(1, 1), (1, 4), (64, 1), (64, 4), (512, 1), (512, 4)]
"""Batch and beam."""
LENGTH = 30
PEERS = ["Hugging Face, eager", "Hugging Face, compiled", "nn.Transformer, eager"]


def measure_products() -> float:
    """TFLOP/s of the product of two 8192 x 8192 matrices in bfloat16."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return median(2 * 8192**3 / _seconds(lambda: a @ b) / 1e12 for _ in range(10))


def measure_reading() -> float:
    """GB/s of adding up 4 GB."""
    large = torch.ones(2**30, device="cuda")
    return median(4 * large.numel() / _seconds(large.sum) / 1e9 for _ in range(10))


def training(size: work.Size, weights: Path, rounds: int, peers: list[str]) -> dict[str, Any]:
    """Target tokens a second of each candidate, in rounds."""
    todo = _steps(size)
    tokens = sum(len(target) for batch in todo for _, target in batch)
    makers: dict[str, Callable[[], Any]] = {
        "seq2see": lambda: _ours(size, weights),
        "Hugging Face, eager": lambda: _on_gpu(huggingface.Candidate(size, weights, True)),
        "Hugging Face, compiled": lambda: _compiled(_on_gpu(huggingface.Candidate(size, weights, True))),
        "nn.Transformer, eager": lambda: _on_gpu(torch_transformer.Candidate(size, weights, True)),
    }
    candidates = {name: make() for name, make in makers.items() if name == "seq2see" or name in peers}
    rows: dict[str, dict[str, Any]] = {name: {"rates": []} for name in candidates}
    flops = sum(_flops(size, batch) for batch in todo)
    for number in range(rounds + 2):  # twice to warm up: a shape is recorded when it comes a second time
        for name, candidate in candidates.items():
            seconds = _seconds(lambda candidate=candidate: [candidate.train(batch) for batch in todo])
            if number >= 2:
                rows[name]["rates"].append(tokens / seconds)
            else:
                rows[name].setdefault("warm_up_seconds", []).append(round(seconds, 1))
    for row in rows.values():
        row["tflops"] = flops / tokens * median(row["rates"]) / 1e12
    del candidates, candidate
    _clear()
    return rows


def profile(size: work.Size, weights: Path, most: int = 24) -> list[dict[str, Any]]:
    """Milliseconds of a step by kernel."""
    todo = _steps(size)
    candidate = _ours(size, weights)
    for _ in range(3):
        for batch in todo:
            candidate.train(batch)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for batch in todo:
            candidate.train(batch)
        torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda each: -each.self_device_time_total)
    rows = [
        {"kernel": each.key[:90], "ms": each.self_device_time_total / 1e3 / len(todo), "times": each.count / len(todo)}
        for each in found
    ]
    whole = {"kernel": "all", "ms": sum(row["ms"] for row in rows), "times": sum(row["times"] for row in rows)}
    del candidate
    _clear()
    return [whole, *rows[:most]]


def decoding(size: work.Size, weights: Path, rounds: int) -> list[dict[str, Any]]:
    """Output tokens a second for batches and beams."""
    mine, theirs = _ours(size, weights), _on_gpu(huggingface.Candidate(size, weights, True))
    mine.precision = "bfloat16"
    theirs.model.to(torch.bfloat16).eval()
    found = []
    for batch, beam in DECODINGS:
        todo = work.sources(size, batch, LENGTH)
        rates: dict[str, list[float]] = {"seq2see": [], "Hugging Face": []}
        for number in range(rounds + 3):  # ours are recorded when they come a second time
            for name, candidate in (("seq2see", mine), ("Hugging Face", theirs)):
                seconds = _seconds(partial(candidate.decode, todo, beam, LENGTH))
                if number >= 3:
                    rates[name].append(batch * LENGTH / seconds)
        # Of a step: every weight of the decoder and the output, and the kept keys and values, half full on average.
        step = 2 * (_decoder_weights(size) + batch * size.layers * 2 * size.d_model * (LENGTH + beam * LENGTH / 2))
        bandwidth = step / (batch / median(rates["seq2see"])) / 1e9
        found.append({"batch": batch, "beam": beam, "rates": rates, "gigabytes_per_second": bandwidth})
    del mine, theirs, candidate
    _clear()
    return found


def losses(size: work.Size, weights: Path, steps: int = 200) -> dict[str, list[float]]:
    """Mean losses of every tenth step, by plain passes in float32 and bfloat16 and by recorded ones."""
    from seq2see import bundle
    from seq2see.config import Training
    from seq2see.training import loop
    from seq2see.training.optimizer import Adam

    todo = [ours.packed(batch) for batch in work.batches(size, 10, batch_tokens=8192, pairs=20_000)]
    found: dict[str, list[float]] = {}
    for name, precision, recorded in (
        ("plain, float32", "float32", False),
        ("plain, bfloat16", "bfloat16", False),
        ("recorded, bfloat16", "bfloat16", True),
    ):
        model = bundle.load(weights).model.cuda()
        for module in model.modules():
            if hasattr(module, "rate"):
                module.rate = 0.0
        settings = Training(label_smoothing=work.SMOOTHING, precision=precision)
        optimizer = Adam(model.parameters(), settings)
        learn = loop.fastest_passes(model, settings) if recorded else loop.plain_passes(model, settings)
        found[name] = []
        for step in range(steps):
            sums, _ = loop.update(
                model, optimizer, [todo[step % len(todo)]], settings, 1e-3 * (step + 1) / steps, learn
            )
            if step % 10 == 9:
                found[name].append(float(sums[1] / sums[2]))
        del model, optimizer, learn
        _clear()
    return found


def _steps(size: work.Size) -> list[work.Batch]:
    """Six of them, of short, middling and long sentences."""
    return work.batches(size, 6, batch_tokens=STEP_TOKENS, pairs=600_000)


def _ours(size: work.Size, weights: Path) -> ours.Candidate:
    return ours.Candidate(size, weights, tuned=False, device=torch.device("cuda"))


def _on_gpu(candidate: Any) -> Any:
    candidate.device = torch.device("cuda")
    candidate.model.to(candidate.device)
    candidate.start_training(True)
    return candidate


def _compiled(candidate: Any) -> Any:
    candidate.model = torch.compile(candidate.model, dynamic=True)
    return candidate


def _decoder_weights(size: work.Size) -> int:
    """Those that a token passes on its way out."""
    D = size.d_model
    return size.layers * (6 * D * D + 2 * D * size.d_ff) + size.vocabulary * D


def _flops(size: work.Size, batch: work.Batch) -> float:
    """Return the FLOPs of a step: 6 per token and weight, 12 d n for attention in each layer, half where causal."""
    D, layers = size.d_model, size.layers
    encoder = layers * (4 * D * D + 2 * D * size.d_ff)
    decoder = _decoder_weights(size)
    total = 0.0
    for source, target in batch:
        S, T = len(source), len(target)
        total += 6 * (S * (encoder + layers * 2 * D * D) + T * decoder)
        total += 12 * D * layers * (S * S + T * T / 2 + T * S)
    return total


def _seconds(deed: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    deed()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _clear() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["training", "profile", "decoding", "losses"])
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--peers", nargs="*", default=PEERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default=".bench/gpu.json")
    parser.add_argument("--name", default="seq2see", help="Name of this version in the page of results.")
    options = parser.parse_args()
    ceiling = measure_products()
    results: dict[str, Any] = {
        "version": options.name,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "tflops": ceiling,
        "gigabytes_per_second": measure_reading(),
        "sizes": {},
    }
    print(
        f"{results['gpu']}, torch {results['torch']}: {ceiling:.0f} TFLOP/s in matrix multiplications, "
        f"{results['gigabytes_per_second']:.0f} GB/s in reading",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sizes:
            size = SIZES[name]
            weights = prepare.random_run(Path(folder) / name, size)
            found: dict[str, Any] = {}
            results["sizes"][name] = found
            if "losses" in options.parts:
                found["losses"] = losses(size, weights)
                for each, values in found["losses"].items():
                    print(f"{name:5} {each:20} {' '.join(f'{value:.4f}' for value in values[::4])}", flush=True)
            if "profile" in options.parts:
                found["profile"] = profile(size, weights)
                for row in found["profile"]:
                    print(f"{name:5} {row['ms']:8.3f} ms {row['times']:7.1f} times  {row['kernel']}", flush=True)
            if "training" in options.parts:
                found["training"] = training(size, weights, options.rounds, options.peers)
                first = median(found["training"]["seq2see"]["rates"])
                for each, row in found["training"].items():
                    rate = median(row["rates"])
                    print(
                        f"{name:5} {each:24} {rate / 1e3:7.1f} k target tokens/s ({min(row['rates']) / 1e3:.0f} to "
                        f"{max(row['rates']) / 1e3:.0f}), we are {first / rate:.2f}x, {row['tflops'] / ceiling:.1%} of "
                        f"the matrix rate, warm-up {row['warm_up_seconds']} s",
                        flush=True,
                    )
            if "decoding" in options.parts:
                found["decoding"] = decoding(size, weights, options.rounds)
                for row in found["decoding"]:
                    mine, theirs = (median(row["rates"][each]) for each in ("seq2see", "Hugging Face"))
                    print(
                        f"{name:5} batch {row['batch']:<3} beam {row['beam']}: {mine:9.0f} tokens/s, Hugging Face "
                        f"{theirs:9.0f}: {mine / theirs:.1f}x; {row['gigabytes_per_second']:.0f} GB/s of "
                        f"{results['gigabytes_per_second']:.0f}",
                        flush=True,
                    )
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
            Path(options.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
