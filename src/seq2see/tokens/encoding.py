"""Texts of pairs become ids for a store, a block at a time and on all cores; pairs that are too long are left out."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from seq2see import processes
from seq2see.errors import DataError
from seq2see.text.pair import Pair
from seq2see.text.rows import in_blocks
from seq2see.tokens import store, tokenizers
from seq2see.tokens.tokenizers import Tokenizer

BLOCK: Final = 2000
"""Pairs that are sent to another process at once."""
Texts = tuple[list[str], list[str]]
Sides = tuple[Tokenizer, Tokenizer]
"""The tokenizers of source and target."""
TooLong = Counter[int]
"""Pairs that were left out for a side of too many tokens, by the power of two that would have held them."""


class Tokenising:
    """Cuts the texts of both sides, by tokenizers that were saved; with the ids, what was left out.

    Args:
        files: of the tokenizers of source and target; the same where one serves both sides.
        limit: a pair with more tokens on one side is left out.
    """

    def __init__(self, files: tuple[Path, Path], limit: int) -> None:
        self._source = tokenizers.load(files[0])
        self._target = self._source if files[0] == files[1] else tokenizers.load(files[1])
        self._limit = limit
        self._vocabulary = max(len(self._source), len(self._target))

    def __call__(self, texts: Texts) -> tuple[store.Block, TooLong]:
        fit, too_long = [], TooLong()
        for pair in zip(self._source.encode(texts[0]), self._target.encode(texts[1]), strict=True):
            if (length := max(map(len, pair))) <= self._limit:
                fit.append(pair)
            else:
                too_long[_power_of_two(length)] += 1
        return store.pack(fit, self._vocabulary), too_long


def tokenised(pairs: Iterable[Pair], files: tuple[Path, Path], limit: int) -> Iterator[tuple[store.Block, TooLong]]:
    """All pairs in their order, as `Tokenising` cuts them."""
    return processes.in_order(Tokenising, (files, limit), _texts(pairs))


def short_enough(pairs: Sequence[Pair], cut: Sides, limit: int) -> tuple[list[Pair], TooLong]:
    """Return the pairs of at most `limit` tokens on either side, and the counts of the others."""
    kept, too_long = [], TooLong()
    sources = cut[0].encode([pair.source for pair in pairs])
    targets = cut[1].encode([pair.target for pair in pairs])
    for pair, *tokens in zip(pairs, sources, targets, strict=True):
        if (length := max(map(len, tokens))) <= limit:
            kept.append(pair)
        else:
            too_long[_power_of_two(length)] += 1
    return kept, too_long


def for_validation(
    name: str, pairs: list[Pair], cut: Sides, limit: int, say: Callable[[str], None], refuse: bool = False
) -> list[Pair]:
    """Return the pairs of a validation set that are short enough, and say how many are not; all where none is.

    Args:
        refuse: Raise an error where most are too long: what is left would not tell which model is the best.
    """
    kept, too_long = short_enough(pairs, cut, limit)
    if not too_long:
        return kept
    lost = f"{name}: {too_long.total():,} of {len(pairs):,} pairs are longer than data.max_length = {limit} tokens"
    remedy = f"--set data.max_length={enough(too_long, len(pairs))} keeps nearly all"
    if refuse and 2 * len(kept) < len(pairs):
        raise DataError(f"{lost}, and too few are left to choose a model by. {remedy}; or give shorter ones by --valid")
    say(f"warning   {lost} and are left out. {remedy}")
    return kept or pairs


def unreachable(pairs: Sequence[Pair], cut: Sides) -> int:
    """Return the number of pairs none of whose references the target tokenizer can write."""
    can_write = cut[1].can_write
    return sum(not any(map(can_write, (pair.target, *pair.references))) for pair in pairs)


def _power_of_two(length: int) -> int:
    """Return the smallest power of two that is not below `length`."""
    return 1 << (length - 1).bit_length()


def enough(too_long: TooLong, pairs: int) -> int:
    """The least power of two that would leave at most one in a hundred of all pairs out."""
    left = too_long.total()
    for length in sorted(too_long):
        left -= too_long[length]
        if 100 * left <= pairs:
            break
    return length


def _texts(pairs: Iterable[Pair]) -> Iterator[Texts]:
    for block in in_blocks(pairs, BLOCK):
        yield [pair.source for pair in block], [pair.target for pair in block]
