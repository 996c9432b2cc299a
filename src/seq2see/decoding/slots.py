"""Search in fixed shapes, for cards: a step is recorded once and replayed, and nothing of it waits for Python.

The same greedy and beam search as `search.py`, with all its bookkeeping in tensors. B slots hold a sentence each, at
whatever step it is; a slot whose sentence is done is given the next one. Only every few steps somebody looks which.
A sentence finds the same in any company, but for what rounds otherwise in products of more rows.
"""

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2see import special
from seq2see.config import Decoding, StopAgainst
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.search import NEVER, LengthPenalty, penalty_of, rank_to_beat
from seq2see.kernels import loading
from seq2see.model.layers import DecoderLayer
from seq2see.model.transformer import Transformer

Ints = npt.NDArray[np.int64]

MOST_ROWS = 2048
"""Hypotheses that grow at once."""
MOST_PLACES = 1 << 17
"""Tokens of all of them together that there is room for."""
SHORTEST = 16
"""Places of the smallest storage; others are powers of two."""
UNASKED = 4
"""Steps between two looks at which sentences are done."""
MOST_KEPT, KEPT_SHARE = 16, 1 / 8
"""Sizes whose storage and recorded steps are kept for the next call, and how much of a card's memory they may take."""
WIDEST = 32
"""Hypotheses of a sentence; more of them do not fit on the chip together."""


