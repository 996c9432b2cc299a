"""SentencePiece models from anywhere: what is refused before SentencePiece itself reads them."""

from collections.abc import Iterator


def refuse_tables(model: bytes) -> None:
    """Refuse a SentencePiece model that brings tables of its own to normalise text by.

    A table is a serialised trie, which SentencePiece follows in C++. Our models have none: we normalise text before.
    """
    for number, specification in _fields(model):
        if number in (NORMALIZER, DENORMALIZER) and any(
            each == TABLE and table for each, table in _fields(specification)
        ):
            raise ValueError("not a SentencePiece model of ours: it normalises text by a table")


NORMALIZER, DENORMALIZER, TABLE = 3, 5, 2
"""Numbers of fields in sentencepiece_model.proto."""


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of those fields of a protocol buffer that are bytes; ValueError where it is none."""
    place = 0

    def number() -> int:
        nonlocal place
        found, shift = 0, 0
        while True:
            if place >= len(message) or shift > 63:
                raise ValueError("not a SentencePiece model: cut short")
            byte = message[place]
            place += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    while place < len(message):
        tag = number()
        match tag & 7:
            case 0:
                number()
            case 1:
                place += 8
            case 2:
                length = number()
                yield tag >> 3, message[place : place + length]
                place += length
            case 5:
                place += 4
            case _:
                raise ValueError("not a SentencePiece model: a field of no known kind")
