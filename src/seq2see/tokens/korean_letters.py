"""Split Korean syllables into their letters (jamo), and join them again: 한 <-> ᄒ ᅡ ᆫ."""

import re

ESCAPE = "\ufdd0"
"""A code point that Unicode reserves for internal use; `decompose` puts it before jamo that stand alone in a text."""

# A Korean syllable is a block of two or three letters, and its code point enumerates their combinations: 19 initial
# consonants, 21 vowels, and no final consonant or one of 27. Jamo that stand alone in a text, and the escape itself,
# get an escape before them, so that only letters of former blocks are joined. The letters that people type alone
# (U+3131 and above) are other code points.
_LEADS, _VOWELS, _TAILS = "\u1100-\u1112", "\u1161-\u1175", "\u11a8-\u11c2"
LOOSE = re.compile(f"{ESCAPE}([{_LEADS}{_VOWELS}{_TAILS}{ESCAPE}])")
_BLOCK = re.compile(f"{LOOSE.pattern}|([{_LEADS}])([{_VOWELS}])([{_TAILS}]?)")


def decompose(text: str) -> list[str]:
    """Return the characters of a text, with Korean syllables split into letters (jamo).

    A jamo that stands alone in the text is returned after `ESCAPE`, as one string, and so is `ESCAPE` itself.
    """
    letters: list[str] = []
    for character in text:
        place = ord(character) - 0xAC00
        if 0 <= place < 19 * 21 * 28:
            lead, rest = divmod(place, 21 * 28)
            vowel, tail = divmod(rest, 28)
            letters += (chr(0x1100 + lead), chr(0x1161 + vowel))
            if tail:
                letters.append(chr(0x11A7 + tail))
        else:
            letters.append(ESCAPE + character if LOOSE.match(ESCAPE + character) else character)
    return letters


def compose(text: str) -> str:
    """Return a text with jamo joined to Korean syllables: the inverse of `"".join(decompose(text))`."""
    return _BLOCK.sub(lambda found: found[1] or _block(found[2], found[3], found[4]), text)


def _block(lead: str, vowel: str, tail: str) -> str:
    number = (ord(lead) - 0x1100) * 21 + ord(vowel) - 0x1161
    return chr(0xAC00 + number * 28 + (ord(tail) - 0x11A7 if tail else 0))
