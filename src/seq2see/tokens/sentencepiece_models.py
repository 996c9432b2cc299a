"""Train SentencePiece models, and refuse dangerous ones before SentencePiece reads them."""

import io
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import sentencepiece

from seq2see import special
from seq2see.errors import DataError

UNKNOWN_MARK: Final = "⁇"
SPACE_MARK: Final = "▁"  # SentencePiece writes a space so, and labels show one so

# SentencePiece writes a space as "▁", so that a "▁" in the text would come back as a space. We spell it with an escape,
# U+FDD0, one of the code points that Unicode keeps free for inner use like this, and the escape itself with the escape.
_ESCAPE = "\ufdd0"
_ESCAPED = ((_ESCAPE, _ESCAPE + "0"), (SPACE_MARK, _ESCAPE + "1"))


def escape(text: str) -> str:
    if not text.isascii():
        for plain, escaped in _ESCAPED:
            text = text.replace(plain, escaped)
    return text


def unescape(text: str) -> str:
    for plain, escaped in reversed(_ESCAPED):
        text = text.replace(escaped, plain)
    return text


SAMPLE_TEXTS: Final = 500_000
SAMPLE_CHARACTERS: Final = 4_000


def sample(texts: Iterable[str]) -> list[str]:
    """Choose at most `SAMPLE_TEXTS` texts with equal probability (reservoir sampling), each cut to its first
    `SAMPLE_CHARACTERS` characters.
    """
    chosen: list[str] = []
    dice = random.Random(1)
    for seen, text in enumerate(texts):
        if seen < SAMPLE_TEXTS:
            chosen.append(text[:SAMPLE_CHARACTERS])
        elif (place := dice.randrange(seen + 1)) < SAMPLE_TEXTS:
            chosen[place] = text[:SAMPLE_CHARACTERS]
    return chosen


def learn(kind: str, texts: Iterable[str], vocabulary: int, tags: Sequence[str]) -> bytes:
    """Learn a SentencePiece model and return its bytes.

    Args:
        kind: "unigram" or "bpe".
        vocabulary: Maximum number of tokens; it is raised if it is too small for special tokens, tags, bytes and the
            alphabet.
        tags: Language tags. Each gets a token (a control symbol) that SentencePiece never makes from a text.
    """
    texts = [escape(text) for text in sample(texts) if text]
    if not texts:
        raise DataError("no text to train a tokenizer on: every line is empty")
    alphabet = _alphabet(texts, vocabulary)
    # SentencePiece never learns a piece across a tab, and no tab either: what is outside the alphabet is left to bytes.
    outside = re.compile(f"[^{re.escape(''.join(alphabet))} ]")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(outside.sub("\t", text) for text in texts),
        model_writer=written,
        model_type=kind,
        vocab_size=max(vocabulary, special.COUNT + len(tags) + 256 + len(alphabet) + 1),
        control_symbols=list(tags),  # which no text can spell
        hard_vocab_limit=False,
        character_coverage=1.0,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        max_sentence_length=4 * SAMPLE_CHARACTERS,
        shuffle_input_sentence=False,
        num_threads=8,  # a constant: partial sums, and with them the pieces, depend on it
        pad_id=special.PAD,
        unk_id=special.UNKNOWN,
        bos_id=special.BEGIN,
        eos_id=special.END,
        pad_piece=special.SPELLINGS[special.PAD],
        unk_piece=special.SPELLINGS[special.UNKNOWN],
        bos_piece=special.SPELLINGS[special.BEGIN],
        eos_piece=special.SPELLINGS[special.END],
        unk_surface=UNKNOWN_MARK,
        minloglevel=2,
    )
    return written.getvalue()


