"""Many processes, one training: all that knows of torchrun and of torch.distributed.

`torchrun` starts the same command many times and tells each its *rank*. All ranks hold the same weights and plan the
same batches; each learns from its share of a batch, and gradients are summed. The first rank, 0, is the only one that
writes files and speaks. Without torchrun there is one rank, and everything here does nothing.

Ranks wait for each other in two ways. Where all have as much to do, the updates, they meet in a collective of
torch.distributed, and who keeps the others waiting for longer than `board.TIMEOUT` is given up for lost. Where one may
have more to do than another (only the first prepares a corpus, writes a checkpoint or reads standard input; one finds
longer sentences, or a slower disk), they meet on a notice board first, as long as it takes: each rank's heart beats
there, and only one whose heart has stood still for as long is lost.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from seq2see.distributed import board
from seq2see.errors import LostError, OnlyHereError, PassingError, SettingError
from seq2see.machine import Stop, Stopped, is_out_of_memory

if TYPE_CHECKING:
    from torch import Tensor

START_TIMEOUT = timedelta(minutes=10)
"""As `board.TIMEOUT`, while processes start, which takes as long as the slowest disk needs to read PyTorch."""
BUCKET_NUMBERS = 25_000_000
"""Of gradients summed in one go, 100 MB: few enough goes that their start costs nothing, and no second copy of all."""
Result = TypeVar("Result")


class _MemoryHereError(OnlyHereError, PassingError):
    """Of one machine, and perhaps not the next time."""


_group: board.Group | None = None
_boards: list[Any] = []
"""One for the life of the process: it may be its only keeper."""


def from_torchrun() -> tuple[int, int]:
    """(rank, number of ranks) as torchrun says in the environment; (0, 1) where it did not start us."""
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        raise SettingError("RANK and WORLD_SIZE in the environment are torchrun's: expected numbers") from None


def rank() -> int:
    return 0 if _group is None else _group.rank


def world() -> int:
    """The number of ranks."""
    return 1 if _group is None else _group.world


def is_first() -> bool:
    """Whether this is the rank that writes and speaks."""
    return rank() == 0


def alone() -> bool:
    return world() == 1


def may_speak(problem: Exception) -> bool:
    """Whether this process is to say what went wrong: the first for all, another what only it can know.

    Where a process was lost, that may be the first, so that the second speaks as well.
    """
    speakers = ("0", "1") if isinstance(problem, LostError) else ("0",)
    return isinstance(problem, OnlyHereError) or os.environ.get("RANK", "0") in speakers


def check_restarts(resume: bool, force: bool) -> None:
    """Refuse what would go wrong when torchrun starts the same command again: after a loss, or for another machine."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    if force:
        raise SettingError(
            "--force: torchrun may start a training again, which would then throw away what it has trained. Remove the "
            "run folder yourself, and use --resume"
        )
    if not resume and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise SettingError("torchrun --max-restarts starts the same command again. Add --resume, so that it goes on")


def patience_with_locks() -> int:
    """Seconds to wait for the run folder: on a shared disk, a machine that was lost may hold it for a while."""
    return 120 if "TORCHELASTIC_RUN_ID" in os.environ else 0


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Join the other processes that torchrun started; nothing where it did not."""
    global _group
    number, count = from_torchrun()
    if count == 1 or _group is not None:
        yield
        return
    _group = _start(number, count)
    try:
        yield
        _stop()
    except BaseException as problem:
        _group.fail(problem)
        raise
    finally:
        _group.leave()
        _group = None


def _start(number: int, count: int) -> board.Group:
    import torch
    import torch._dynamo  # later, as FSDP does it, it would keep our group, whose threads then outlive Python
    from torch import distributed
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if torch.cuda.is_available():
        _take_card(torch.cuda.device_count())
    try:
        if not _boards:
            _boards.append(next(rendezvous("env://", timeout=START_TIMEOUT))[0])
        ours = PrefixStore(board.find_each_other(_boards[0], number, count), _boards[0])
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
            f"the processes of this training do not find each other ({board.shortly(problem)}). Start them with "
            "torchrun"
        ) from None
    return board.Group(number, count, ours)


def _take_card(cards: int) -> None:
    """The card of this process, the same number on its machine."""
    import torch

    number, count = (
        int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
    )
    if max(count, number + 1) > cards:
        problem = f"more processes on this machine than cards, {cards}. Start torchrun with --nproc-per-node {cards}"
        raise (SettingError if number else OnlyHereError)(problem)  # one speaks for its machine
    torch.cuda.set_device(number)


def _stop() -> None:
    from torch import distributed

    distributed.destroy_process_group()


@contextlib.contextmanager
def _with_all() -> Iterator[None]:
    """Around collectives: when one fails, it is since another rank is gone."""
    try:
        yield
    except RuntimeError as problem:
        raise board.lost(board.shortly(problem)) from problem


# Where only the first rank works


def first_does(work: Callable[[], Any]) -> Any:
    """What the first rank's `work` gives (JSON), on every rank; the others wait for it as long as it takes."""
    if _group is None:
        return work()
    import torch
    from torch import distributed

    text = bytearray(json.dumps(work()).encode()) if _group.rank == 0 else bytearray()
    _group.meet()
    size = torch.tensor([len(text)])
    with _with_all():
        distributed.broadcast(size, 0)
        data = torch.frombuffer(text, dtype=torch.uint8) if text else torch.zeros(int(size), dtype=torch.uint8)
        distributed.broadcast(data, 0)
    return json.loads(bytes(data.numpy()))


