"""Split symbols such as `ǐː` into a letter and its marks (`i`, `◌̌`, `◌ː`), and join them again.

Phonemes are written as letters with marks for tone, length, aspiration and the like. A vocabulary of whole symbols has
an entry for each combination, so that a model must learn for each vowel anew where the tone falls.
"""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from seq2see.errors import DataError
from seq2see.tokens.interface import LONGEST_TOKEN, normal_form

CIRCLE: Final = "\u25cc"
"""The dotted circle, which stands for the letter in the token of a mark, as in Unicode's tables."""
SELDOM: Final = 0.05
"""A mark is split off only if the letter occurs without it at least this many times as often as with it: a mark that a
letter nearly always has tells nothing, and would only make the output longer.
"""
MOST_SPLIT: Final = 8
"""Maximum number of marks that are split off one symbol; languages use fewer."""
CEDILLA: Final = "\u0327"
"""Not a mark here: decomposed, the phonetic letter `ç` is a `c` with a cedilla, but it has nothing to do with `c`."""
LONGEST_PHONEME: Final = 2
"""Phonemes are written with one letter or two, as in `t͡ʃ` and `aɪ`, besides their marks."""
MOST_WORDS: Final = 0.01
"""Symbols are taken for phonemes if at most this share of them has more than `LONGEST_PHONEME` letters. Otherwise they
are words, such as French ones with accents, or signs of another notation.
"""


@lru_cache(4096)
def is_mark(character: str) -> bool:
    """Return whether a character marks a letter: a combining mark, a modifier letter such as `ː`, or a tone letter.

    Those for the appearance of emoji, which begin at U+FE00, are not marks.
    """
    if character.isascii() or character == CEDILLA or character >= "\ufe00":
        return False
    return unicodedata.category(character) in ("Mn", "Lm", "Sk")


def is_token_of_mark(token: str) -> bool:
    """Return whether a token is a mark: one that is written after its letter, such as `◌ː`, or before it, as `ˈ◌`."""
    return len(token) == 2 and CIRCLE in token and is_mark(token.replace(CIRCLE, "", 1))


def forms(symbol: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the symbol, then what is left of it without one mark, two marks, and so on, each with the tokens of all.

    Marks after the letter are split off first, the last one before the others. Marks inside, such as the bar of `t͡ʃ`,
    are part of the letter.

    >>> list(forms("tʰː"))
    [('tʰː', ('tʰː',)), ('tʰ', ('tʰ', '◌ː')), ('t', ('t', '◌ʰ', '◌ː'))]
    """
    yield symbol, (symbol,)
    before, after = tuple[str, ...](), tuple[str, ...]()
    for _ in range(MOST_SPLIT):
        if len(symbol) < 2 or all(map(is_mark, symbol)):
            return
        if is_mark(symbol[-1]):
            symbol, after = symbol[:-1], (CIRCLE + symbol[-1], *after)
        elif is_mark(symbol[0]):
            symbol, before = symbol[1:], (*before, symbol[0] + CIRCLE)
        else:
            return
        if is_token_of_mark(symbol):  # a dotted circle in the text: as a letter, it could not be told from a mark
            return
        yield symbol, (*before, symbol, *after)


def cut(text: str, known: Collection[str], composed: bool) -> list[str]:
    """Return the tokens of the symbols of a text, of which `known` is the vocabulary.

    A symbol becomes the first of its `forms` whose letter is in `known`. If there is none, or the token of one of its
    marks is not in `known`, it becomes one empty string, which is in no vocabulary.

    Args:
        composed: Whether the texts of the vocabulary are composed (NFC), so that composed characters are split, too.
    """
    found: list[str] = []
    for symbol in (normal_form("NFD", text) if composed else text).split():
        tokens = next((tokens for letter, tokens in forms(symbol) if letter in known), ("",))
        is_writable = not is_token_of_mark(symbol) and all(token in known for token in tokens)
        found += tokens if is_writable else [""]
    return found


def join(tokens: Iterable[str], composed: bool) -> str:
    """Return the text of tokens: symbols with their marks, and single spaces between symbols."""
    text, in_symbol = "", True
    for token in tokens:
        if not is_token_of_mark(token):
            text, in_symbol = text + " " * (not in_symbol) + token, False
        elif token[0] == CIRCLE:
            text, in_symbol = text + token[1], False
        else:
            text, in_symbol = text + " " * (not in_symbol) + token[0], True
    return normal_form("NFC", text) if composed else text


def learn(texts: Iterable[str], tags: Collection[str] = ()) -> tuple[Counter[str], bool]:
    """Return how often each token occurs in texts, and whether all of these are composed (NFC).

    Language tags are not counted, nor are symbols that could not be told from the token of a mark or are too long.
    """
    symbols = Counter(symbol for text in texts for symbol in text.split() if not is_token_of_mark(symbol))
    for symbol in [symbol for symbol in symbols if len(symbol) > LONGEST_TOKEN]:
        del symbols[symbol]
    for tag in tags:
        symbols.pop(tag, None)
    if not symbols:
        raise DataError("no text to train a tokenizer on: every line is empty")
    composed = all(unicodedata.is_normalized("NFC", symbol) for symbol in symbols)
    if composed:
        symbols = Counter({normal_form("NFD", symbol): count for symbol, count in symbols.items()})
    counts = count_tokens(symbols)
    for tag in tags:  # what is left of a tag with a mark behind it
        counts.pop(tag, None)
    return counts, composed


def per_phoneme(texts: Sequence[str]) -> float:
    """Return the mean number of marks that are split off a symbol of texts; 0 if the symbols are not phonemes."""
    symbols = Counter(symbol for text in texts for symbol in text.split())
    words = sum(count for symbol, count in symbols.items() if _letters(symbol) > LONGEST_PHONEME)
    if not symbols or words > MOST_WORDS * symbols.total() or any(map(is_token_of_mark, symbols)):
        return 0.0
    counts, _ = learn(texts)
    marks = sum(count for token, count in counts.items() if is_token_of_mark(token))
    return marks / max(1, counts.total() - marks)


def _letters(symbol: str) -> int:
    """Return the number of characters of a symbol that are neither marks nor a cedilla."""
    return sum(not is_mark(character) and character != CEDILLA for character in normal_form("NFD", symbol))


def count_tokens(symbols: Mapping[str, int]) -> Counter[str]:
    """Return how often each token occurs, given how often each symbol does.

    The letter of a symbol is the shortest of its `forms` that is not rare without the mark beside it (`SELDOM`): it
    occurs alone, too, or with another mark in its place. If there is none, the symbol stays whole.
    """
    containing = Counter[str]()  # how often a letter occurs, with marks or without
    for symbol, count in symbols.items():
        for letter, _ in forms(symbol):
            containing[letter] += count
    tokens = Counter[str]()
    for symbol, count in symbols.items():
        chosen: tuple[str, ...] = (symbol,)
        for (longer, _), (letter, split) in pairwise(forms(symbol)):
            if containing[letter] - containing[longer] >= SELDOM * containing[longer]:
                chosen = split
        for token in chosen:
            tokens[token] += count
    return tokens
