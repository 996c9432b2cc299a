"""The tokenised corpus on disk, memory-mapped: a corpus larger than memory can be trained on.

Texts become ids on all cores (`tokenised`), a block of pairs at a time; pairs that are too long are left out.

    source.tokens   every source end to end, each closed by END; uint16, or uint32 for a vocabulary above 65,536
    source.offsets  int64, one more than there are pairs: source i is tokens[offsets[i] : offsets[i + 1]]
    target.*        the same for the targets
    target.links    if the pairs were aligned: for each target token the position of its source token in the source,
                    uint16; 65,535 for none
    store.json      format, dtype and counts; written last, so that a folder without it is incomplete

Numbers are little-endian, so that a folder may move between machines.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2see import config, machine, special, storage
from seq2see.config import Data
from seq2see.errors import DataError, RunError
from seq2see.text.pair import Pair
from seq2see.text.rows import in_blocks
from seq2see.text.tags import NO_TAGS, TagWords, language_tag, tag_words
from seq2see.tokens import tokenizers
from seq2see.tokens.interface import Tokenizer
from seq2see.tokens.tokenizers import normalize

Int64s = NDArray[np.int64]

FORMAT: Final = 1
DTYPES: Final = ("<u2", "<u4")
LINKS: Final = "target.links"
NO_LINK: Final = 0xFFFF
"""Value in the file of links for a target token that is not linked with a source token, or whose pair was not
aligned.
"""


class Store:
    """The tokenised pairs in a folder: their lengths, tokens and word alignment, by index.

    Args:
        vocabularies: Sizes of the source and target vocabulary: reading an id that is not smaller raises an error. If
            not given, both are the size of the larger one, as `store.json` has it.
    """

    def __init__(self, folder: Path, vocabularies: tuple[int, int] | None = None) -> None:
        try:
            about = storage.read_json(folder / "store.json")
            pairs, dtype = int(about["pairs"]), np.dtype(about["dtype"])
            if about["format"] != FORMAT:
                raise DataError(
                    f"{folder}: tokenised corpus of format {about['format']}, expected {FORMAT}. Copy the run again, "
                    "or train again with --force"
                )
            if dtype.str not in DTYPES:
                raise ValueError(f"dtype {dtype}")
            self.source_tokens, self.target_tokens = int(about["source_tokens"]), int(about["target_tokens"])
            self.vocabularies = vocabularies or (int(about["vocabulary"]), int(about["vocabulary"]))
            if min(pairs, self.source_tokens, self.target_tokens) < 1:
                raise ValueError("nothing in it")
        except FileNotFoundError:
            raise DataError(
                f"{folder}: no store.json, so the tokenised corpus is missing or half written. Copy the run again, or "
                "train again with --force"
            ) from None
        except (ValueError, KeyError, TypeError, OverflowError, OSError) as problem:
            raise DataError(
                f"{folder}: damaged store.json. Copy the run again, or train again with --force"
            ) from problem
        self.folder = folder
        self._source = _open(folder / "source.tokens", dtype, self.source_tokens)
        self._target = _open(folder / "target.tokens", dtype, self.target_tokens)
        self._source_offsets = _open(folder / "source.offsets", np.dtype("<i8"), pairs + 1)
        self._target_offsets = _open(folder / "target.offsets", np.dtype("<i8"), pairs + 1)
        self.has_links = (folder / LINKS).exists()
        """Whether the pairs were aligned, so that `links` can return the source token of each target token."""
        self._links = _open(folder / LINKS, np.dtype("<u2"), self.target_tokens) if self.has_links else None

    def __len__(self) -> int:
        return len(self._source_offsets) - 1

    def source_lengths(self, indices: Int64s) -> Int64s:
        """Return the number of tokens of each source, including END."""
        return self._lengths(self._source_offsets, indices, self.source_tokens)

    def target_lengths(self, indices: Int64s) -> Int64s:
        """Return the number of tokens of each target, including END."""
        return self._lengths(self._target_offsets, indices, self.target_tokens)

    def _lengths(self, offsets: Int64s, indices: Int64s, tokens: int) -> Int64s:
        starts, ends = offsets[indices], offsets[indices + 1]
        lengths = np.asarray(ends - starts)
        if len(indices) and (lengths.min() < 1 or starts.min() < 0 or ends.max() > tokens):
            raise DataError(
                f"{self.folder}: source.offsets or target.offsets is damaged. Copy the run again, or train again with "
                "--force"
            )
        return lengths

    def gather(self, indices: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return source tokens, their offsets, target tokens and their offsets, of the given pairs packed end to end,
        in the order of `indices`.
        """
        self.source_lengths(indices), self.target_lengths(indices)  # looked at: a wrong one would ask for any memory
        sides = (
            *_gather(self._source, self._source_offsets, indices),
            *_gather(self._target, self._target_offsets, indices),
        )
        if sides[0].max() >= self.vocabularies[0] or sides[2].max() >= self.vocabularies[1]:
            raise DataError(
                f"{self.folder}: source.tokens or target.tokens is damaged. Copy the run again, or train again with "
                "--force"
            )
        return sides

    def links(self, indices: Int64s) -> Int64s:
        """Return for each target token of the given pairs, including END, the position in its source of the token that
        it translates; -1 for none.
        """
        if self._links is None:
            raise DataError(
                f"{self.folder}: no {LINKS}, which training.alignment_weight needs. Train again with --force"
            )
        lengths = self.target_lengths(indices)
        places, _ = _gather(self._links, self._target_offsets, indices)
        places[places == NO_LINK] = -1
        if np.any(places >= np.repeat(self.source_lengths(indices), lengths)):
            raise DataError(f"{self.folder}: {LINKS} is damaged. Copy the run again, or train again with --force")
        return places


