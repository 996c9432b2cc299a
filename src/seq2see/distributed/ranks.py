"""Many processes for one training, evaluation or translation: all that depends on torchrun and torch.distributed.

`torchrun` starts the same command many times and tells each its *rank*. In training, all ranks have the same weights
and plan the same batches; each computes gradients for its share of a batch, and the gradients are summed. The first
rank, 0, is the only one that writes files and prints, except errors (`may_speak`). Without torchrun there is one rank,
`machine.ALONE`.

Ranks wait for each other in two ways. In updates, where all have equal work, they meet in a collective of
torch.distributed, and a rank that keeps the others waiting for longer than `board.TIMEOUT` counts as lost. Where one
may have more work than another (only the first prepares a corpus, writes a checkpoint or reads standard input), they
first meet in a shared store (`board`), for as long as it takes: each rank sends heartbeats there, and only a rank that
has sent none for `board.TIMEOUT` is lost.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from seq2see.distributed import board
from seq2see.distributed.board import Board
from seq2see.errors import LostError, OnlyHereError, PassingError, SettingError
from seq2see.machine import ALONE, Group, Stop, Stopped, is_out_of_memory

if TYPE_CHECKING:
    from torch import Tensor

START_TIMEOUT = timedelta(minutes=10)
"""Maximum time to connect to the shared store and, where the first rank hosts it, for all ranks to connect; after that,
the start fails. It is long because some ranks may have to read PyTorch from a slow disk first.
"""
BUCKET_NUMBERS = 25_000_000
"""Number of gradient elements up to which tensors share one all-reduce: 100 MB in float32, enough for full throughput
without a copy of all gradients.
"""


class _MemoryHereError(OnlyHereError, PassingError):
    """Memory ran out in this process, which reports it itself; a repetition may succeed."""


_stores: list[Any] = []
"""Stores of torch.distributed, kept until this process ends, since it may host them for the other processes."""


def from_torchrun() -> tuple[int, int]:
    """Return rank and number of ranks as torchrun sets them in the environment; (0, 1) without torchrun."""
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        raise SettingError(
            "the environment variables RANK and WORLD_SIZE must be integers. Start with torchrun, or unset both"
        ) from None


def may_speak(problem: Exception) -> bool:
    """Return whether this process prints an error: the first rank does, and others only their own (`OnlyHereError`).

    If a process was lost (`LostError`), it may be the first, so the second rank prints as well.
    """
    speakers = ("0", "1") if isinstance(problem, LostError) else ("0",)
    return isinstance(problem, OnlyHereError) or os.environ.get("RANK", "0") in speakers


def check_restarts(resume: bool, force: bool) -> None:
    """Under torchrun, raise an error for --force and, if torchrun restarts failed commands, for a missing --resume."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    if force:
        raise SettingError(
            "--force: torchrun may start a training again, which would then delete what it has trained. Remove the "
            "run folder yourself, and use --resume"
        )
    if not resume and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise SettingError(
            "torchrun --max-restarts starts the same command again. Add --resume, so that it resumes the run"
        )


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """Join the other processes that torchrun started and yield the group; without torchrun, a group of one. Inside
    another `joined`, the same group is yielded.
    """
    global _joined
    number, count = from_torchrun()
    if count == 1 or _joined is not None:
        yield _joined or ALONE
        return
    notices = _start(number, count)
    _joined = Ranks(number, count, notices)
    try:
        yield _joined
        _stop()
    except BaseException as problem:
        notices.fail(problem)
        raise
    finally:
        notices.leave()
        _joined = None


def _start(number: int, count: int) -> Board:
    import torch
    import torch._dynamo  # later, as FSDP does it, it would keep our group, whose threads then outlive Python
    from torch import distributed
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if torch.cuda.is_available():
        choose_gpu(torch.cuda.device_count())
    try:
        if not _stores:
            _stores.append(next(rendezvous("env://", timeout=START_TIMEOUT))[0])
        ours = PrefixStore(board.find_each_other(_stores[0], number, count), _stores[0])
        ours.add(f"beats of {number}", 1)  # before all are there: who looks for it finds it
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=PrefixStore("collectives", ours),
            rank=number,
            world_size=count,
            timeout=board.TIMEOUT,
        )
    except (RuntimeError, ValueError) as problem:
        raise SettingError(
            f"the processes do not find each other ({board.shortly(problem)}). Start all of them with torchrun"
        ) from None
    return Board(number, count, ours)


def choose_gpu(gpus: int) -> None:
    """Select the GPU whose number is the local rank; raise an error if this machine has more processes than GPUs."""
    import torch

    number, count = (
        int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
    )
    if max(count, number + 1) > gpus:
        problem = f"this machine has more processes than GPUs ({gpus}). Start torchrun with --nproc-per-node {gpus}"
        raise (SettingError if number else OnlyHereError)(problem)  # one process prints for its machine
    torch.cuda.set_device(number)


def _stop() -> None:
    from torch import distributed

    distributed.destroy_process_group()