def after_first(work: Callable[[], Result]) -> Result:
    """`work` on every rank, on the first one first: the others find what it has left."""
    found = [work()] if is_first() else []
    first_does(lambda: None)
    return found[0] if found else work()


# Where all work


def from_all(value: Any) -> list[Any]:
    """The values (JSON) of all ranks, on every rank."""
    if _group is None:
        return [value]
    import torch
    from torch import distributed

    text = bytearray(json.dumps(value).encode())
    _group.meet()
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(_group.world)]
    with _with_all():
        distributed.all_gather(sizes, torch.tensor([len(text)]))
        longest = max(map(int, sizes))
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
        padded = torch.frombuffer(text.ljust(longest), dtype=torch.uint8)
        distributed.all_gather(parts, padded)
    return [json.loads(bytes(part.numpy())) for part in parts]  # blanks after it do not matter to JSON


def dealt(lengths: Sequence[int], hands: int) -> list[list[int]]:
    """Places of pieces of work in so many shares: all get as much, long and short ones."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    return [order[number::hands] for number in range(hands)]


def put_back(parts: Sequence[Sequence[Result]], places: list[list[int]]) -> list[Result]:
    """What became of the pieces that were `dealt`, share by share, in the order of the pieces."""
    found = {at: each for part, own in zip(parts, places, strict=True) for at, each in zip(own, part, strict=True)}
    return [found[at] for at in range(len(found))]


def largest(number: float) -> float:
    """Of the numbers that all ranks bring."""
    if _group is None:
        return number
    import torch
    from torch import distributed

    numbers = torch.tensor([number], dtype=torch.float64)
    with _with_all():
        distributed.all_reduce(numbers, distributed.ReduceOp.MAX)
    return float(numbers)


GO_ON, MEMORY, STOP = range(3)


@contextlib.contextmanager
def all_or_none(stop: Stop | None = None) -> Iterator[None]:
    """Around work without collectives that changes nothing yet: if one rank gives it up, all do.

    A stop that one was asked for, or memory that ran out on one, is raised on all.

    Args:
        stop: for work that may take one rank much longer than another: left at once by who is asked to stop, by all
            others soon after.
    """
    at_once = contextlib.nullcontext() if stop is None else stop.at_once()
    if _group is None:
        with at_once:
            yield
        return
    problem: Exception | None = None
    with contextlib.nullcontext() if stop is None else _group.leaving_together(stop):
        try:
            with at_once:
                yield
        except (Stopped, MemoryError, RuntimeError) as found:
            if not isinstance(found, Stopped) and not is_out_of_memory(found):
                raise
            problem = found
        if stop is not None:
            _group.meet()
    verdict = largest(GO_ON if problem is None else STOP if isinstance(problem, Stopped) else MEMORY)
    if verdict == STOP:
        raise Stopped
    if verdict == MEMORY:
        raise problem or MemoryError("on another rank")


@contextlib.contextmanager
def no_way_back() -> Iterator[None]:
    """Around work that all ranks do or the training ends: who cannot, cannot leave the others waiting."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        if alone() or not is_out_of_memory(problem):
            raise
        raise _MemoryHereError(
            f"memory is used up in process {rank()}. Lower training.micro_batch_tokens, go on with --resume"
        ) from problem


def sum_gradients(weights: Iterable["Tensor"]) -> None:
    """Give every rank the sum of all ranks' gradients, the same to the bit, in a few large pieces."""
    if alone():
        return
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
        sum_up(flat)
        for gradient, part in zip(bucket, torch.split(flat, [each.numel() for each in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def sum_up(numbers: "Tensor") -> None:
    """Replace a tensor by the sum of all ranks' tensors."""
    if alone():
        return
    from torch import distributed

    with _with_all():
        distributed.all_reduce(numbers)


def take_from_first(tensors: Iterable["Tensor"]) -> None:
    """Replace tensors by those of the first rank."""
    if _group is None:
        return
    import torch
    from torch import distributed

    _group.meet()  # from a checkpoint that each has read from its disk
    with _with_all(), torch.no_grad():
        for tensor in tensors:
            distributed.broadcast(tensor, 0)


def throw_dice(seed: int, step: int) -> None:
    """Give each rank its own random numbers for a step: none are kept, so that any number of ranks may go on."""
    if alone():
        return
    import numpy as np
    import torch

    torch.manual_seed(int(np.random.SeedSequence((seed, step, rank())).generate_state(1, np.uint64)[0]))
