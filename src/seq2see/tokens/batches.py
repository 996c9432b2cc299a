"""Batches of packed tokens: filled up to a token budget, shuffled, resumable, split over processes.

The corpus and the settings alone decide which pairs make an update, the *effective batch* (`Batches`); `split` then
divides it into micro-batches that fit into the memory of a machine. No data here grows with the corpus: the shuffled
order is computed by a function, `shuffled`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see import special
from seq2see.tokens.store import Store

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]


@dataclass(frozen=True)
class Batch:
    """Pairs packed end to end: source b is `source_N[source_offsets[b] : source_offsets[b + 1]]`, and so for targets.

    All tensors are int64. The target holds the labels: tokens and END. Both offsets have one entry more than there are
    pairs.
    """

    source_N: Tensor
    source_offsets: Tensor
    target_N: Tensor
    target_offsets: Tensor
    links_N: Tensor | None = None
    """For each decoder input (row of `inputs_N`), the position in its source of the token that it translates; -1 for
    none.
    """

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def source_tokens(self) -> int:
        return len(self.source_N)

    @property
    def target_tokens(self) -> int:
        return len(self.target_N)

    @property
    def inputs_N(self) -> Tensor:
        """Return the decoder inputs: the labels shifted by one, after BEGIN. `a b END` becomes `BEGIN a b`."""
        inputs_N = self.target_N.roll(1)
        return inputs_N.masked_fill_(inputs_N == special.END, special.BEGIN)  # an END is only ever a target's last

    def twice(self) -> "Batch":
        """Return a batch with all pairs of this one, followed by all of them again (for R-Drop)."""
        source_N, target_N = self.source_N.repeat(2), self.target_N.repeat(2)
        links_N = None if self.links_N is None else self.links_N.repeat(2)
        return Batch(source_N, twice_over(self.source_offsets), target_N, twice_over(self.target_offsets), links_N)

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device; offsets stay on the CPU, because shapes are computed from them."""
        source_N, target_N = self.source_N.to(device, non_blocking=True), self.target_N.to(device, non_blocking=True)
        links_N = None if self.links_N is None else self.links_N.to(device, non_blocking=True)
        return Batch(source_N, self.source_offsets, target_N, self.target_offsets, links_N)


def twice_over(offsets: Tensor) -> Tensor:
    """Return the offsets of the sequences followed by all of them again: `[0, 2, 3]` -> `[0, 2, 3, 5, 6]`."""
    return torch.cat([offsets, offsets[1:] + offsets[-1]])


def make_batch(store: Store, indices: Int64s, links: bool = False) -> Batch:
    """Return a batch of the pairs with these indices in a store, in that order; `links` adds the word alignment."""
    source_N, source_offsets, target_N, target_offsets = (torch.from_numpy(array) for array in store.gather(indices))
    # A token is read one row after the row that predicts it. An END, which comes from nowhere, is read by none.
    links_N = torch.from_numpy(np.roll(store.links(indices), 1)) if links else None
    return Batch(source_N, source_offsets, target_N, target_offsets, links_N)


@dataclass(frozen=True)
class Position:
    """Position of the next batch in a training: its epoch, the window in the epoch, and the batch in the window (see
    `Batches`), each counted from 0.
    """

    epoch: int = 0
    window: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Batches:
    """The endless sequence of effective batches of a training; each epoch has every pair once, shuffled anew.

    An epoch is a shuffled order of all pairs. A window is `window_pairs` consecutive pairs of it: these are sorted by
    length and cut into batches of at most `batch_tokens` tokens (source and target together), so that a batch holds
    pairs of similar length; then the batches are shuffled. The last batch that is cut may be small; a pair with more
    than `batch_tokens` tokens is a batch alone. Everything is determined by (seed, epoch, window): to start at any
    position, only its window is computed.
    """

    store: Store
    batch_tokens: int
    window_pairs: int
    seed: int
    position: Position = Position()

    def __iter__(self) -> Iterator[tuple[Int64s, Position]]:
        """Yield the indices of the pairs of each effective batch, and the position after it, at which to resume."""
        at = self.position
        windows = math.ceil(len(self.store) / self.window_pairs)
        while True:
            plan = self.window(at.epoch, at.window)
            following = Position(at.epoch, at.window + 1) if at.window + 1 < windows else Position(at.epoch + 1)
            for number in range(at.batch, len(plan)):
                last = number + 1 == len(plan)
                yield plan[number], following if last else Position(at.epoch, at.window, number + 1)
            at = following

    def one_epoch(self) -> Iterator[tuple[Int64s, Position]]:
        """Yield effective batches and positions as `__iter__` does, up to the end of the epoch of `position`."""
        for indices, after in self:
            yield indices, after
            if after.epoch != self.position.epoch:
                return

    def window(self, epoch: int, window: int) -> list[Int64s]:
        """Return the batches of one window, as indices of pairs, in shuffled order."""
        pairs = len(self.store)
        start = window * self.window_pairs
        places = np.arange(start, min(start + self.window_pairs, pairs))
        indices = shuffled(places, pairs, (self.seed, epoch))
        source_lengths, target_lengths = self.store.source_lengths(indices), self.store.target_lengths(indices)
        by_length = np.lexsort((source_lengths, target_lengths))
        ends = _cut((source_lengths + target_lengths)[by_length], self.batch_tokens)
        batches = np.split(indices[by_length], ends[:-1])
        order = shuffled(np.arange(len(ends)), len(ends), (self.seed, epoch, window))
        return [batches[number] for number in order]


