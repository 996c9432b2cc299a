"""Search in fixed shapes, for cards: a step is recorded once and replayed, and nothing of it waits for Python.

The same greedy and beam search as `search.py`, with all its bookkeeping in tensors. B slots hold a sentence each, at
whatever step it is; a slot whose sentence is done is given the next one. Only every few steps somebody looks which.
Shapes never depend on the company, so neither does an answer.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import torch

from seq2see import special
from seq2see.config import Decoding
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.search import NEVER, LengthPenalty, penalty_of
from seq2see.model.interface import Seq2Seq
from seq2see.model.transformer import Transformer

MOST_ROWS = 2048
"""Hypotheses that grow at once."""
SHORTEST = 16
"""Places of the smallest storage; others are powers of two."""
UNASKED = 4
"""Steps between two looks at which sentences are done."""
MOST_KEPT = 4
"""Sizes whose storage and recorded steps are kept for the next call."""


class Slots:
    """B sentences of at most S tokens, growing to at most T tokens each, W hypotheses side by side."""

    def __init__(self, model: Transformer, B: int, W: int, S: int, T: int, penalty: LengthPenalty) -> None:
        one = next(model.parameters())
        device, C = one.device, 2 * W if W > 1 else 1
        whole = {"dtype": torch.int64, "device": device}
        self._model, self._sizes = model, (B, W, C, T)
        self._state = model.fixed_state(B, W, S, T)
        self._last_BW = torch.zeros(B, W, **whole)  # type: ignore[call-overload]
        self._totals_BW = torch.full((B, W), -torch.inf, device=device)
        self._limits_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        self._forced_BT = torch.full((B, T), -1, **whole)  # type: ignore[call-overload]
        self._penalty_T = torch.tensor([penalty(length) for length in range(1, T + 1)], device=device)
        # What was chosen at each step, and the W best that are complete: score, total, step, parent, token.
        self._parents_BTW = torch.zeros(B, T, W, **whole)  # type: ignore[call-overload]
        self._tokens_BTW = torch.zeros(B, T, W, **whole)  # type: ignore[call-overload]
        self._scores_BW = torch.full((B, W), -torch.inf, dtype=torch.float64, device=device)
        self._ends_BW4 = torch.zeros(B, W, 4, dtype=torch.float64, device=device)
        self._complete_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        self._growing_B = torch.zeros(B, dtype=torch.bool, device=device)
        self._steps: dict[int, int] = {}
        """Of each slot in use, as counted here: at least as many as it has made."""
        self._recorded: dict[int, torch.cuda.CUDAGraph | None] = {}

    def fill(self, slots: Sequence[int], tasks: Sequence[Task]) -> None:
        """Put a sentence into each of these slots."""
        _, W, _, T = self._sizes
        device = self._last_BW.device
        source_N = torch.tensor([token for task in tasks for token in task.source]).to(device, non_blocking=True)
        offsets = torch.tensor([0, *(len(task.source) for task in tasks)]).cumsum(0)
        started = self._model.start(self._model.encode(source_N, offsets))
        here_b = torch.tensor(slots, device=device)
        self._state.fill(here_b, started)
        forced = torch.full((len(slots), T), -1)
        for place, task in enumerate(tasks):
            forced[place, : len(task.prefix)] = torch.tensor(task.prefix, dtype=torch.int64)
        self._forced_BT[here_b] = forced.to(device)
        self._limits_B[here_b] = torch.tensor([task.limit for task in tasks], device=device)
        self._last_BW[here_b] = special.BEGIN
        first_W = torch.full((W,), -torch.inf, device=device)
        first_W[0] = 0.0  # all W begin alike: only one of them counts
        self._totals_BW[here_b] = first_W
        self._scores_BW[here_b] = -torch.inf
        self._complete_B[here_b] = 0
        self._growing_B[here_b] = True
        self._steps |= dict.fromkeys(slots, 0)

    def advance(self) -> None:
        """One more token for every hypothesis of every slot."""
        # No more of the storage is looked at than has been filled, in powers of two.
        reach = self._state.reach = min(self._sizes[3], _room_for(max(self._steps.values()) + 1))
        self._steps = {slot: steps + 1 for slot, steps in self._steps.items()}
        if not self._last_BW.is_cuda:
            self._step()
        elif reach not in self._recorded:
            self._recorded[reach] = None  # kernels are compiled and libraries start on their first use, unrecorded
            self._step()
        else:
            graph = self._recorded[reach]
            if graph is None:
                graph = self._recorded[reach] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._step()
            graph.replay()

    def done(self) -> list[bool]:
        """Of each slot. This waits for the card."""
        return [not growing for growing in self._growing_B.tolist()]

    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """Of slots that are done, best first; the slots are free then."""
        here_b = torch.tensor(slots, device=self._last_BW.device)
        self._state.place_B[here_b] = 0  # within whatever will be looked at
        for slot in slots:
            del self._steps[slot]
        parents, tokens, ends, scores = (
            part[here_b].tolist() for part in (self._parents_BTW, self._tokens_BTW, self._ends_BW4, self._scores_BW)
        )
        return [
            [
                Hypothesis(_traced(map(int, end), parents[b], tokens[b]), score, total)
                for (total, *end), score in zip(ends[b], scores[b], strict=True)
                if score > -torch.inf
            ]
            for b in range(len(slots))
        ]

    def _step(self) -> None:
        B, W, C, _ = self._sizes
        state = self._state
        place_B = state.place_B
        scores_RV = self._model.step(self._last_BW.flatten(), state).float()
        scores_RV[:, NEVER] = -torch.inf
        best_RC, best_tokens_RC = scores_RV.topk(C)
        logs_RC = best_RC - scores_RV.logsumexp(-1, keepdim=True)
        forced_B1 = self._forced_BT.gather(1, place_B[:, None])
        is_forced_R1 = (forced_B1 >= 0).repeat_interleave(W, 0)
        forced_R1 = forced_B1.clamp_min(0).repeat_interleave(W, 0)
        forced_log_R1 = scores_RV.gather(1, forced_R1) - scores_RV.logsumexp(-1, keepdim=True)
        first_C = torch.arange(C, device=place_B.device) == 0
        logs_RC = torch.where(is_forced_R1, torch.where(first_C, forced_log_R1, -torch.inf), logs_RC)
        tokens_RC = torch.where(is_forced_R1 & first_C, forced_R1, best_tokens_RC)
        totals_BC, flat_BC = (self._totals_BW.view(-1, 1) + logs_RC).view(B, -1).topk(C)
        parents_BC, tokens_BC = flat_BC // C, tokens_RC.view(B, -1).gather(1, flat_BC)
        ends_BC = tokens_BC == special.END

        length_B = place_B + 1
        at_limit_B = self._limits_B == length_B
        among_C = torch.arange(C, device=place_B.device) < W
        done_BC = (ends_BC | at_limit_B[:, None]) & (totals_BC > -torch.inf) & among_C & self._growing_B[:, None]
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
        hope_B = totals_BW[:, 0].double() / penalty_B
        enough_B = (self._complete_B >= W) & (self._scores_BW[:, 0] >= hope_B)
        self._growing_B &= ~(enough_B | at_limit_B)
        place_B += self._growing_B  # what else happens to a slot that is done, nobody will see


class SlotSearch:
    """Keeps the slots of the sizes that were asked for last."""

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._kept: dict[tuple[object, ...], Slots] = {}

    @staticmethod
    def can(model: Seq2Seq) -> bool:
        """Whether the model has a state of fixed shape."""
        return isinstance(model, Transformer) and model.has_fixed_state

    @torch.inference_mode()
    def search(self, tasks: Sequence[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Up to `settings.beam` hypotheses for each task, best first."""
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
        B = min(1 << (len(tasks) - 1).bit_length(), max(1, MOST_ROWS // W))
        slots = self._slots(B, W, S, T, settings)
        waiting, free = deque(tasks), list(range(B))
        running: dict[int, int] = {}
        found: list[tuple[int, list[Hypothesis]]] = []
        while waiting or running:
            # A few at once: to read sentences one by one would cost more than slots that stand empty for a moment.
            if waiting and (not running or len(free) >= max(1, B // 8)):
                some = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
                places = [free.pop() for _ in some]
                slots.fill(places, [task for _, task in some])
                running |= {slot: index for slot, (index, _) in zip(places, some, strict=True)}
            for _ in range(UNASKED):
                slots.advance()
            done = [slot for slot, is_done in enumerate(slots.done()) if is_done and slot in running]
            for slot, hypotheses in zip(done, slots.hypotheses(done) if done else [], strict=True):
                found.append((running.pop(slot), hypotheses))
                free.append(slot)
        return found

    def _slots(self, B: int, W: int, S: int, T: int, settings: Decoding) -> Slots:
        key = (B, W, S, T, settings.length_penalty, settings.length_formula)
        slots = self._kept.pop(key, None) or Slots(self._model, B, W, S, T, penalty_of(settings))
        self._kept[key] = slots
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return slots


def _traced(end: Iterable[int], parents_TW: list[list[int]], tokens_TW: list[list[int]]) -> list[int]:
    """The tokens of a complete hypothesis, from where it ended back to its beginning."""
    step, row, token = end
    text = [] if token == special.END else [token]
    for place in range(step - 1, -1, -1):
        text.append(tokens_TW[place][row])
        row = parents_TW[place][row]
    return text[::-1]


def _room_for(length: int) -> int:
    """The next power of two, so that few sizes serve all sentences."""
    return max(SHORTEST, 1 << (length - 1).bit_length())
