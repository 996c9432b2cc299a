"""Stores of tokenised pairs that tests write from lists of ids."""

from collections.abc import Iterable
from pathlib import Path

from seq2see.tokens import store
from seq2see.tokens.store import Store


def write(folder: Path, encoded: Iterable[tuple[list[int], list[int]]], vocabulary: int) -> Store:
    """Write pairs of (source ids, target ids), each a block of its own, to a store, adding END to each side; open it.

    Args:
        vocabulary: Size of the larger vocabulary; it decides how many bytes a token takes.
    """
    return store.write_blocks(folder, (store.pack([pair], vocabulary) for pair in encoded), vocabulary)