class Block(NamedTuple):
    """Tokenised pairs as a store keeps them: the tokens of each side end to end, END after each text, and the lengths
    with END.
    """

    source: NDArray[np.unsignedinteger]
    source_lengths: Int64s
    target: NDArray[np.unsignedinteger]
    target_lengths: Int64s


def pack(encoded: Sequence[tuple[list[int], list[int]]], vocabulary: int) -> Block:
    """Return a block of (source ids, target ids), adding END to each side.

    Args:
        vocabulary: Size of the larger vocabulary; it decides how many bytes a token takes.
    """
    sides = []
    for side in (0, 1):
        ids: list[int] = []
        for pair in encoded:
            ids += pair[side]
            ids.append(special.END)
        sides += [np.array(ids, _dtype(vocabulary)), np.array([len(pair[side]) + 1 for pair in encoded], np.int64)]
    return Block(*sides)


def write_blocks(folder: Path, blocks: Iterable[Block], vocabulary: int) -> Store:
    """Write blocks to a store and open it; an earlier store in the folder is replaced. No pairs at all are an error.

    Args:
        vocabulary: Size of the larger vocabulary; it decides how many bytes a token takes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in ("store.json", LINKS):
        (folder / earlier).unlink(missing_ok=True)
    with _SideFiles(folder, "source") as source, _SideFiles(folder, "target") as target:
        for block in blocks:
            source.add(block.source, block.source_lengths)
            target.add(block.target, block.target_lengths)
    if not source.pairs:
        raise _NoPairsError(f"{folder}: no pairs to store. Is every line of the corpus empty or too long?")
    about = {"format": FORMAT, "dtype": _dtype(vocabulary).str, "vocabulary": vocabulary, "pairs": source.pairs}
    about |= {"source_tokens": source.tokens, "target_tokens": target.tokens}
    (folder / "store.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return Store(folder)


class _NoPairsError(DataError):
    """There is no pair to store."""


def _dtype(vocabulary: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype(DTYPES[vocabulary > 1 << 16])


class _SideFiles:
    """The open files of one side of a store that is being written."""

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = folder / f"{name}.tokens", folder / f"{name}.offsets"
        self.pairs = self.tokens = 0

    def __enter__(self) -> "_SideFiles":
        self._files: tuple[BinaryIO, BinaryIO] = self._paths[0].open("wb"), self._paths[1].open("wb")
        self._files[1].write(np.zeros(1, "<i8").tobytes())
        return self

    def add(self, tokens: NDArray[np.unsignedinteger], lengths: Int64s) -> None:
        self._files[0].write(tokens.tobytes())
        self._files[1].write((self.tokens + lengths.cumsum()).astype("<i8").tobytes())
        self.pairs += len(lengths)
        self.tokens += len(tokens)

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()


def _open(path: Path, dtype: np.dtype[np.generic], count: int) -> NDArray[Any]:
    """Memory-map a file of numbers, after checking that it has exactly `count` of them."""
    size = path.stat().st_size if path.exists() else 0
    if size != count * dtype.itemsize:
        raise DataError(
            f"{path}: {size} bytes, expected {count * dtype.itemsize}: cut short or missing. Copy the run again, or "
            "train again with --force"
        )
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def _gather(tokens: NDArray[Any], offsets: Int64s, indices: Int64s) -> tuple[Int64s, Int64s]:
    """Return the sequences with these indices end to end, and their offsets there, by a single indexing operation."""
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    packed_offsets = np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
    places = np.repeat(starts - packed_offsets[:-1], lengths) + np.arange(packed_offsets[-1])
    return tokens[places].astype(np.int64), packed_offsets


# Texts to ids

SENT: Final = 2000
"""Maximum number of pairs that are sent to a worker process at a time to be tokenised."""
Texts = tuple[list[str], list[str]]
TooLong = Counter[int]
"""Counts of the pairs that are left out because a side has more tokens than a limit. The keys are powers of two: the
smallest limit that would not leave the pairs out.
"""


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides; they are the same object if the sides share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the sizes of both vocabularies."""
        return len(self.source), len(self.target)

    def equal_tokens(self) -> list[int]:
        """Return for each target token the id of the source token with the same spelling; -1 if there is none, and for
        special tokens.
        """
        ids: dict[str, int] = {}
        for number, spelling in enumerate(self.source.spellings()[special.COUNT :], special.COUNT):
            ids.setdefault(spelling, number)  # a letter comes before a tag that is spelled like it
        return [-1] * special.COUNT + [ids.get(spelling, -1) for spelling in self.target.spellings()[special.COUNT :]]

    def save(self, folder: Path) -> None:
        self.source.save(folder / "source.tokenizer.json")
        if self.target is not self.source:
            self.target.save(folder / "target.tokenizer.json")

    @staticmethod
    def learn(pairs: Sequence[Pair], data: Data) -> "Tokenizers":
        """Train the tokenizers that the settings `data` ask for, one or two, on pairs."""
        tags = [language_tag(language) for language in data.tags.split()]
        texts = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
        words = [
            tag_words((normalize(text, data.normalization) for text in side), where) if where != "none" else NO_TAGS
            for side, where in zip(texts, (data.source_tags, data.target_tags), strict=True)
        ]
        if data.shared:
            texts[0] = [text for both in zip(*texts, strict=True) for text in both]
            words[0] = TagWords(*(one | other for one, other in zip(*words, strict=True)))
        kind, size, pattern = data.source_tokenizer, data.source_vocabulary, data.source_pattern
        source = tokenizers.train(kind, texts[0], size, data.normalization, tags, pattern, words[0])
        if data.shared:
            return Tokenizers(source, source)
        kind, size, pattern = data.target_tokenizer, data.target_vocabulary, data.target_pattern
        return Tokenizers(source, tokenizers.train(kind, texts[1], size, data.normalization, (), pattern, words[1]))

    @staticmethod
    def files(folder: Path) -> tuple[Path, Path]:
        """Return the tokenizer files of source and target; the same file twice if the sides share a tokenizer."""
        source, target = folder / "source.tokenizer.json", folder / "target.tokenizer.json"
        return source, target if target.exists() else source

    @staticmethod
    def load(folder: Path) -> "Tokenizers":
        """Load the tokenizers of a run folder: one for both sides if its settings have `data.shared`, else two."""
        files, settings = Tokenizers.files(folder), config.read_settings(folder)
        shared = settings.data.shared
        if files[0] == files[1] and files[0].exists() and not shared:
            raise RunError(f"{folder / 'target.tokenizer.json'}: is missing. Copy the run again")
        if files[0] != files[1] and shared:
            raise RunError(f"{files[1]}: exists, although data.shared = true. Copy the run again")
        source = tokenizers.load(files[0])
        target = source if files[0] == files[1] else tokenizers.load(files[1])
        if settings.model.tie == "all" and len(source) != len(target):
            raise RunError(f'{folder}: model.tie = "all", but the vocabularies differ in size. Copy the run again')
        return Tokenizers(source, target)


