"""The machine: its name, what it can hold, and whether it must give the same bits each time."""

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from seq2see import memory
from seq2see.config import Settings
from seq2see.errors import SettingError
from seq2see.memory import is_used_up
from seq2see.model.build import count_parameters

Result = TypeVar("Result")


def name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'' if threads == 1 else 's'}"


def micro_tokens(device: torch.device) -> int:
    """Tokens in one pass: what keeps a processor's caches, or a card, busy."""
    return 65_536 if device.type == "cuda" else 4096


def check_memory(settings: Settings, device: torch.device) -> None:
    """Refuse a model whose weights, gradients and Adam's two means cannot fit, before anything is made."""
    data = settings.data
    weights = count_parameters(settings.model, data.source_vocabulary, data.target_vocabulary)
    needed = 16 * weights
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory.free()
    if needed > free:
        raise SettingError(
            f"a model of {weights:,} weights needs {needed / 2**30:,.1f} GiB to train, "
            f"{free / 2**30:,.1f} GiB are free: choose a smaller preset (small, tiny) or a smaller model.d_model"
        )


def in_smaller_batches(work: Callable[[int], Result], tokens: int) -> Result:
    """`work(tokens)`, which changes nothing, with half as many tokens each time that memory runs out."""
    while True:
        try:
            return work(tokens)
        except (MemoryError, RuntimeError) as problem:
            if not is_used_up(problem) or tokens < 16:
                raise
            traceback.clear_frames(problem.__traceback__)  # they hold on to all that memory
        torch.cuda.empty_cache()
        tokens //= 2


@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Have torch choose only kernels that add up in the same order each time; an error where it has none."""
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as problem:
        operation, found, _ = str(problem).partition(" does not have a deterministic implementation")
        if not found:
            raise
        raise SettingError(
            f"training.deterministic: {operation} gives other bits each time on this machine, and has no other form. "
            "Go on without: --resume --set training.deterministic=false"
        ) from None
    finally:
        torch.use_deterministic_algorithms(before)
