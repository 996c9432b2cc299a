"""The search of `search.py` in fixed shapes: on a GPU a step is recorded once as a CUDA graph and replayed.

B slots hold a sentence each, at whatever step it is; a slot whose sentence is done receives the next one. Only every
few steps Python asks which are done. A sentence gets the same result in any batch, except that matrix multiplications
of more rows may round differently.
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
"""Maximum number of hypotheses that are extended at the same time."""
MOST_PLACES = 1 << 17
"""Maximum number of tokens of all hypotheses together."""
SHORTEST = 16
"""Positions in the smallest storage; the other sizes are powers of two."""
ENTERING = (4, 32)
"""Numbers of sentences that enter slots at once."""
UNASKED = 4
"""Steps between two checks for finished sentences."""
MOST_KEPT, KEPT_SHARE = 16, 1 / 8
"""Sizes whose storage and recorded steps are kept for the next call, and the share of GPU memory they may take."""
WIDEST = 32
"""Maximum number of hypotheses of a sentence; the kernels cannot hold more of them in on-chip memory."""


class Slots:
    """Storage and steps for B sentences of at most S source tokens, W hypotheses each, of at most T target tokens.

    The length penalty and the stopping rule are part of the recorded step, so each combination has slots of its own.
    """

    def __init__(self, model: Seq2Seq, B: int, S: int, T: int, settings: Decoding) -> None:
        device, W = next(model.parameters()).device, settings.beam
        self._model, self._sentences, self._rows = model, B, B * S
        self.hypotheses = Hypotheses(B, W, T, penalty_of(settings), settings.stop_against, device)
        state = model.fixed_state(self.hypotheses.step_B, W, S, T)
        assert state is not None, "this model has no state of fixed shapes"
        self.state = state
        self._entering: dict[tuple[int, int], Tensor] = {}
        """Numbers that `enter` copies to the GPU, by how many sentences and tokens they have room for."""
        # Of all sentences at once: their tokens and the places of these, where each begins, and its limit.
        self._given = torch.zeros(2 * B * S + 2 * B + 1, dtype=torch.int64, device=device)
        self._recorded: dict[object, torch.cuda.CUDAGraph | None] = {}
        self._read: list[Tensor] = []
        """Tables that recorded steps still read after the model has replaced them."""

    def fill(self, slots: Sequence[int], tasks: Sequence[Task]) -> None:
        """Put a sentence into each of these slots."""
        device = self._given.device
        source_N = torch.tensor([token for task in tasks for token in task.source]).to(device, non_blocking=True)
        offsets = torch.tensor([0, *(len(task.source) for task in tasks)]).cumsum(0)
        started = self._model.start(self._model.encode(source_N, offsets))
        here_b = torch.tensor(slots, device=device)
        self.state.fill(here_b, started)
        self.hypotheses.begin(here_b, torch.tensor([task.limit for task in tasks], device=device))
        self.hypotheses.force(slots, [task.prefix for task in tasks])

    def fill_all(self, tasks: Sequence[Task]) -> None:
        """Put sentences into the first slots and empty all others; recorded, so that few sentences take no longer."""
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
        """Put a sentence into each of these slots, as `fill` does; on a GPU this is recorded, too."""
        if not self._given.is_cuda:
            self.fill(slots, tasks)
            return
        most = ENTERING[-1]
        for first in range(0, len(slots), most):
            self._enter_some(np.array(slots[first : first + most]), tasks[first : first + most])
        self.hypotheses.force(slots, [task.prefix for task in tasks])

    def _enter_some(self, slots: NDArray[np.int64], tasks: Sequence[Task]) -> None:
        """Lay sentences into room for F of them with N tokens; those to spare are the first one again, in its slot."""
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
        """Add one more token to every hypothesis of every slot."""
        self._replay(self.hypotheses.is_forced, self._step)

    def _step(self) -> None:
        self.hypotheses.advance(self._model, self.state, _best_tokens)

    def _replay(self, name: object, steps: Callable[[], None]) -> None:
        """Replay recorded steps. Kernels are compiled and libraries start on their first use, unrecorded."""
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
    """Searches in slots, and keeps those of the sizes that were used last."""

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model
        self._kept: dict[tuple[object, ...], Slots] = {}
        self._busy = threading.Lock()

    def can(self, beam: int) -> bool:
        """Return whether steps can be recorded: where the model has kernels, which are not bit-reproducible."""
        if beam > WIDEST or self._model.training or torch.are_deterministic_algorithms_enabled():
            return False
        return self._model.has_step_kernels()

    def forget(self) -> None:
        """Free all storage."""
        self._kept.clear()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Prepare for steps, which only one search makes at a time."""
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
        """For each slot, the task in it and the number of steps that it may still take."""
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
        """Return how many slots to use where `wanted` would be best."""
        return min(wanted, max(1, MOST_ROWS // W), max(1, MOST_PLACES // max(S, W * T)))

    def slots(self, B: int, S: int, T: int, settings: Decoding) -> Slots:
        """Return slots of a size, kept from an earlier use or new."""
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
        """Return the number of bytes that kept slots may take."""
        if self._device.type != "cuda":
            return math.inf
        return KEPT_SHARE * torch.cuda.get_device_properties(self._device).total_memory


def _best_tokens(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return what `search.best_tokens` returns, computed by our kernel where there is one."""
    if scores_RV.is_cuda and loading.are_available(scores_RV):
        return loading.steps().best_words(scores_RV, count, NEVER)  # type: ignore[no-any-return]
    return best_tokens(scores_RV, count)


def _room_for(length: int) -> int:
    """Return room for a length, so that few sizes serve all sentences."""
    return max(SHORTEST, _power_of_two(length))


def _power_of_two(number: int) -> int:
    """Return the next power of two."""
    return 1 << (number - 1).bit_length()
