"""Word aligners for the tokens of a corpus: they find the source token that each target token translates or copies.

    aligner = learn(store)
    write_links(aligner, store)             # beside its tokens, where `Store.links` finds them

`Aligner` learns from statistics which tokens translate each other. Targets that copy most of their source, such as
molecules, consist of the same few tokens in every pair, from which statistics learn nothing: there, `CopyAligner` links
the stretches that both sides have in common.

For `Aligner`, two hidden Markov models (Vogel et al. 1996), one for each direction, are trained jointly: the expected
count of a link is the product of its probabilities under both (Liang, Taskar and Klein, "Alignment by agreement",
2006). They start from IBM model 1. Pairs of similar lengths are computed together, so that a step of a hidden Markov
model is one matrix multiplication. Time and memory are bounded, whatever the size of the corpus.
"""

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2see import special
from seq2see.config import Settings
from seq2see.errors import SettingError
from seq2see.tokens.store import LINKS, NO_LINK, Store

Floats = NDArray[np.float32]
Counts = NDArray[np.float64]
Int64s = NDArray[np.int64]

MOST_CELLS: Final = 6_000_000
"""Maximum number of cells (pairs of a source token and a target token of the same sentence pair) from which the aligner
learns, which bounds time and memory. 29,000 image captions have that many.
"""
MOST_PAIRS, BLOCK = 200_000, 20_000
"""Maximum number of pairs, evenly spread over the corpus, that are aligned, which is enough for an attention head to
learn from; and the number of pairs aligned at a time.
"""
AT_ONCE: Final = 300_000
"""Maximum number of cells (pairs of a source token and a target token) of the sentence pairs that are computed
together.
"""
LONGEST: Final = 128
"""Maximum number of tokens of either side; longer pairs, which are few, are not aligned, since memory grows with the
square.
"""
ROUNDS: Final = (3, 4)
"""Number of iterations of IBM model 1, and of the hidden Markov models after it."""
MOST_BITS: Final = 1 << 30
"""Maximum number of bits of a `KeyIndex`, the product of both vocabulary sizes; it then takes 192 MiB of memory."""
FROM_NOWHERE: Final = 0.1
"""Probability that a token is aligned with no token of the other side (the null word)."""
FURTHEST: Final = 8
"""Maximum jump that has a probability of its own; longer jumps have the probability of this one. A jump is the distance
between the source tokens with which two neighbouring target tokens are linked, or the reverse.
"""
UNSEEN: Final = 1e-7
"""Probability of a token given a token of the other side with which it never occurred in the pairs that the aligner
learned from.
"""
SURE: Final = 0.3
"""Minimum product of a link's posterior probabilities in both directions; less probable links are dropped."""
LEAST_LINKED: Final = 0.4
"""Minimum share of linked target tokens in the validation set. If the statistical aligner links less, `CopyAligner` is
tried; if that links less as well, there is no alignment loss. The statistical aligner links 0.26 for questions and
answers, and 0.54 and more for translations; `CopyAligner` links 0.58 and 0.82 for molecules (docs/log.md).
"""
SHORTEST_STRETCH, MOST_STRETCHES = 3, 8
"""Minimum number of tokens of a stretch that is taken for copied, since shorter ones are often in common by chance; and
the maximum number of stretches that are looked for in a pair, which bounds the time.
"""
NONE: Final = -1
"""Source position that stands for no source token: the target token is not linked."""


@dataclass(frozen=True)
class PairGroup:
    """Pairs of similar lengths as padded arrays, without their end tokens."""

    members: Int64s
    """Positions of the pairs of this group in the argument `indices` of the function `groups`."""
    source_BS: Int64s
    target_BT: Int64s

    def keys_BTS(self, vocabulary: int) -> Int64s:
        """Return BTS: for each target and source token of B pairs, a number that names both; negative for padding.

        Args:
            vocabulary: Size of the target vocabulary.
        """
        keys_BTS = (vocabulary * self.source_BS)[:, None, :] + self.target_BT[:, :, None]
        keep_BTS = (self.source_BS != special.PAD)[:, None, :] & (self.target_BT != special.PAD)[:, :, None]
        return np.where(keep_BTS, keys_BTS, -1)