class Tokenising:
    """Callable for worker processes that tokenises pairs; it returns a block of ids, and counts of the pairs left out.

    Args:
        files: The tokenizer files of source and target; the same file if the sides share a tokenizer.
        limit: Maximum number of tokens of a side, without END; a pair with more is left out.
    """

    def __init__(self, files: tuple[Path, Path], limit: int) -> None:
        source = tokenizers.load(files[0])
        self._tokenizers = Tokenizers(source, source if files[0] == files[1] else tokenizers.load(files[1]))
        self._limit = limit

    def __call__(self, texts: Texts) -> tuple[Block, TooLong]:
        encoded, too_long = _encoded(texts, self._tokenizers, self._limit)
        return pack([pair for pair in encoded if pair], max(self._tokenizers.sizes)), too_long


def _encoded(
    texts: Texts, tokenizers: Tokenizers, limit: int
) -> tuple[list[tuple[list[int], list[int]] | None], TooLong]:
    """Return for each pair its ids, or None if a side has more than `limit` tokens; and counts of these long pairs."""
    found: list[tuple[list[int], list[int]] | None] = []
    too_long = TooLong()
    for pair in zip(tokenizers.source.encode(texts[0]), tokenizers.target.encode(texts[1]), strict=True):
        length = max(map(len, pair))
        found.append(pair if length <= limit else None)
        if length > limit:
            too_long[1 << (length - 1).bit_length()] += 1
    return found, too_long


