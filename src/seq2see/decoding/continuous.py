"""Continuous batching: sentences enter and leave a search at any time, while others are being searched.

`SlotSearch` uses the slots of `recorded.py`: on a GPU its steps are captured in CUDA graphs and replayed, on a CPU the
same code is executed step by step. A new sentence is put into a free slot between two steps; one that is finished, or
that was cancelled, frees its slot for the next.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from seq2see import special
from seq2see.config import Decoding
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.recorded import UNASKED, RecordedSearch, Slots

SIZES = (4, 32, 256)
"""Possible numbers of slots in a set of slots (`Slots`), as far as `RecordedSearch.most_slots` allows; a slot holds the
search for one sentence. A decoding step extends the sentences of all slots of a set; with fewer slots it is faster.
"""
SHORTEST_SOURCE, SHORTEST_TARGET = 64, 128
"""Number of source and target tokens that the smallest slots have room for; the other sizes are larger by powers of
four. Since there are few sizes, sentences of different lengths share the decoding steps of one set of slots.
"""
MOST = SIZES[-1]
"""Largest number of slots in one set of slots; sentences for which there is no free slot wait."""


@dataclass
class _Set:
    """A set of slots with room for the same numbers of source and target tokens, and the sentences in them."""

    slots: Slots
    free: list[int]
    running: dict[int, tuple[Any, int]] = field(default_factory=dict)
    """For each occupied slot, the name under which its sentence was added and the maximum number of remaining steps."""


class SlotSearch:
    """A search with fixed settings that sentences can enter at any time; the caller gives each sentence a name.

    Like an engine it has `search`, which runs until all sentences are finished.
    """

    def __init__(self, recorded: RecordedSearch, settings: Decoding, name: str = "") -> None:
        self.name = name
        self.most = MOST
        """Maximum number of sentences that are searched together in one set of slots; others wait."""
        self._recorded, self._settings = recorded, settings
        self._waiting: dict[tuple[int, int], deque[tuple[Any, Task]]] = {}
        """Sentences that wait for a slot, by the numbers of source and target tokens that it must have room for."""
        self._sets: dict[tuple[int, int, int], _Set] = {}
        """Sets of slots in use, by the number of slots and by the maximum lengths of source and target."""

    def __len__(self) -> int:
        """Return the number of sentences that wait or are being searched."""
        return sum(map(len, self._waiting.values())) + self.in_flight

    @property
    def in_flight(self) -> int:
        """Return the number of sentences that are being searched, each in a slot."""
        return sum(len(each.running) for each in self._sets.values())

    def add(self, name: Any, task: Task) -> None:
        """Queue a sentence under a name; it is searched when a slot is free."""
        room = _room_for(len(task.source), SHORTEST_SOURCE), _room_for(task.limit, SHORTEST_TARGET)
        self._waiting.setdefault(room, deque()).append((name, task))

    def drop(self, is_gone: Callable[[Any], bool]) -> None:
        """Cancel the sentences for whose names `is_gone` returns true, and free their slots."""
        for room, waiting in self._waiting.items():
            self._waiting[room] = deque(each for each in waiting if not is_gone(each[0]))
        for each in self._sets.values():
            gone = [slot for slot, (name, _) in each.running.items() if is_gone(name)]
            for slot in gone:  # what still happens in it has no effect
                del each.running[slot]
            each.free += gone

    def advance(self) -> list[tuple[Any, list[Hypothesis]]]:
        """Fill free slots, and run up to `UNASKED` decoding steps in each set of slots.

        Return the names of the sentences that have finished, with their hypotheses.
        """
        with self._recorded.at_work():
            for room in [room for room, waiting in self._waiting.items() if waiting]:
                self._enter(*room)
            self._sets = {size: each for size, each in self._sets.items() if each.running}
            for each in self._sets.values():
                steps = min(UNASKED, max(left for _, left in each.running.values()))
                for _ in range(steps):
                    each.slots.advance()
                each.running = {slot: (name, left - steps) for slot, (name, left) in each.running.items()}
            return [found for each in self._sets.values() for found in _done(each)]

    def _enter(self, S: int, T: int) -> None:
        """Put sentences that wait for slots of S source and T target tokens into free slots.

        The set of slots is the smallest that can hold all sentences that wait for, or run in, slots of this size.
        Sentences that run in a smaller or larger set stay there, but it receives no more.
        """
        waiting = self._waiting[S, T]
        running = sum(len(each.running) for (_, *room), each in self._sets.items() if room == [S, T])
        size = next((size for size in SIZES if size >= running + len(waiting)), MOST)
        B = self._recorded.most_slots(size, S, T, self._settings.beam)
        if (B, S, T) not in self._sets:
            self._sets[B, S, T] = _Set(self._recorded.slots(B, S, T, self._settings), list(range(B))[::-1])
        each = self._sets[B, S, T]
        some = [waiting.popleft() for _ in range(min(len(each.free), len(waiting)))]
        if some:
            places = [each.free.pop() for _ in some]
            each.slots.enter(places, [task for _, task in some])
            each.running |= {place: (name, task.limit) for place, (name, task) in zip(places, some, strict=True)}

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Return the hypotheses for each task; `settings` must be those of this search, except `batch_tokens`."""
        assert replace(settings, batch_tokens=self._settings.batch_tokens) == self._settings
        for number, task in enumerate(tasks):
            self.add(number, task)
        found: dict[Any, list[Hypothesis]] = {}
        while self:
            found |= self.advance()
        return [found[number] for number in range(len(tasks))]

    def forget(self) -> None:
        """Cancel all sentences, and free the memory of all slots."""
        self._waiting.clear()
        self._sets.clear()
        self._recorded.forget()

    def warm_up(self) -> None:
        """Compile kernels and capture CUDA graphs for short sentences, which otherwise happens on first use."""
        S, T = SHORTEST_SOURCE, SHORTEST_TARGET
        with self._recorded.at_work():
            for size in SIZES:
                B = self._recorded.most_slots(size, S, T, self._settings.beam)
                slots = self._recorded.slots(B, S, T, self._settings)
                for count, length in itertools.product((1, B), (S // 8, S // 2 - 8, S - 16)):
                    for _ in range(2):  # what comes a second time is recorded
                        slots.enter(range(count), [Task([special.END] * length, 1, [])] * count)
                        slots.advance()


def _done(each: _Set) -> list[tuple[Any, list[Hypothesis]]]:
    """Remove the finished sentences of a set from their slots; return their names and hypotheses."""
    growing = each.slots.hypotheses.growing_B.tolist()  # waits for the GPU
    done = [slot for slot in sorted(each.running) if not growing[slot]]
    if not done:
        return []
    found = each.slots.hypotheses.finished(done).read()
    each.free += done
    return [(each.running.pop(slot)[0], hypotheses) for slot, hypotheses in zip(done, found, strict=True)]


def _room_for(length: int, shortest: int) -> int:
    room = shortest
    while room < length:
        room *= 4
    return room