def groups(store: Store, indices: Int64s) -> Iterator[PairGroup]:
    """Yield groups of pairs of similar lengths; pairs with an empty side, or one above `LONGEST`, are left out."""
    sources, targets = store.source_lengths(indices) - 1, store.target_lengths(indices) - 1
    fits = np.flatnonzero((sources > 0) & (targets > 0) & (sources <= LONGEST) & (targets <= LONGEST))
    fits = fits[np.lexsort((targets[fits], (sources[fits] + 1) // 2))]
    for run in np.split(fits, np.flatnonzero(np.diff((sources[fits] + 1) // 2)) + 1):
        first = 0
        while first < len(run):
            widest = targets[run[first]] * 5 // 4 + 1
            room = max(1, AT_ONCE // int(widest * sources[run].max()))
            last = min(first + room, int(np.searchsorted(targets[run], widest, side="right")))
            some, first = run[first:last], last
            source_N, source_offsets, target_N, target_offsets = store.gather(indices[some])
            yield PairGroup(some, _rectangle(source_N, source_offsets), _rectangle(target_N, target_offsets))


def _rectangle(tokens_N: Int64s, offsets: Int64s) -> Int64s:
    """Return packed sequences as padded rows, without the last token of each, which is END."""
    lengths_B = np.diff(offsets) - 1
    keep_BL = np.arange(lengths_B.max()) < lengths_B[:, None]
    rows_BL = np.full(keep_BL.shape, special.PAD, np.int64)
    rows_BL[keep_BL] = np.delete(tokens_N, offsets[1:] - 1)
    return rows_BL


class KeyIndex:
    """Finds the positions of numbers in a sorted array of different numbers, by bits instead of a binary search.

    One bit for each possible number says whether the array has it. The position of a number is the count of bits that
    are set before its own: up to its word of 64 bits, for which the counts are stored, and within this word.

    Args:
        numbers: The sorted array; its numbers are from 0 to `limit` - 1.
    """

    def __init__(self, numbers: Int64s, limit: int) -> None:
        places = numbers >> 6
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        self._words = np.zeros(limit // 64 + 1, np.uint64)
        self._words[places[firsts]] = np.bitwise_or.reduceat(_bits(numbers), firsts)
        counts = np.bitwise_count(self._words)
        self._before = counts.cumsum(dtype=np.int32) - counts

    def find(self, wanted: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
        """Return the position of each wanted number, which is meaningless if it is not in the array; and if it is."""
        places, bits = wanted >> 6, _bits(wanted)
        words = self._words[places]
        return self._before[places] + np.bitwise_count(words & (bits - np.uint64(1))), (words & bits) > 0


def _bits(numbers: Int64s) -> NDArray[np.uint64]:
    """Return for each number a word in which the bit for this number is set."""
    return np.left_shift(np.uint64(1), (numbers & 63).view(np.uint64))


class Cells(NamedTuple):
    """The cells (pairs of a source token and a target token) of a group of pairs."""

    keys: Int64s
    """Indices in `Aligner.keys` of the different keys of the group, sorted; the index `len(Aligner.keys)` stands for
    keys that are not there, and the one after it for padding.
    """
    places_BTS: NDArray[np.int32]
    """For each target and source token of B pairs, the position of its key in `keys`."""


class Aligner:
    """Two models of the links between tokens, one for each direction.

    Args:
        keys: The pairs of a source and a target token that were seen together, as in `PairGroup.keys_BTS`, sorted.
        frequencies: The share of each source token, and of each target token, in all tokens of its side.
    """

    def __init__(self, keys: Int64s, frequencies: Sequence[Floats]) -> None:
        self.keys = keys
        self.frequencies = frequencies
        self._sides = np.divmod(keys, len(frequencies[1]))
        size = len(frequencies[0]) * len(frequencies[1])
        self._index = KeyIndex(keys, size) if size <= MOST_BITS else None
        self._tables: list[Floats] = []
        """For each key, the probability of the target token given the source token, and the reverse; then that of keys
        which are not there, and of padding.
        """
        self._jumps = [np.full(2 * FURTHEST + 1, 1 / (2 * FURTHEST + 1), np.float32) for _ in range(2)]
        """For each direction, the probability of each distance between the tokens of the other side that two
        neighbouring tokens are linked with.
        """
        self._normalise(np.ones(len(keys), np.float32))

    def _normalise(self, counts: NDArray[np.floating]) -> None:
        """Compute the probability tables of both directions from the expected count of each key."""
        totals = [np.bincount(side, counts) for side in self._sides]
        self._tables = [
            np.append((counts / np.maximum(total[side], 1e-12)).astype(np.float32), np.array([UNSEEN, 0], np.float32))
            for total, side in zip(totals, self._sides, strict=True)
        ]

    def cells(self, group: PairGroup) -> Cells:
        """Return the keys of a group of pairs, each of them once, and where they are in the group."""
        wanted_BTS = group.keys_BTS(len(self.frequencies[1]))
        found_BTS, is_there_BTS = self._find(wanted_BTS)
        unseen_BTS = np.where(wanted_BTS < 0, len(self.keys) + 1, len(self.keys))
        found_BTS = np.where(is_there_BTS & (wanted_BTS >= 0), found_BTS, unseen_BTS)
        is_used = np.zeros(len(self.keys) + 2, np.bool_)
        is_used[found_BTS] = True
        used = np.flatnonzero(is_used)
        places = np.empty(len(self.keys) + 2, np.int32)
        places[used] = np.arange(len(used))
        return Cells(used, places[found_BTS])

    def _find(self, wanted: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
        """Return the index in `keys` of each wanted key, which is meaningless if it is not there; and if it is."""
        if self._index is not None:
            return self._index.find(wanted)
        found = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return found, self.keys[found] == wanted

    def posteriors(self, group: PairGroup, cells: Cells, ordered: bool) -> tuple[Floats, list[Counts]]:
        """Return BTS, the product of each link's probabilities in both directions; and, if `ordered`, the expected
        count of each jump (see `FURTHEST`) in each direction.

        Args:
            ordered: Whether to use the hidden Markov models, in which the link of a token depends on that of the token
                before it, instead of IBM model 1.
        """
        product_BTS: Floats = np.ones(cells.places_BTS.shape, np.float32)
        jumps: list[Counts] = []
        for direction, (observed, table) in enumerate(
            zip((group.target_BT, group.source_BS), self._tables, strict=True)
        ):
            emitted = table[cells.keys][cells.places_BTS]
            nowhere = FROM_NOWHERE * self.frequencies[1 - direction][observed]
            nowhere[observed == special.PAD] = 1.0
            emitted = emitted if direction == 0 else np.ascontiguousarray(emitted.mT)
            if ordered:
                linked, jumped = _in_order(emitted, nowhere, self._jumps[direction])
                jumps.append(jumped)
            else:
                states = np.maximum((emitted > 0).sum(-1, keepdims=True), 1)
                emitted *= (1 - FROM_NOWHERE) / states
                linked = emitted / (emitted.sum(-1, keepdims=True) + nowhere[:, :, None])
            product_BTS *= linked if direction == 0 else linked.mT
        return product_BTS, jumps

    def learn(self, known: list[tuple[PairGroup, Cells]], ordered: bool) -> None:
        """Make one iteration of expectation maximisation over groups of pairs, each given with its `cells`."""
        counts = np.zeros(len(self.keys) + 2)
        jumped = [np.zeros(2 * FURTHEST + 1) for _ in range(2)]
        for group, cells in known:
            product_BTS, jumps = self.posteriors(group, cells, ordered)
            counts[cells.keys] += np.bincount(cells.places_BTS.ravel(), product_BTS.ravel(), len(cells.keys))
            for total, made in zip(jumped, jumps, strict=False):
                total += made
        self._normalise(counts[:-2])
        if ordered:
            self._jumps = [((total + 1) / (total + 1).sum()).astype(np.float32) for total in jumped]

    def align(self, store: Store, indices: Int64s) -> NDArray[np.int64]:
        """Return the position of the source token, or `NONE`, for each target token (and END) of pairs `indices`."""

        def best(group: PairGroup) -> Int64s:
            product_BTS, _ = self.posteriors(group, self.cells(group), ordered=True)
            return np.where(product_BTS.max(-1) > SURE, product_BTS.argmax(-1), NONE)

        return _aligned(store, indices, best)


class CopyAligner:
    """Links target tokens to equal source tokens, in stretches that both have in common (`SHORTEST_STRETCH`).

    The longest stretch of a pair is linked first, then the longest of what is left, and so on, at most `MOST_STRETCHES`
    times; each token of either side is linked at most once (greedy string tiling, Wise 1993). Unlike a diff, this finds
    stretches whose order differs between the sides.

    Args:
        equal: For each target token, the id of the source token with the same spelling; `NONE` if there is none, and
            for special tokens.
    """

    def __init__(self, equal: Sequence[int]) -> None:
        self._equal = np.array(equal, np.int64)

    def align(self, store: Store, indices: Int64s) -> NDArray[np.int64]:
        """Return the position of the source token, or `NONE`, for each target token (and END) of pairs `indices`."""
        return _aligned(store, indices, self._linked)

    def _linked(self, group: PairGroup) -> Int64s:
        equal_BTS = self._equal[group.target_BT][:, :, None] == group.source_BS[:, None, :]
        links_BT = np.full(group.target_BT.shape, NONE, np.int64)
        left, S = np.arange(len(links_BT)), equal_BTS.shape[2]
        for _ in range(MOST_STRETCHES):
            if not len(left):
                break
            lengths = _stretch_lengths(equal_BTS[left]).reshape(len(left), -1)
            ends = lengths.argmax(-1)
            sizes = lengths[np.arange(len(left)), ends]
            left, ends, sizes = (each[sizes >= SHORTEST_STRETCH] for each in (left, ends, sizes))
            for pair, end, size in zip(left.tolist(), ends.tolist(), sizes.tolist(), strict=True):
                target, source = (slice(place + 1 - size, place + 1) for place in divmod(end, S))
                links_BT[pair, target] = np.arange(source.start, source.stop)
                equal_BTS[pair, target] = equal_BTS[pair, :, source] = False
        return links_BT


def _stretch_lengths(equal_BTS: NDArray[np.bool_]) -> NDArray[np.int16]:
    """Return BTS: for each target and source token, the length of the longest stretch in common that ends with them."""
    lengths_BTS = equal_BTS.astype(np.int16)
    for t in range(1, equal_BTS.shape[1]):
        lengths_BTS[:, t, 1:] += lengths_BTS[:, t - 1, :-1] * equal_BTS[:, t, 1:]
    return lengths_BTS


def _aligned(store: Store, indices: Int64s, linked: Callable[[PairGroup], Int64s]) -> NDArray[np.int64]:
    """Return a source position or `NONE` for each target token (and END) of the pairs `indices` of a store.

    Args:
        linked: Function that returns BT, the source positions of the target tokens of a group of pairs.
    """
    lengths = store.target_lengths(indices)
    starts = lengths.cumsum() - lengths
    places_N = np.full(lengths.sum(), NONE, np.int64)
    for group in groups(store, indices):
        links_BT = linked(group)
        keep_BT = group.target_BT != special.PAD
        rows_BT = starts[group.members, None] + np.arange(links_BT.shape[1])
        places_N[rows_BT[keep_BT]] = links_BT[keep_BT]
    return places_N


def chosen(pairs: int) -> Int64s:
    """Return the sorted indices of the pairs to align: all, or a random one of each few neighbours (`MOST_PAIRS`).

    Every n-th pair would be no even sample of a corpus in which, say, two directions alternate.
    """
    every = 1 + pairs // MOST_PAIRS
    starts = np.arange(0, pairs, every)
    return np.random.default_rng(0).integers(starts, np.minimum(starts + every, pairs))


def learn(store: Store) -> Aligner:
    """Learn an aligner from the pairs of a store, or from an even sample of them (`MOST_PAIRS`, `MOST_CELLS`)."""
    some = chosen(len(store))
    cells = np.minimum(store.source_lengths(some), LONGEST) * np.minimum(store.target_lengths(some), LONGEST)
    some = some[:: 1 + int(cells.sum()) // MOST_CELLS]
    found = list(groups(store, some))
    # Sorted here, because `np.unique` has a hash table, which takes three times as long for so many equal keys.
    keys = np.concatenate([np.zeros(1, np.int64), *(group.keys_BTS(store.vocabularies[1]).ravel() for group in found)])
    keys.sort()
    keys = keys[np.append(True, keys[1:] != keys[:-1])]
    frequencies = []
    for side, size in enumerate(store.vocabularies):
        tokens = np.concatenate([np.arange(size), *((each.source_BS, each.target_BT)[side].ravel() for each in found)])
        counts = np.bincount(tokens[tokens != special.PAD], minlength=size)
        frequencies.append((counts / counts.sum()).astype(np.float32))
    aligner = Aligner(keys[keys >= 0], frequencies)
    known = [(group, aligner.cells(group)) for group in found]
    for ordered, rounds in zip((False, True), ROUNDS, strict=True):
        for _ in range(rounds):
            aligner.learn(known, ordered)
    return aligner


def write_links(aligner: Aligner | CopyAligner, store: Store) -> float:
    """Align the pairs of a store, or an even sample of them, and write the links beside its tokens.

    Returns:
        The share of the target tokens of these pairs, not counting END, that have a link.
    """
    some, every = chosen(len(store)), 1 + len(store) // MOST_PAIRS
    size = BLOCK * min(every, 10)
    linked, tokens = 0, 0
    with (store.folder / LINKS).open("wb") as file:
        for first in range(0, len(store), size):
            block = np.arange(first, min(first + size, len(store)))
            lengths = store.target_lengths(block)
            is_aligned = some[block // every] == block
            places = np.full(lengths.sum(), NO_LINK, "<u2")
            found = aligner.align(store, block[is_aligned])
            places[np.repeat(is_aligned, lengths)] = np.where(found == NONE, NO_LINK, found)
            file.write(places.tobytes())
            linked, tokens = linked + int((found != NONE).sum()), tokens + len(found) - int(is_aligned.sum())
    return linked / max(1, tokens)


def link(train: Path, valid: Path, vocabularies: tuple[int, int], equal: Sequence[int], least: float) -> float:
    """Align the stores in the folders `train` and `valid`, and write their links; write none if less than a share of
    `least` of the target tokens of `valid` are linked.

    A statistical aligner is learned from `train`. If it links less than `LEAST_LINKED` of the target tokens of `valid`,
    and `CopyAligner` links more, the latter is used.

    Returns:
        The share of the target tokens of `valid` that the chosen aligner links.
    """
    store, validation = Store(train, vocabularies), Store(valid, vocabularies)
    aligner: Aligner | CopyAligner = learn(store)
    share = write_links(aligner, validation)
    if share < LEAST_LINKED:
        copier = CopyAligner(equal)
        copied = write_links(copier, validation)
        if copied > share:
            aligner, share = copier, copied
        elif share >= least:
            write_links(aligner, validation)  # they replace the links of the other aligner
    if share < least:
        (valid / LINKS).unlink()
    else:
        write_links(aligner, store)
    return share


def prepare(
    settings: Settings,
    train: Store,
    valid: Store,
    equal: Sequence[int],
    say: Callable[[str], None],
    yours: Collection[str],
    call: Callable[..., Any] = operator.call,
) -> Settings:
    """Write the links that the alignment loss needs, and return `settings`. If no aligner links at least a share
    of `LEAST_LINKED` of the target tokens of the validation set, write none, and return settings without this loss.

    Args:
        equal: For each target token, the id of the source token with the same spelling (`Tokenizers.equal_tokens`).
        yours: Names of the settings that the user has set; if `training.alignment_weight` is one, the loss is kept.
        call: Function that calls `link` with its arguments, as `operator.call` does, perhaps in another process.
    """
    weight, architecture = settings.training.alignment_weight, settings.model.architecture
    if architecture != "transformer":
        raise SettingError(
            f"training.alignment_weight = {weight:g}: model.architecture = '{architecture}' has no attention "
            "heads for the alignment loss. Leave it out"
        )
    say("aligning tokens")
    least = 0.0 if "training.alignment_weight" in yours else LEAST_LINKED
    share = call(link, train.folder, valid.folder, train.vocabularies, equal, least)
    if share < least:
        say(
            f"no alignment loss: a word aligner links only {share:.0%} of the target tokens of the validation set to a "
            "source token"
        )
        return replace(settings, training=replace(settings.training, alignment_weight=0.0))
    return settings


def _in_order(emitted_BTS: Floats, nowhere_BT: Floats, jumps: Floats) -> tuple[Floats, Counts]:
    """Return the probability of each link under a hidden Markov model, and the expected count of each jump.

    Each of S states has a twin for tokens without a source, which keeps the position of the state before it (Och and
    Ney 2003). In the padding, only the twin continues, with probability 1.
    """
    B, T, S = emitted_BTS.shape
    distances_SS = np.clip(np.arange(S) - np.arange(S)[:, None], -FURTHEST, FURTHEST) + FURTHEST
    jump_SS = jumps[distances_SS] * np.float32(1 - FROM_NOWHERE)
    alpha_TBS, linked_TBS = np.empty((T, B, S), np.float32), np.empty((T, B, S), np.float32)
    scale_TB = np.empty((T, B), np.float32)
    emitted_TBS, nowhere_TB = np.ascontiguousarray(emitted_BTS.transpose(1, 0, 2)), np.ascontiguousarray(nowhere_BT.T)
    moved_BS = np.broadcast_to(jumps[np.clip(np.arange(1, S + 1), 0, FURTHEST) + FURTHEST], (B, S))
    before_BS = moved_BS * (emitted_TBS.max(0) > 0)
    for t in range(T):
        linked_TBS[t] = moved_BS * emitted_TBS[t]
        alpha_BS = linked_TBS[t] + nowhere_TB[t, :, None] * before_BS
        scale_TB[t] = np.maximum(alpha_BS.sum(-1), 1e-30)
        before_BS = alpha_TBS[t] = alpha_BS / scale_TB[t, :, None]
        moved_BS = before_BS @ jump_SS
    linked_TBS /= scale_TB[:, :, None]
    beta_BS = np.ones((B, S), np.float32)
    made_SS = np.zeros((S, S), np.float32)
    for t in reversed(range(T)):
        linked_TBS[t] *= beta_BS
        if t:
            ahead_BS = emitted_TBS[t] * beta_BS / scale_TB[t, :, None]
            made_SS += alpha_TBS[t - 1].T @ ahead_BS
            beta_BS = ahead_BS @ jump_SS.T + (nowhere_TB[t] / scale_TB[t])[:, None] * beta_BS
    made = np.bincount(distances_SS.ravel(), (made_SS * jump_SS).ravel(), len(jumps))
    return linked_TBS.transpose(1, 0, 2), made.astype(np.float64)
