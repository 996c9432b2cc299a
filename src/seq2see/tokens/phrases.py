"""Find the tokens of a phrase within a text, tokens that continue a word, the starts of words, and inflections."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from seq2see import special
from seq2see.text import words
from seq2see.tokens import spans
from seq2see.tokens.interface import Tokenizer

MOST_CUTS: Final = 100
"""Maximum number of positions that `word_starts` returns; further words of the text are left out."""


def within(tokenizer: Tokenizer, form: str) -> list[tuple[int, ...]]:
    """Return one or two lists of ids with which a word or phrase is tokenised within a text: that after a space and, if
    its script has no spaces, that directly after another character.

    If neither gives separate tokens, the ids of `form` alone are the only list.
    """
    anchor, anchor_ids = _anchor(tokenizer)
    texts = [f"{anchor} {form}"] + ([] if words.needs_blanks(form[0]) else [f"{anchor}{form}"])
    found = []
    for ids in tokenizer.encode(texts):
        if ids[: len(anchor_ids)] == anchor_ids and len(ids) > len(anchor_ids):
            found.append(tuple(ids[len(anchor_ids) :]))
    return found or [tuple(tokenizer.encode([form])[0])]


@lru_cache(8)
def _anchor(tokenizer: Tokenizer) -> tuple[str, list[int]]:
    """Return a short text, such as `.`, whose ids do not change if a word follows, and these ids.

    Return an empty text and no ids if the tokenizer has none of the texts that are tried.
    """
    for text in (".", "。", ",", "-", "a", "e", "1"):
        ids = tokenizer.encode([text])[0]
        if special.UNKNOWN not in ids and tokenizer.encode([f"{text} {text}"])[0][: len(ids)] == ids:
            return text, ids
    return "", []


@lru_cache(8)
def inside_words(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that continue a word; it is tested whether they do so after the letter `a`."""
    before = tokenizer.encode(["a"])[0]
    start = len(tokenizer.decode(before))
    if not start:
        return frozenset()
    texts = ((id, tokenizer.decode([*before, id])) for id in range(special.COUNT, len(tokenizer)))
    return frozenset(id for id, text in texts if len(text) > start and not words.is_boundary(text, start))


def word_starts(tokenizer: Tokenizer, tokens: Sequence[int], least: int) -> list[tuple[int, int]]:
    """Return where the words of a text begin, as (token index, character index), from token `least` on.

    The last entry is the end of the text. There are at most `MOST_CUTS` entries.
    """
    text, written = tokenizer.decode(tokens), spans.written(tokenizer, tokens)
    found = [
        (token, start)
        for token, (start, end) in enumerate(written)
        if token >= least and start < end and text[start:end].strip() and words.is_boundary(text, start)
    ]
    ending = (len(tokens), len(text))
    return [*found[: MOST_CUTS - 1], ending] if ending not in found else found[:MOST_CUTS]


@lru_cache(1024)
def inflections(tokenizer: Tokenizer, token: int) -> frozenset[int]:
    """Return the ids of the tokens that may be inflections of a token, and its own.

    These are the tokens that have the same stem and, in Korean, any particle or none; in other scripts, up to two more
    letters. The result is empty for a single letter of a script with spaces, which does not identify a word.
    """
    stem = tokenizer.decode([token]).strip()
    if not stem or (len(stem) < 2 and words.needs_blanks(stem)):
        return frozenset()
    stem = next((stem[:end] for end in range(2, len(stem)) if stem[end:] in words.PARTICLES), stem)
    is_korean = words.is_korean(stem)
    rest = ((id, text[len(stem) :]) for id, text in enumerate(_texts(tokenizer)) if text.startswith(stem))
    return frozenset(id for id, more in rest if (not more or more in words.PARTICLES if is_korean else len(more) < 3))


@lru_cache(8)
def _texts(tokenizer: Tokenizer) -> list[str]:
    """Return the text of each token, without spaces around it."""
    return [tokenizer.decode([id]).strip() for id in range(len(tokenizer))]