@contextlib.contextmanager
def _with_all() -> Iterator[None]:
    """Convert a RuntimeError of a collective into a `LostError`: another rank was lost."""
    try:
        yield
    except RuntimeError as problem:
        raise board.lost(board.shortly(problem)) from problem


class Ranks(Group):
    """The group of all processes that torchrun started."""

    patience = 120
    """Seconds to wait for the lock of a run folder, which a lost machine may still hold on a shared disk."""
    echo = 2.0
    """Seconds within which a repeated signal counts as the same one: torchrun may forward it as well."""

    def __init__(self, rank: int, world: int, board: Board) -> None:
        self.rank, self.world, self._board = rank, world, board

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        import torch
        from torch import distributed

        text = bytearray(json.dumps(work()).encode()) if self.is_first else bytearray()
        self._board.meet()
        size = torch.tensor([len(text)])
        with _with_all():
            distributed.broadcast(size, 0)
            data = torch.frombuffer(text, dtype=torch.uint8) if text else torch.zeros(int(size), dtype=torch.uint8)
            distributed.broadcast(data, 0)
        return json.loads(bytes(data.numpy()))

    def all_gather(self, value: Any) -> list[Any]:
        import torch
        from torch import distributed

        text = bytearray(json.dumps(value).encode())
        self._board.meet()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        with _with_all():
            distributed.all_gather(sizes, torch.tensor([len(text)]))
            longest = max(map(int, sizes))
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
            padded = torch.frombuffer(text.ljust(longest), dtype=torch.uint8)
            distributed.all_gather(parts, padded)
        return [json.loads(bytes(part.numpy())) for part in parts]  # JSON ignores the spaces after it

    def largest(self, number: float) -> float:
        import torch
        from torch import distributed

        numbers = torch.tensor([number], dtype=torch.float64)
        with _with_all():
            distributed.all_reduce(numbers, distributed.ReduceOp.MAX)
        return float(numbers)

    @contextlib.contextmanager
    def all_or_none(self, stop: Stop | None = None) -> Iterator[None]:
        problem: Exception | None = None
        with contextlib.nullcontext() if stop is None else self._board.leaving_together(stop):
            try:
                with super().all_or_none(stop):
                    yield
            except (Stopped, MemoryError, RuntimeError) as found:
                if not isinstance(found, Stopped) and not is_out_of_memory(found):
                    raise
                problem = found
            if stop is not None:
                self._board.meet()
        verdict = self.largest(CONTINUE if problem is None else STOP if isinstance(problem, Stopped) else MEMORY)
        if verdict == STOP:
            raise Stopped
        if verdict == MEMORY:
            raise problem or MemoryError("on another rank")

    @contextlib.contextmanager
    def all_must_finish(self) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as problem:
            if not is_out_of_memory(problem):
                raise
            raise _MemoryHereError(
                f"out of memory in process {self.rank}. Resume with --resume and a lower training.micro_batch_tokens"
            ) from problem

    def sum_gradients(self, weights: Iterable["Tensor"]) -> None:
        import torch

        learning = [weight for weight in weights if weight.requires_grad]
        for weight in learning:
            if weight.grad is None:  # a rank that got no pair of a small batch
                weight.grad = torch.zeros_like(weight)
        gradients = [weight.grad for weight in learning if weight.grad is not None]
        while gradients:
            bucket = [gradients.pop()]
            room = BUCKET_NUMBERS - bucket[0].numel()
            while gradients and gradients[-1].numel() <= room:
                bucket.append(gradients.pop())
                room -= bucket[-1].numel()
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            self.all_reduce(flat)
            for gradient, part in zip(bucket, torch.split(flat, [each.numel() for each in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def all_reduce(self, numbers: "Tensor") -> None:
        from torch import distributed

        with _with_all():
            distributed.all_reduce(numbers)

    def broadcast(self, tensors: Iterable["Tensor"]) -> None:
        import torch
        from torch import distributed

        self._board.meet()  # each may have read a checkpoint from its own disk
        with _with_all(), torch.no_grad():
            for tensor in tensors:
                distributed.broadcast(tensor, 0)

    def throw_dice(self, seed: int, step: int) -> None:
        import numpy as np
        import torch

        torch.manual_seed(int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1, np.uint64)[0]))


CONTINUE, MEMORY, STOP = range(3)
_joined: Ranks | None = None
Result = TypeVar("Result")


def dealt(lengths: Sequence[int], hands: int) -> list[list[int]]:
    """Return, for each of `hands` processes, the indices of its items, so that all get a similar mix of `lengths`."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    return [order[number::hands] for number in range(hands)]


def put_back(parts: Sequence[Sequence[Result]], places: list[list[int]]) -> list[Result]:
    """Return the results of all processes, one of `parts` each, in the order of the items; `places` is from `dealt`."""
    found = {at: each for part, own in zip(parts, places, strict=True) for at, each in zip(own, part, strict=True)}
    return [found[at] for at in range(len(found))]
