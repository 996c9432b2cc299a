"""Account for every millisecond of a training step on a GPU: `python -m bench.gpu_profile [--sizes base big]`.

Steps of `bench.gpu` (25,000 source and 25,000 target tokens) are profiled by kernel, and the kernels are put into
groups by their names. What the GPU does in no kernel is idle time. Beside each group is its lower bound: for matrix
multiplications their FLOPs at the measured rate of large ones. Writes one JSON object to `--out`, and prints tables.
"""

import argparse
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench import gpu, prepare

GROUPS = [
    ("matrix multiplications", r"nvjet|gemm|cutlass|xmma|sm90_"),
    ("split-K sums of them", r"splitK|reduce_1Block"),
    ("attention, forward", r"^_forward"),
    ("attention, backward", r"^_backward_"),
    ("residual, dropout and norm", r"_sum_and_norm"),
    ("bias and column sums", r"_partial_sums|_sum_of_parts|reduce_kernel.*(BFloat16|c10::BFloa)"),
    ("rotary positions", r"^_rotate"),
    ("gradient of the loss", r"_to_gradients"),
    ("optimizer", r"multi_tensor_apply.*(Adam|adam)"),
    ("casts of all weights and gradients", r"multi_tensor_apply.*[Cc]opy"),
    ("gradient norm, clipping, zeroing", r"multi_tensor_apply|lpnorm|LpNorm"),
    ("embeddings", r"embedding|indexSelect|index_elementwise|gather|scatter|index_put|radix|Radix|cub::"),
    ("dropout of embeddings", r"fused_dropout|masked_scale"),
    ("activation", r"threshold|relu|Relu|launch_clamp|clamp"),
    ("casts and copies", r"copy|Memcpy|CatArray"),
    ("zeros", r"Memset|FillFunctor"),
    ("other sums", r"reduce_kernel"),
    ("other elementwise", r"elementwise"),
    ("random numbers", r"random|distribution"),
]


def group_of(kernel: str) -> str:
    return next((name for name, pattern in GROUPS if re.search(pattern, kernel)), "others")


def profile(size: Any, weights: Path, ceiling: float) -> dict[str, Any]:
    """Return milliseconds of a step by group and by kernel, and the time of a step without the profiler."""
    todo, candidate = gpu._steps(size), gpu._ours(size, weights)
    for _ in range(3):
        for batch in todo:
            candidate.train(batch)
    seconds = min(gpu._seconds(lambda: [candidate.train(batch) for batch in todo]) for _ in range(5))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for batch in todo:
            candidate.train(batch)
        torch.cuda.synchronize()
    kernels = [
        {
            "group": group_of(each.key),
            "kernel": each.key,
            "ms": each.self_device_time_total / 1e3 / len(todo),
            "times": each.count / len(todo),
        }
        for each in seen.key_averages()
        if each.self_device_time_total > 0
    ]
    groups: dict[str, dict[str, float]] = {}
    for row in kernels:
        sums = groups.setdefault(row["group"], {"ms": 0.0, "times": 0.0})
        sums["ms"] += row["ms"]
        sums["times"] += row["times"]
    step = 1e3 * seconds / len(todo)
    busy = sum(row["ms"] for row in groups.values())
    groups["GPU idle (step less all kernels)"] = {"ms": step - busy, "times": 0.0}
    floor = 1e3 * sum(gpu._flops(size, batch) for batch in todo) / len(todo) / (ceiling * 1e12)
    gpu._clear()
    return {
        "step_ms": step,
        "kernels_ms": busy,
        "matrix_floor_ms": floor,
        "groups": dict(sorted(groups.items(), key=lambda item: -item[1]["ms"])),
        "kernels": sorted(kernels, key=lambda row: -row["ms"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=["base"], choices=list(gpu.SIZES))
    parser.add_argument("--out", type=Path, default=Path(".bench/gpu_profile.json"))
    options = parser.parse_args()
    ceiling = gpu.measure_products()
    results: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "tflops": ceiling}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sizes:
            weights = prepare.random_run(Path(folder) / name, gpu.SIZES[name])
            found = results[name] = profile(gpu.SIZES[name], weights, ceiling)
            print(
                f"{name}: a step takes {found['step_ms']:.2f} ms, its kernels {found['kernels_ms']:.2f} ms; "
                f"lower bound of its FLOPs at {ceiling:.0f} TFLOP/s: {found['matrix_floor_ms']:.2f} ms "
                f"({found['matrix_floor_ms'] / found['step_ms']:.1%})"
            )
            for group, row in found["groups"].items():
                print(f"  {row['ms']:8.3f} ms {row['times']:7.1f} times  {group}")
            for row in found["kernels"][:45]:
                print(f"    {row['ms']:8.3f} ms {row['times']:7.1f} times  [{row['group']}] {row['kernel'][:150]}")
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
