"""The search of `search.py` in fixed shapes: on a GPU a step is captured once in a CUDA graph ("recorded") and
replayed.

Each of B slots holds one sentence, which may be at any step; when it is finished, its slot receives the next one.
Python checks only every few steps which sentences are finished. A sentence gets the same result in any batch, except
that matrix multiplications with more rows may round differently.
"""

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.config import Decoding
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.search import NEVER, Hypotheses, best_tokens, penalty_of
from seq2see.kernels import loading
from seq2see.model.interface import Seq2Seq

MOST_ROWS = 2048
"""Maximum number of hypotheses (slots times beam width) in one `Slots`, if it has more than one slot."""
MOST_PLACES = 1 << 17
"""Maximum number of source tokens, and of target tokens of all hypotheses, for which one `Slots` has room, if it has
more than one slot.
"""
SHORTEST = 16
"""Minimum number of source or target tokens for which a slot has room in `RecordedSearch.search`; other sizes are
larger powers of two.
"""
ENTERING = (4, 32)
"""Numbers of sentences that one CUDA graph puts into slots; a smaller number of sentences is padded."""
UNASKED = 4
"""Maximum number of decoding steps between two checks for finished sentences; at a check, the CPU waits for the GPU."""
MOST_KEPT, KEPT_SHARE = 16, 1 / 8
"""Maximum number of `Slots` that a `RecordedSearch` keeps for later searches, and the share of the GPU's total memory
above which the least recently used are dropped before new ones are made; only their decoder states are counted.
"""
WIDEST = 32
"""Maximum beam width of a search by CUDA graphs, since the kernels hold all hypotheses of a sentence in on-chip memory;
wider beams are searched without CUDA graphs.
"""


