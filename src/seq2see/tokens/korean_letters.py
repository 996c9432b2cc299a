"""Korean syllables as their letters (jamo), and back: 한 <-> ᄒ ᅡ ᆫ."""

import re

ESCAPE = "\ufdd0"
"""One of the code points that Unicode reserves for internal use."""

# A Korean syllable is two or three letters in a block, and its number counts them through: 19 to begin with, 21 vowels,
# and nothing or one of 27 at the end. Letters that stand loose in a text, and the escape itself, come with the escape
# before them, so that what goes into a block was one; the letters that people type alone (U+3131 and on) are others.
_LEADS, _VOWELS, _TAILS = "\u1100-\u1112", "\u1161-\u1175", "\u11a8-\u11c2"
LOOSE = re.compile(f"{ESCAPE}([{_LEADS}{_VOWELS}{_TAILS}{ESCAPE}])")
_BLOCK = re.compile(f"{LOOSE.pattern}|([{_LEADS}])([{_VOWELS}])([{_TAILS}]?)")


def decompose(text: str) -> list[str]:
    """Return the characters of a text, Korean syllables as their letters."""
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
    """Return the text of joined letters."""
    return _BLOCK.sub(lambda found: found[1] or _block(found[2], found[3], found[4]), text)


def _block(lead: str, vowel: str, tail: str) -> str:
    number = (ord(lead) - 0x1100) * 21 + ord(vowel) - 0x1161
    return chr(0xAC00 + number * 28 + (ord(tail) - 0x11A7 if tail else 0))