def tokenised(pairs: Iterable[Pair], files: tuple[Path, Path], limit: int) -> Iterator[tuple[Block, TooLong]]:
    """Tokenise pairs on all cores, and yield them in blocks, in their order.

    Each block comes with counts of the pairs that are left out because a side has more than `limit` tokens.
    """
    texts = map(_sides, in_blocks(pairs, SENT))
    return machine.parallel_map(Tokenising, (files, limit), texts, seconds=machine.SOON)


def write_tokenised(
    folder: Path, which: str, pairs: Iterable[Pair], tokenizers: Tokenizers, limit: int, name: str
) -> tuple[Store, TooLong]:
    """Tokenise pairs on all cores into the store `which` of a run folder, with the tokenizers that are saved there.

    Return the store, and counts of the pairs with more than `limit` tokens on a side, which are left out.

    Args:
        name: Name of the pairs in error messages.
    """
    too_long = TooLong()

    def blocks() -> Iterator[Block]:
        for block, left_out in tokenised(pairs, Tokenizers.files(folder), limit):
            too_long.update(left_out)
            yield block

    try:
        return write_blocks(folder / "corpus" / which, blocks(), max(tokenizers.sizes)), too_long
    except _NoPairsError:
        if too_long:
            raise DataError(
                f"{name}: all {too_long.total():,} pairs are longer than data.max_length = {limit} tokens. "
                f"Raise it: --set data.max_length={enough(too_long, too_long.total())}"
            ) from None
        raise


def longer_sides(pairs: Sequence[Pair], tokenizers: Tokenizers) -> list[int]:
    """Return the number of tokens of the longer side of each pair, without the end token."""
    sources, targets = _sides(pairs)
    return [
        max(map(len, both))
        for both in zip(tokenizers.source.encode(sources), tokenizers.target.encode(targets), strict=True)
    ]


def short_enough(pairs: Sequence[Pair], tokenizers: Tokenizers, limit: int) -> tuple[list[Pair], TooLong]:
    """Return the pairs with at most `limit` tokens on each side, and counts of the longer ones."""
    encoded, too_long = _encoded(_sides(pairs), tokenizers, limit)
    return [pair for pair, ids in zip(pairs, encoded, strict=True) if ids], too_long


def for_validation(
    name: str, pairs: list[Pair], tokenizers: Tokenizers, limit: int, say: Callable[[str], None], refuse: bool = False
) -> list[Pair]:
    """Return the validation pairs with at most `limit` tokens on each side, and report how many are longer.

    If all are longer, all are returned without a report.

    Args:
        name: Name of the validation set in messages.
        refuse: Raise an error instead if more than half are longer: too few would be left to choose the best model.
    """
    kept, too_long = short_enough(pairs, tokenizers, limit)
    if not too_long:
        return kept
    lost = f"{name}: {too_long.total():,} of {len(pairs):,} pairs are longer than data.max_length = {limit} tokens"
    remedy = f"--set data.max_length={enough(too_long, len(pairs))} keeps nearly all"
    if refuse and 2 * len(kept) < len(pairs):
        raise DataError(
            f"{lost}, and too few are left to select a model. {remedy}; or give shorter validation pairs with --valid"
        )
    if kept:
        say(f"warning: {lost} and are left out. {remedy}")
    return kept or pairs


def unreachable(pairs: Sequence[Pair], tokenizers: Tokenizers) -> int:
    """Return the number of pairs of which the target tokenizer can exactly reproduce neither target nor references."""
    can_write = tokenizers.target.can_write
    return sum(not any(map(can_write, (pair.target, *pair.references))) for pair in pairs)


def enough(too_long: TooLong, pairs: int) -> int:
    """Return the smallest key of `too_long`, a power of two, that as a limit would leave out at most 1 % of `pairs`."""
    left = too_long.total()
    for length in sorted(too_long):
        left -= too_long[length]
        if 100 * left <= pairs:
            break
    return length


def _sides(pairs: Sequence[Pair]) -> Texts:
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