class Slots:
    """Storage and steps for B sentences of at most S source tokens, W hypotheses each, of at most T target tokens.

    The length penalty and the rule to stop by are part of the recorded step, so each combination has slots of its own.
    """

    def __init__(
        self, model: Transformer, B: int, W: int, S: int, T: int, penalty: LengthPenalty, stop_against: StopAgainst
    ) -> None:
        device, C = next(model.parameters()).device, 2 * W if W > 1 else 1
        whole = {"dtype": torch.int64, "device": device}
        self._model, self._sizes, self._rows = model, (B, W, C, T), B * S
        self._state = model.fixed_state(B, W, S, T)
        # Of all sentences at once: their tokens and the places of these, where each begins, and its limit.
        self._given = torch.zeros(2 * B * S + 2 * B + 1, **whole)  # type: ignore[call-overload]
        self._last_BW = torch.zeros(B, W, **whole)  # type: ignore[call-overload]
        self._totals_BW = torch.full((B, W), -torch.inf, device=device)
        self._limits_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        self._forced_BT = torch.full((B, T), -1, **whole)  # type: ignore[call-overload]
        penalties = [penalty(length) for length in range(1, T + 1)]
        self._penalty_T = torch.tensor(penalties, dtype=torch.float64, device=device)
        self._first_W = torch.full((W,), -torch.inf, device=device)
        self._first_W[0] = 0.0  # all W begin alike: only one of them counts
        self._count_C = torch.arange(C, device=device)
        self._rank_to_beat = rank_to_beat(W, stop_against)
        # What was chosen at each step, and the W best that are complete: score, total, step, parent, token.
        self._parents_BTW = torch.zeros(B, T, W, **whole)  # type: ignore[call-overload]
        self._tokens_BTW = torch.zeros(B, T, W, **whole)  # type: ignore[call-overload]
        self._scores_BW = torch.full((B, W), -torch.inf, dtype=torch.float64, device=device)
        self._ends_BW4 = torch.zeros(B, W, 4, dtype=torch.float64, device=device)
        self._complete_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        self._growing_B = torch.zeros(B, dtype=torch.bool, device=device)
        self._forces = False
        """Whether a token of some sentence is given."""
        self._recorded: dict[object, torch.cuda.CUDAGraph | None] = {}
        self._read: list[Tensor] = []
        """Tables that what was recorded goes on reading, whatever the model has replaced them by."""

    @property
    def bytes(self) -> int:
        """Of the storage; the rest is little beside it."""
        layers = self._state.layers
        stored = 2 * sum(layer.memory_key_BHSK.numel() for layer in layers)
        stored += 2 * len(layers) * self._state.at.width * self._sizes[3] * layers[0].memory_key_BHSK[:, :, 0].numel()
        return stored * layers[0].memory_key_BHSK.element_size()

    @property
    def is_quick(self) -> bool:
        """Whether all can be filled at once."""
        return bool(self._last_BW.is_cuda)

    def fill(self, slots: Sequence[int], tasks: Sequence[Task]) -> None:
        """Put a sentence into each of these slots."""
        device = self._last_BW.device
        source_N = torch.tensor([token for task in tasks for token in task.source]).to(device, non_blocking=True)
        offsets = torch.tensor([0, *(len(task.source) for task in tasks)]).cumsum(0)
        started = self._model.start(self._model.encode(source_N, offsets))
        here_b = torch.tensor(slots, device=device)
        self._state.fill(here_b, started)
        limits_b = torch.tensor([task.limit for task in tasks], device=device)
        self._limits_B[here_b] = limits_b
        self._last_BW[here_b] = special.BEGIN
        self._totals_BW[here_b] = self._first_W
        self._scores_BW[here_b] = -torch.inf
        self._complete_B[here_b] = 0
        self._growing_B[here_b] = limits_b > 0
        self._force(slots, tasks)

    def fill_all(self, tasks: Sequence[Task]) -> None:
        """The same from the first slot on, with all others left empty; recorded, since few sentences take no longer."""
        B, N = self._sizes[0], self._rows
        lengths = np.array([len(task.source) for task in tasks])
        given = np.zeros(len(self._given), np.int64)
        given[: lengths.sum()] = np.concatenate([task.source for task in tasks])
        given[N : N + lengths.sum()] = np.concatenate([np.arange(length) for length in lengths])
        given[2 * N + 1 : 2 * N + 1 + B] = lengths.sum()
        given[2 * N + 1 : 2 * N + 1 + len(tasks)] = lengths.cumsum()
        given[2 * N + 1 + B : 2 * N + 1 + B + len(tasks)] = [task.limit for task in tasks]
        self._given.copy_(torch.from_numpy(given))
        self._replay("fill", self._begin)
        self._force(range(len(tasks)), tasks)

    def _begin(self) -> None:
        B, N = self._sizes[0], self._rows
        source_N, places_N, rows_B1, limits_B = self._given.split([N, N, B + 1, B])
        self._model.refill(self._state, source_N, places_N, rows_B1)
        self._limits_B.copy_(limits_B)
        self._last_BW.fill_(special.BEGIN)
        self._totals_BW.copy_(self._first_W.expand_as(self._totals_BW))
        self._scores_BW.fill_(-torch.inf)
        self._complete_B.zero_()
        self._growing_B.copy_(limits_B > 0)

    def _force(self, slots: Sequence[int], tasks: Sequence[Task]) -> None:
        """Note what is given of these sentences."""
        if not self._forces and not any(task.prefix for task in tasks):
            return
        T = self._sizes[3]
        forced = torch.full((len(tasks), T), -1)
        for place, task in enumerate(tasks):
            given = torch.tensor(task.prefix[:T], dtype=torch.int64)
            forced[place, : len(given)] = given
        self._forced_BT[torch.tensor(slots, device=self._last_BW.device)] = forced.to(self._last_BW.device)
        self._forces = bool((self._forced_BT >= 0).any())

    def advance(self) -> None:
        """One more token for every hypothesis of every slot."""
        self._replay(self._forces, self._step)

    def _replay(self, name: object, deed: Callable[[], None]) -> None:
        """Do what was recorded. Kernels are compiled and libraries start on their first use, unrecorded."""
        if not self._last_BW.is_cuda or name not in self._recorded:
            self._recorded[name] = None
            deed()
            return
        graph = self._recorded[name]
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                deed()
            self._recorded[name] = graph  # not before it is whole
            self._read += [self._model.source_embedding.waves, self._model.target_embedding.waves]
        graph.replay()

    def done(self) -> list[bool]:
        """Of each slot. This waits for the card."""
        return [not growing for growing in self._growing_B.tolist()]

    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """Of slots that are done, best first."""
        here_b = torch.tensor(slots, device=self._last_BW.device)
        ends_BW4, scores_BW = self._ends_BW4, self._scores_BW
        if self._sizes[1] == 1:  # it stands where it ended
            place_B1 = self._state.at.step_B[:, None]
            last = self._totals_BW, place_B1, torch.zeros_like(place_B1), self._last_BW
            ends_BW4 = torch.stack([part.double() for part in last], -1)
            scores_BW = self._totals_BW.double() / self._penalty_T[place_B1]
            scores_BW = scores_BW.masked_fill(self._limits_B[:, None] == 0, -torch.inf)
        parents_bTW, tokens_bTW, ends_bW4, scores_bW = (
            part.index_select(0, here_b).cpu().numpy()
            for part in (self._parents_BTW, self._tokens_BTW, ends_BW4, scores_BW)
        )
        texts = _traced(ends_bW4[:, :, 1:].astype(np.int64), parents_bTW, tokens_bTW)
        return [
            [
                Hypothesis(text, float(score), float(end[0]))
                for text, score, end in zip(texts[b], scores_bW[b], ends_bW4[b], strict=True)
                if score > -np.inf
            ]
            for b in range(len(slots))
        ]

    def _step(self) -> None:
        scores_RV = self._model.step(self._last_BW.flatten(), self._state)
        logs_RC, tokens_RC = _best_words(scores_RV, min(self._sizes[2], scores_RV.shape[-1]))
        if self._forces:
            logs_RC, tokens_RC = self._forced(scores_RV, logs_RC, tokens_RC)
        if self._sizes[1] == 1:
            self._follow(logs_RC, tokens_RC)
        else:
            self._choose(logs_RC, tokens_RC)

    def _follow(self, logs_B1: Tensor, tokens_B1: Tensor) -> None:
        """Each sentence's only hypothesis grows; once it is complete, nothing of it changes any more."""
        place_B, growing_B1 = self._state.at.step_B, self._growing_B[:, None]
        self._totals_BW.copy_(torch.where(growing_B1, self._totals_BW + logs_B1, self._totals_BW))
        self._last_BW.copy_(torch.where(growing_B1, tokens_B1, self._last_BW))
        self._tokens_BTW.scatter_(1, place_B[:, None, None], self._last_BW[:, None])
        done_B = (self._last_BW[:, 0] == special.END) | (self._limits_B == place_B + 1)
        self._growing_B &= ~done_B
        place_B += self._growing_B

    def _choose(self, logs_RC: Tensor, tokens_RC: Tensor) -> None:
        """Rank the 2 W best continuations of each sentence: keep W open ones, and the W best finished ones so far."""
        B, W, C, _ = self._sizes
        state = self._state
        place_B, most = state.at.step_B, logs_RC.shape[1]
        totals_BC, flat_BC = (self._totals_BW.view(-1, 1) + logs_RC).view(B, -1).topk(C)
        parents_BC, tokens_BC = flat_BC // most, tokens_RC.view(B, -1).gather(1, flat_BC)
        ends_BC = tokens_BC == special.END

        at_limit_B = self._limits_B == place_B + 1
        among_BC = (self._count_C < W) & self._growing_B[:, None]
        done_BC = (ends_BC | at_limit_B[:, None]) & (totals_BC > -torch.inf) & among_BC
        penalty_B = self._penalty_T[place_B]
        scores_BC = (totals_BC.double() / penalty_B[:, None]).masked_fill(~done_BC, -torch.inf)
        step_BC = place_B[:, None].expand(-1, C)
        ends_BC4 = torch.stack([part.double() for part in (totals_BC, step_BC, parents_BC, tokens_BC)], -1)
        scores_BW, best_BW = torch.cat([self._scores_BW, scores_BC], 1).topk(W)
        ends_BF4 = torch.cat([self._ends_BW4, ends_BC4], 1)
        self._ends_BW4.copy_(ends_BF4.gather(1, best_BW[:, :, None].expand(-1, -1, 4)))
        self._scores_BW.copy_(scores_BW)
        self._complete_B += done_BC.sum(1)

        totals_BW, picked_BW = totals_BC.masked_fill(ends_BC, -torch.inf).topk(W)
        parents_BW, tokens_BW = parents_BC.gather(1, picked_BW), tokens_BC.gather(1, picked_BW)
        here_B1W = place_B[:, None, None].expand(-1, 1, W)
        self._parents_BTW.scatter_(1, here_B1W, parents_BW[:, None])
        self._tokens_BTW.scatter_(1, here_B1W, tokens_BW[:, None])
        state.select(parents_BW)
        self._totals_BW.copy_(totals_BW)
        self._last_BW.copy_(tokens_BW)
        best_open_B = totals_BW[:, 0].double() / penalty_B
        enough_B = (self._complete_B >= W) & (self._scores_BW[:, self._rank_to_beat] >= best_open_B)
        self._growing_B &= ~(enough_B | at_limit_B)
        place_B += self._growing_B  # what else happens to a slot that is done, nobody will see

    def _forced(self, scores_RV: Tensor, logs_RC: Tensor, tokens_RC: Tensor) -> tuple[Tensor, Tensor]:
        """Where the next token is given, that and no other."""
        scores_RV = scores_RV.float()
        for word in NEVER:
            scores_RV[:, word] = -torch.inf
        given_R1 = self._forced_BT.gather(1, self._state.at.step_B[:, None]).repeat_interleave(self._sizes[1], 0)
        is_given_R1, given_R1 = given_R1 >= 0, given_R1.clamp_min(0)
        log_R1 = scores_RV.gather(1, given_R1) - scores_RV.logsumexp(-1, keepdim=True)
        is_first_C = self._count_C[: logs_RC.shape[1]] == 0
        logs_RC = torch.where(is_given_R1, torch.where(is_first_C, log_R1, -torch.inf), logs_RC)
        return logs_RC, torch.where(is_given_R1 & is_first_C, given_R1, tokens_RC)