class Slots:
    """A set of B slots, each with memory for a sentence of up to S source tokens and its W hypotheses of up to T target
    tokens; and the CUDA graphs of a search in them.

    The length penalty and the stopping rule are part of the CUDA graph of a step, so that each combination of them
    needs its own `Slots`.
    """

    def __init__(self, model: Seq2Seq, B: int, S: int, T: int, settings: Decoding) -> None:
        device, W = next(model.parameters()).device, settings.beam
        self._model, self._sentences, self._rows = model, B, B * S
        self.hypotheses = Hypotheses(B, W, T, penalty_of(settings), settings.stop_against, device)
        state = model.fixed_state(self.hypotheses.step_B, W, S, T)
        assert state is not None, "this model has no state of fixed shapes"
        self.state = state
        self._entering: dict[tuple[int, int], Tensor] = {}
        """Buffers on the GPU from which the CUDA graphs of `enter` read, by numbers of sentences and tokens."""
        # Of all sentences at once: their tokens and the places of these, where each begins, and its limit.
        self._given = torch.zeros(2 * B * S + 2 * B + 1, dtype=torch.int64, device=device)
        self._recorded: dict[object, torch.cuda.CUDAGraph | None] = {}
        self._read: list[Tensor] = []
        """Tensors that CUDA graphs read, kept alive here because the model may replace them."""

    def fill(self, slots: Sequence[int], tasks: Sequence[Task]) -> None:
        """Put one sentence into each of the given slots, without a CUDA graph."""
        device = self._given.device
        source_N = torch.tensor([token for task in tasks for token in task.source]).to(device, non_blocking=True)
        offsets = torch.tensor([0, *(len(task.source) for task in tasks)]).cumsum(0)
        started = self._model.start(self._model.encode(source_N, offsets))
        here_b = torch.tensor(slots, device=device)
        self.state.fill(here_b, started)
        self.hypotheses.begin(here_b, torch.tensor([task.limit for task in tasks], device=device))
        self.hypotheses.force(slots, [task.prefix for task in tasks])

    def fill_all(self, tasks: Sequence[Task]) -> None:
        """Put sentences into the first slots and empty all others; on a GPU, by a CUDA graph."""
        B, N = self._sentences, self._rows
        lengths = np.array([len(task.source) for task in tasks])
        given = np.zeros(len(self._given), np.int64)
        given[: lengths.sum()] = np.concatenate([task.source for task in tasks])
        given[N : N + lengths.sum()] = np.concatenate([np.arange(length) for length in lengths])
        given[2 * N + 1 : 2 * N + 1 + B] = lengths.sum()
        given[2 * N + 1 : 2 * N + 1 + len(tasks)] = lengths.cumsum()
        given[2 * N + 1 + B : 2 * N + 1 + B + len(tasks)] = [task.limit for task in tasks]
        self._given.copy_(torch.from_numpy(given))
        self._replay("fill", self._begin_all)
        self.hypotheses.force(range(len(tasks)), [task.prefix for task in tasks])

    def enter(self, slots: Sequence[int], tasks: Sequence[Task]) -> None:
        """Put one sentence into each of the given slots, like `fill`; on a GPU, by CUDA graphs."""
        if not self._given.is_cuda:
            self.fill(slots, tasks)
            return
        most = ENTERING[-1]
        for first in range(0, len(slots), most):
            self._enter_some(np.array(slots[first : first + most]), tasks[first : first + most])
        self.hypotheses.force(slots, [task.prefix for task in tasks])

    def _enter_some(self, slots: NDArray[np.int64], tasks: Sequence[Task]) -> None:
        """Put at most `ENTERING[-1]` sentences into slots by one CUDA graph.

        Sentences (the first is repeated) and tokens are padded to numbers for which there is a graph.
        """
        lengths = np.array([len(task.source) for task in tasks])
        starts, total = lengths.cumsum() - lengths, int(lengths.sum())
        F = next(size for size in ENTERING if size >= len(tasks))
        N = F * max(16, _power_of_two(-(-total // F)))
        spare = F - len(tasks)
        parts = [
            np.pad(np.concatenate([task.source for task in tasks]), (0, N - total)),
            np.pad(np.concatenate([np.arange(length) for length in lengths]), (0, N - total)),
            np.pad(np.append(starts, total), (0, spare), mode="edge"),
            *(
                np.pad(each, (0, spare), constant_values=each[0])
                for each in (starts, lengths, slots, np.array([task.limit for task in tasks]))
            ),
        ]
        given = torch.from_numpy(np.concatenate(parts).astype(np.int64))
        if (F, N) not in self._entering:
            self._entering[F, N] = torch.zeros_like(given, device=self._given.device)
        self._entering[F, N].copy_(given)
        self._replay(("enter", F, N), partial(self._enter, F, N))

    def _enter(self, F: int, N: int) -> None:
        parts = torch.split(self._entering[F, N], [N, N, F + 1, F, F, F, F])
        source_N, places_N, rows_F1, starts_F, lengths_F, slots_F, limits_F = parts
        self.state.fill_packed(source_N, places_N, rows_F1, starts_F, lengths_F, slots_F)
        self.hypotheses.begin(slots_F, limits_F)

    def _begin_all(self) -> None:
        B, N = self._sentences, self._rows
        source_N, places_N, rows_B1, limits_B = torch.split(self._given, [N, N, B + 1, B])
        self.state.fill_packed(source_N, places_N, rows_B1, rows_B1[:-1], rows_B1.diff())
        self.hypotheses.begin(slice(None), limits_B)

    def advance(self) -> None:
        """Extend every hypothesis of every unfinished sentence by one token; on a GPU, by a CUDA graph."""
        self._replay(self.hypotheses.is_forced, self._step)

    def _step(self) -> None:
        self.hypotheses.advance(self._model, self.state, _best_tokens)

    def _replay(self, name: object, steps: Callable[[], None]) -> None:
        """Run an operation: on a GPU the first time directly, which compiles its kernels, then by a CUDA graph.

        Args:
            name: key of the graph; on a CPU there is none.
        """
        if not self._given.is_cuda or name not in self._recorded:
            self._recorded[name] = None
            steps()
            return
        graph = self._recorded[name]
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                steps()
            self._recorded[name] = graph  # not before it is complete
            self._read += [self._model.source_embedding.waves, self._model.target_embedding.waves]
        graph.replay()


class RecordedSearch:
    """Beam search in `Slots`, on a GPU by CUDA graphs; the most recently used `Slots` are kept for later calls."""

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model
        self._kept: dict[tuple[object, ...], Slots] = {}
        self._busy = threading.Lock()

    def can(self, beam: int) -> bool:
        """Return whether to search by CUDA graphs: the model has Triton kernels for its steps and is not in training
        mode, the beam is at most `WIDEST` wide, and PyTorch is not in deterministic mode.
        """
        if beam > WIDEST or self._model.training or torch.are_deterministic_algorithms_enabled():
            return False
        return self._model.has_step_kernels()

    def forget(self) -> None:
        """Drop all kept `Slots`, which frees their memory."""
        self._kept.clear()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold the lock, so that one search runs at a time; set the device, inference mode and no autocast."""
        here = torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext()
        with self._busy, here, torch.inference_mode(), torch.autocast(self._device.type, enabled=False):
            yield

    def search(self, tasks: Sequence[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return up to `settings.beam` hypotheses for each task, best first."""
        found: list[list[Hypothesis]] = [[] for _ in tasks]
        groups: dict[tuple[int, int], list[int]] = {}
        for index in sorted(range(len(tasks)), key=lambda index: -len(tasks[index].source)):
            task = tasks[index]
            groups.setdefault((_room_for(len(task.source)), _room_for(task.limit)), []).append(index)
        with self.at_work():
            for (S, T), group in groups.items():
                for index, hypotheses in self._in_slots([(index, tasks[index]) for index in group], S, T, settings):
                    found[index] = hypotheses
        return found

    def _in_slots(
        self, tasks: list[tuple[int, Task]], S: int, T: int, settings: Decoding
    ) -> list[tuple[int, list[Hypothesis]]]:
        B = self.most_slots(1 << (len(tasks) - 1).bit_length(), S, T, settings.beam)
        slots = self.slots(B, S, T, settings)
        waiting, free = deque(tasks), list(range(B))[::-1]
        running: dict[int, tuple[int, int]] = {}
        """For each occupied slot, the index of its task and the maximum number of remaining steps."""
        found: list[tuple[int, list[Hypothesis]]] = []
        while waiting or running:
            # A few at once: to encode sentences one by one would cost more than slots that are empty for a moment.
            if waiting and (not running or len(free) >= max(1, B // 8)):
                some = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
                places = [free.pop() for _ in some]
                if running or self._device.type != "cuda":
                    slots.fill(places, [task for _, task in some])
                else:
                    slots.fill_all([task for _, task in some])
                    places = list(range(len(some)))
                    free = list(range(len(some), B))[::-1]
                running |= {slot: (index, task.limit) for slot, (index, task) in zip(places, some, strict=True)}
            steps = min(UNASKED, max(left for _, left in running.values()))
            for _ in range(steps):
                slots.advance()
            running = {slot: (index, left - steps) for slot, (index, left) in running.items()}
            growing = slots.hypotheses.growing_B.tolist()  # waits for the GPU
            done = [slot for slot in sorted(running) if not growing[slot]]
            for slot, hypotheses in zip(done, slots.hypotheses.finished(done).read() if done else [], strict=True):
                found.append((running.pop(slot)[0], hypotheses))
                free.append(slot)
        return found

    @staticmethod
    def most_slots(wanted: int, S: int, T: int, W: int) -> int:
        """Return the number of slots to use: `wanted`, or fewer if they would exceed `MOST_ROWS` or `MOST_PLACES`."""
        return min(wanted, max(1, MOST_ROWS // W), max(1, MOST_PLACES // max(S, W * T)))

    def slots(self, B: int, S: int, T: int, settings: Decoding) -> Slots:
        """Return B slots with room for S source and T target tokens, kept from an earlier call or new."""
        key = (B, settings.beam, S, T, settings.length_penalty, settings.length_formula, settings.stop_against)
        slots = self._kept.pop(key, None)
        if slots is None:
            while len(self._kept) >= MOST_KEPT or sum(each.state.bytes for each in self._kept.values()) > self._room:
                del self._kept[next(iter(self._kept))]
            slots = Slots(self._model, B, S, T, settings)
        self._kept[key] = slots
        return slots

    @property
    def _device(self) -> torch.device:
        return next(self._model.parameters()).device

    @property
    def _room(self) -> float:
        """Return the bytes of decoder states of kept `Slots` above which old ones are dropped for new ones."""
        if self._device.type != "cuda":
            return math.inf
        return KEPT_SHARE * torch.cuda.get_device_properties(self._device).total_memory


def _best_tokens(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the same as `search.best_tokens`, computed by a Triton kernel if it is available."""
    if scores_RV.is_cuda and loading.are_available(scores_RV):
        return loading.steps().best_words(scores_RV, count, NEVER)  # type: ignore[no-any-return]
    return best_tokens(scores_RV, count)


def _room_for(length: int) -> int:
    """Return a length rounded up to a power of two, at least `SHORTEST`: few sizes of slots serve all sentences."""
    return max(SHORTEST, _power_of_two(length))


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less than a number."""
    return 1 << (number - 1).bit_length()
