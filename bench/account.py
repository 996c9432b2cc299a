"""Where the time of a training step on a CPU goes: `python -m bench.account [--size base]`; prints a table.

Every operation of one thread is timed by the CPU time of the thread, so that other programs do not count, and compared
with its lower bound: the larger of its multiplications at the speed of a large matrix multiplication, and of the bytes
that it reads and writes at the speed of copying memory. One thread, since waiting for threads belongs to no operation.
"""

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench import work
from seq2see.config import Model, Training
from seq2see.kernels import threads
from seq2see.machine import keep_freed_memory
from seq2see.model.build import build
from seq2see.training import loop
from seq2see.training.optimizer import Adam

sys.path.insert(0, str(Path(__file__).parent))  # candidates are programs of their own elsewhere

from candidates.ours import packed

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "addmm_"),
    "attention (fused)": ("_scaled_dot_product_flash_attention_for_cpu",),
    "attention, backward": ("_scaled_dot_product_flash_attention_for_cpu_backward",),
    "layer norm, both ways": ("native_layer_norm", "native_layer_norm_backward"),
    "optimizer": ("_fused_adamw_", "_fused_adam_", "_foreach_norm", "linalg_vector_norm"),
    "embeddings, gathering rows": ("embedding", "index_select", "index", "index_add_", "index_put_", "gather"),
    "softmax and exponentials": ("_softmax", "_log_softmax", "logsumexp", "exp", "exp_", "log"),
    "sums": ("sum", "mean"),
    "copies": ("copy_", "clone", "cat", "_to_copy", "constant_pad_nd"),
}
ELSE = "element by element (dropout, ReLU, residual sums, gradients)"


class Account(TorchDispatchMode):
    """Sums of time, multiplications and bytes of all operations inside, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.thread_time()
        result = func(*args, **(kwargs or {}))
        taken = time.thread_time() - began
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        name = func.overloadpacket.__name__
        row = self.sums[name]
        row[0] += taken
        if func.is_view or taken == 0:
            return result
        if name in KINDS["matrix products"] and isinstance(result, Tensor):
            left = next(each for each in tensors[-3 if len(tensors) < 4 else 1 :] if each.dim() == result.dim())
            row[1] += 2 * result.numel() * left.shape[-1]
        row[2] += sum(each.numel() * each.element_size() for each in {id(each): each for each in tensors}.values())
        return result


def rates() -> tuple[float, float]:
    """Return the operations of a large matrix product, and the bytes of copying, in a second of one thread."""
    a, b, large = torch.randn(2048, 2048), torch.randn(2048, 2048), torch.ones(32 * 2**20)
    found = []
    for deed in (lambda: a @ b, large.clone):
        times = []
        for _ in range(5):
            began = time.thread_time()
            deed()
            times.append(time.thread_time() - began)
        found.append(min(times))
    return 2 * 2048**3 / found[0], 2 * 4 * large.numel() / found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=work.SIZES, default="base")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    size = work.SIZES[options.size]
    torch.manual_seed(1)
    keep_freed_memory()
    shape = Model(
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        d_model=size.d_model,
        heads=size.heads,
        d_ff=size.d_ff,
    )
    model, settings = build(shape, size.vocabulary, size.vocabulary), Training(clip_norm=0.0)
    optimizer = Adam(model.parameters(), settings)
    batches = [packed(batch) for batch in work.batches(size, options.steps)]
    account = Account()
    with threads.using(1):
        loop.update(model, optimizer, [batches[0]], settings, 1e-5)  # memory is got from the system once
        multiplying, copying = rates()
        began = time.thread_time()
        for batch in batches:
            loop.update(model, optimizer, [batch], settings, 1e-5)
        total = time.thread_time() - began  # without the account, which takes time itself
        with account:
            for batch in batches:
                loop.update(model, optimizer, [batch], settings, 1e-5)
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    table: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, (taken, products, bytes_) in account.sums.items():
        row = table[kinds.get(name, ELSE)]
        row[0] += taken
        row[1] += min(taken, max(products / multiplying, bytes_ / copying))
    known = sum(taken for taken, _ in table.values())
    total = max(total, known)
    table["Python, autograd, random numbers of dropout"] = [total - known, 0.0]
    print(f"{options.size}: {total / options.steps:.2f} s of CPU time for an update of {work.BATCH_TOKENS:,} tokens;")
    print(f"{multiplying / 1e9:.0f} GFLOP/s and {copying / 1e9:.0f} GB/s (copying) of one thread\n")
    print("| | share of the time | share at its lower bound | above the lower bound |\n|---|---|---|---|")
    for kind, (taken, floor) in sorted(table.items(), key=lambda item: -item[1][0]):
        print(f"| {kind} | {taken / total:.1%} | {floor / total:.1%} | {(taken - floor) / total:.1%} |")
    floors = sum(floor for _, floor in table.values()) / total
    print(f"| all | 100 % | {floors:.1%} | {1 - floors:.1%} |")
    print(
        "\nlargest operations:",
        ", ".join(
            f"{name} {row[0] / total:.1%}"
            for name, row in sorted(account.sums.items(), key=lambda item: -item[1][0])[:14]
        ),
    )


if __name__ == "__main__":
    main()