class SlotSearch:
    """Keeps the slots of the sizes that were asked for last."""

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._kept: dict[tuple[object, ...], Slots] = {}
        self._busy = threading.Lock()

    def can(self, beam: int) -> bool:
        """Whether it is worth while: on a card that has our kernels, which nobody vouches for to the bit."""
        if beam > WIDEST or self._model.training or torch.are_deterministic_algorithms_enabled():
            return False
        return cast(DecoderLayer, self._model.decoder[0]).self_attention.has_kernel(next(self._model.parameters()))

    def forget(self) -> None:
        """Give back all storage."""
        self._kept.clear()

    @torch.inference_mode()
    def search(self, tasks: Sequence[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Up to `settings.beam` hypotheses for each task, best first."""
        one = next(self._model.parameters())
        here = torch.cuda.device(one.device) if one.is_cuda else contextlib.nullcontext()
        with self._busy, here, torch.autocast(one.device.type, enabled=False):
            return self._search(tasks, settings)

    def _search(self, tasks: Sequence[Task], settings: Decoding) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in tasks]
        groups: dict[tuple[int, int], list[int]] = {}
        for index in sorted(range(len(tasks)), key=lambda index: -len(tasks[index].source)):
            task = tasks[index]
            groups.setdefault((_room_for(len(task.source)), _room_for(task.limit)), []).append(index)
        for (S, T), group in groups.items():
            for index, hypotheses in self._in_slots([(index, tasks[index]) for index in group], S, T, settings):
                found[index] = hypotheses
        return found

    def _in_slots(
        self, tasks: list[tuple[int, Task]], S: int, T: int, settings: Decoding
    ) -> list[tuple[int, list[Hypothesis]]]:
        W = settings.beam
        B = min(1 << (len(tasks) - 1).bit_length(), max(1, MOST_ROWS // W), max(1, MOST_PLACES // max(S, W * T)))
        slots = self._slots(B, W, S, T, settings)
        waiting, free = deque(tasks), list(range(B))[::-1]
        running: dict[int, tuple[int, int]] = {}
        """In which slot is which task, and how many steps it may still take."""
        found: list[tuple[int, list[Hypothesis]]] = []
        while waiting or running:
            # A few at once: to read sentences one by one would cost more than slots that stand empty for a moment.
            if waiting and (not running or len(free) >= max(1, B // 8)):
                some = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
                places = [free.pop() for _ in some]
                if running or not slots.is_quick:
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
            done = [slot for slot, is_done in enumerate(slots.done()) if is_done and slot in running]
            for slot, hypotheses in zip(done, slots.hypotheses(done) if done else [], strict=True):
                found.append((running.pop(slot)[0], hypotheses))
                free.append(slot)
        return found

    def _slots(self, B: int, W: int, S: int, T: int, settings: Decoding) -> Slots:
        key = (B, W, S, T, settings.length_penalty, settings.length_formula, settings.stop_against)
        slots = self._kept.pop(key, None)
        if slots is None:
            while len(self._kept) >= MOST_KEPT or sum(each.bytes for each in self._kept.values()) > self._room:
                del self._kept[next(iter(self._kept))]
            slots = Slots(self._model, B, W, S, T, penalty_of(settings), settings.stop_against)
        self._kept[key] = slots
        return slots

    @property
    def _room(self) -> float:
        device = next(self._model.parameters()).device
        if device.type != "cuda":
            return math.inf
        return KEPT_SHARE * torch.cuda.get_device_properties(device).total_memory


def _best_words(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the likeliest, and which they are."""
    if loading.are_available(scores_RV):
        return loading.steps().best_words(scores_RV, count, NEVER)  # type: ignore[no-any-return]
    scores_RV = scores_RV.float()
    scores_RV[:, NEVER] = -torch.inf
    best_RC, tokens_RC = scores_RV.topk(count)
    return best_RC - scores_RV.logsumexp(-1, keepdim=True), tokens_RC


def _traced(ends_bW3: Ints, parents_bTW: Ints, tokens_bTW: Ints) -> list[list[list[int]]]:
    """The tokens of complete hypotheses, each from where it ended (step, parent, token) back to its beginning."""
    steps_bW, rows_bW, last_bW = np.moveaxis(ends_bW3, -1, 0)
    texts_bWT = np.zeros((*steps_bW.shape, steps_bW.max(initial=0) + 1), np.int64)
    np.put_along_axis(texts_bWT, steps_bW[:, :, None], last_bW[:, :, None], -1)
    for place in range(texts_bWT.shape[-1] - 2, -1, -1):
        is_part = place < steps_bW
        texts_bWT[:, :, place][is_part] = np.take_along_axis(tokens_bTW[:, place], rows_bW, 1)[is_part]
        rows_bW = np.where(is_part, np.take_along_axis(parents_bTW[:, place], rows_bW, 1), rows_bW)
    ends_bW = np.where(last_bW == special.END, steps_bW, steps_bW + 1).tolist()
    return [
        [text[:end] for text, end in zip(texts, ends, strict=True)]
        for texts, ends in zip(texts_bWT.tolist(), ends_bW, strict=True)
    ]


def _room_for(length: int) -> int:
    """The next power of two, so that few sizes serve all sentences."""
    return max(SHORTEST, 1 << (length - 1).bit_length())