def _alphabet(texts: list[str], vocabulary: int) -> list[str]:
    """Return the characters, except the space, that get a token of their own, most frequent first.

    Other characters are spelled in bytes. An alphabet of up to 1,000 characters is taken whole; of a larger one, such
    as Korean, enough for 99.95 % of the text. But it never takes more than half of the vocabulary that special tokens
    and bytes leave, or 128 characters if that is more (a Latin alphabet always fits).
    """
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    total = counts.total()
    for never in " \t\n\r\0\u2585":  # the space has its mark; the others mean something to SentencePiece's trainer
        counts.pop(never, None)
    alphabet = sorted(counts, key=lambda character: (-counts[character], character))
    if len(alphabet) > 1000:
        uncovered = total * 0.0005
        while counts[alphabet[-1]] <= uncovered:
            uncovered -= counts[alphabet.pop()]
    return alphabet[: max(128, (vocabulary - special.COUNT - 256) // 2)]


def refuse_tables(model: bytes) -> None:
    """Raise ValueError if a SentencePiece model contains a table for normalising text.

    Such a table is a serialised trie, which SentencePiece follows in C++ without checks. Models trained by seq2see have
    none, since `tokenizers.normalize` normalises their texts.
    """
    for number, specification in _fields(model):
        if number in (NORMALIZER, DENORMALIZER) and any(
            each == TABLE and table for each, table in _fields(specification)
        ):
            raise ValueError("not a SentencePiece model of seq2see: it normalises text by a table")


def of_characters(characters: Sequence[str]) -> bytes:
    """Return a SentencePiece model that splits a text into these characters and does not normalise it."""

    def field(number: int, content: bytes) -> bytes:
        return _number(number << 3 | 2) + _number(len(content)) + content

    def whole(number: int, value: int) -> bytes:
        return _number(number << 3) + _number(value)

    kinds = {special.SPELLINGS[special.UNKNOWN]: 2, "<s>": 3, "</s>": 3}  # unknown, control
    pieces = [(each, kinds[each]) for each in kinds] + [(each, 1) for each in characters]
    listed = b"".join(
        field(1, field(1, piece.encode()) + b"\x15" + bytes(4) + whole(3, kind)) for piece, kind in pieces
    )
    trainer = whole(3, 4) + whole(40, 0) + whole(41, 1) + whole(42, 2)  # a model of characters; ids of the first three
    normalizer = field(1, b"identity") + whole(3, 0) + whole(4, 0) + whole(5, 1)  # no space in front, spaces are kept
    return listed + field(2, trainer) + field(NORMALIZER, normalizer)


def _number(value: int) -> bytes:
    """Return an integer, 0 or more, as a varint of protocol buffers."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def surfaces(encoded: bytes) -> list[tuple[int, int]]:
    """Return the span of characters (start, end) of each token, given the serialised protobuf of SentencePiece's
    `encode`.
    """
    spans, end = [], 0
    for token in (content for number, content in _fields(encoded) if number == TOKEN):
        begin = end
        end += sum(len(content.decode(errors="replace")) for number, content in _fields(token) if number == SURFACE)
        spans.append((begin, end))
    return spans


def check_tables(model: bytes) -> None:
    """Raise ValueError if a normalisation table would make SentencePiece read outside of the table.

    A table consists of the size of the trie in bytes, the trie (Darts, an array of 32-bit units), and the replacements,
    each ended by a zero. From unit `i` one step leads to a unit in the block of 256 around `i ^ offset`.
    """
    for number in (NORMALIZER, DENORMALIZER):
        if found := table(model, number):
            _check_table(found)


def table(model: bytes, which: int = 3) -> bytes:
    """Return the normalisation table of a SentencePiece model; empty if it has none.

    Args:
        which: The field that has the table: `NORMALIZER`, or `DENORMALIZER` for that of decoding.
    """
    parts = [content for number, content in _fields(model) if number == which]
    return b"".join(content for part in parts for number, content in _fields(part) if number == TABLE)


def _check_table(table: bytes) -> None:
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 1024 or not 0 < size < len(table) - 4 or table[-1]:
        raise ValueError("a damaged table of its normalisation")
    units = np.frombuffer(table, "<u4", size // 4, 4)
    is_value = units >> 31 == 1
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    reached = (np.arange(len(units), dtype=np.uint32) ^ offsets) | 255
    if (reached[~is_value] >= len(units)).any() or not (reached[0] < len(units) and not is_value[0]):
        raise ValueError("a damaged table of its normalisation")
    leads_to_value = ~is_value & ((units >> 8) & 1 == 1)
    values = units[(np.arange(len(units), dtype=np.uint32) ^ offsets)[leads_to_value]] & 0x7FFFFFFF
    if (values >= len(table) - 4 - size).any():
        raise ValueError("a damaged table of its normalisation")


NORMALIZER, DENORMALIZER, TABLE = 3, 5, 2
"""Numbers of protocol buffer fields in sentencepiece_model.proto: normalizer_spec, denormalizer_spec, and the table in
them.
"""
TOKEN, SURFACE = 2, 3
"""Numbers of protocol buffer fields in sentencepiece.proto: the tokens (pieces) of a text, and the surface of a token,
which is the text that it was made from.
"""


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the length-delimited fields of a protocol buffer, and skip other fields.

    Raise ValueError if it is not valid.
    """
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
                if place + length > len(message):
                    raise ValueError("not a SentencePiece model: cut short")
                yield tag >> 3, message[place : place + length]
                place += length
            case 5:
                place += 4
            case _:
                raise ValueError("not a SentencePiece model: a field of no known kind")


def visible(piece: str) -> str:
    """Return a token for display: spaces are shown as `▁`, unprintable characters as escapes (a tab as backslash t)."""
    shown = piece.replace(" ", SPACE_MARK)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def label(processor: sentencepiece.SentencePieceProcessor, id: int) -> str:
    """Return a token for display (see `visible`); the token of a byte outside of ASCII is shown as `xE3`."""
    piece: str = processor.id_to_piece(id)
    if not processor.is_byte(id):
        return visible(unescape(piece))
    value = int(piece[1:-1], 16)  # "<0xE3>"
    return chr(value) if 0x20 < value < 0x7F else f"x{value:02X}"