def _cut(lengths: Int64s, budget: int) -> list[int]:
    """Divide consecutive sequences into groups of at most `budget` tokens, and return the end index of each group.

    A longer sequence is a group of its own.
    """
    totals = lengths.cumsum()
    ends: list[int] = []
    start = before = 0
    while start < len(totals):
        start = max(int(np.searchsorted(totals, before + budget, side="right")), start + 1)
        before = int(totals[start - 1])
        ends.append(start)
    return ends


def split(indices: Int64s, lengths: Int64s, micro_tokens: int, rank: int = 0, world: int = 1) -> list[Int64s]:
    """Return the part of an effective batch for one rank, in micro-batches of at most `micro_tokens` tokens.

    The batch, which `Batches` has sorted by length, is cut into k micro-batches with about the same number of tokens; k
    is the smallest multiple of `world` that keeps the limit, or the number of pairs if that is smaller. Rank r takes
    micro-batches r, r + world, ...: the ranks get equally many forward passes of about the same size (if k is the
    number of pairs, some get one less), and all together get every pair once. A pair above the limit is alone in its
    micro-batch. With fewer pairs than ranks, some ranks get an empty list.

    Args:
        lengths: Number of source and target tokens of each pair of `indices`.
        world: Number of ranks.
    """
    pairs, totals = len(indices), lengths.cumsum()
    count = min(world * math.ceil(totals[-1] / (micro_tokens * world)), pairs)
    while True:
        numbers = np.arange(1, count + 1)
        ends = np.searchsorted(totals, totals[-1] * numbers / count)
        ends = np.maximum.accumulate(ends + 1 - numbers) + numbers  # none is empty: each end is past the one before
        ends = np.minimum(ends, pairs - count + numbers)  # and leaves a pair for each to come
        tokens, sizes = np.diff(totals[ends - 1], prepend=0), np.diff(ends, prepend=0)
        if count == pairs or not np.any((tokens > micro_tokens) & (sizes > 1)):
            return np.split(indices, ends[:-1])[rank::world]
        count = min(count + world, pairs)


ROUNDS: Final = 8


def shuffled(places: Int64s, count: int, key: tuple[int, ...]) -> Int64s:
    """Return the elements at the indices `places` of a shuffled `range(count)`, without a list of `count` numbers.

    `key` seeds the order.

    A Feistel network (the construction of block ciphers; Luby and Rackoff 1988): a number of 2h bits is two halves, and
    each round replaces (left, right) by (right, left XOR f(right)), which can be undone whatever f is, so that the
    whole is a one-to-one map of range(4^h), 4^h >= count. A result of `count` or more is mapped again until it is
    smaller ("cycle walking"), fewer than four times on average; that keeps the map one-to-one on range(count).
    """
    half = np.uint64(max((count - 1).bit_length() + 1, 2) // 2)
    low = (np.uint64(1) << half) - np.uint64(1)
    keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)

    def once(numbers: UInt64s) -> UInt64s:
        left, right = numbers >> half, numbers & low
        for round_key in keys:
            left, right = right, left ^ (_mix(right ^ round_key) & low)
        return left << half | right

    numbers = once(places.astype(np.uint64))
    while (outside := np.flatnonzero(numbers >= count)).size:
        numbers[outside] = once(numbers[outside])
    return numbers.astype(np.int64)


def _mix(numbers: UInt64s) -> UInt64s:
    """Hash 64-bit numbers by the last step of SplitMix64 (Steele, Lea and Flood 2014)."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)
