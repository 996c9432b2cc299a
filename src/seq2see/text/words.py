"""Terms in a sentence, and where words begin and end in scripts with and without spaces between them.

Chinese, Japanese, Thai and some other scripts have no spaces between words, so that every character may begin a word.
Korean has spaces, and particles are attached to the end of a word: the word 파일 occurs in 파일을, but not in 파일럿.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Final, Literal, NamedTuple

Span = tuple[int, int]
"""Start and end (exclusive) of a range of characters."""


class Term(NamedTuple):
    """A term that occurs in a sentence, and the translations that are allowed for it."""

    start: int
    end: int
    text: str
    """The term as it is written in the sentence."""
    forms: tuple[str, ...]
    """The allowed translations, the preferred one first."""
    is_kept: bool = False
    """Whether the term must be copied unchanged, including its capital letters."""


WITHOUT_BLANKS: Final = (
    *("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC", "BOPOMOFO"),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"),
)
"""First words of the Unicode names of characters in scripts that are written without spaces between words."""

_CASES: Final = (
    *("", "을", "를", "이", "가", "은", "는", "의", "에", "에서", "에게", "께", "로", "으로", "와", "과", "도", "만"),
    *("까지", "부터", "보다", "처럼", "마다", "대로", "이나", "나", "이란", "란", "이라는", "라는", "이라고", "라고"),
    *("입니다", "이다", "이며", "이고", "인", "일", "이라면", "으로써", "로써", "으로서", "로서"),
)
PARTICLES: Final = frozenset(
    many + case + last for many, case, last in product(("", "들"), _CASES, ("", "는", "도", "만", "의", "부터", "까지"))
) - {""}
"""Korean particles that may be attached to a noun, alone and combined."""


@lru_cache(1 << 14)
def _kind(character: str) -> Literal["", "mark", "free", "hangul", "letter"]:
    """Return the kind of a character: not part of a word, a mark on the letter before it, a letter of a script without
    spaces, Korean, or a letter or digit of any other script."""
    if unicodedata.category(character)[0] == "M":
        name = unicodedata.name(character, "").partition(" ")[0]
        return "free" if name in WITHOUT_BLANKS else "mark"  # a Thai vowel is a mark
    if not (character.isalnum() or character == "_"):
        return ""
    name = unicodedata.name(character, "").removeprefix("HALFWIDTH ").partition(" ")[0]
    return "free" if name in WITHOUT_BLANKS else "hangul" if name == "HANGUL" else "letter"


def is_word_character(character: str) -> bool:
    """Return whether a character can be part of a word."""
    return _kind(character) != ""


def is_boundary(text: str, place: int) -> bool:
    """Return whether there may be a boundary between two words before the character at index `place`."""
    if not 0 < place < len(text):
        return True
    left, right = _kind(text[place - 1]), _kind(text[place])
    if unicodedata.combining(text[place]) or right == "mark":
        return left == ""
    if "" in (left, right) or "free" in (left, right):
        return True
    return (left == "hangul") != (right == "hangul")  # 를 after API is a particle


def ends_word(text: str, place: int) -> bool:
    """Return whether a word ends before index `place`: at a boundary, or before Korean particles."""
    if is_boundary(text, place):
        return True
    end = place
    while end < len(text) and end - place <= 8 and _kind(text[end]) == "hangul":
        end += 1
    return text[place:end] in PARTICLES and is_boundary(text, end)


def occurrences(text: str, phrase: str) -> Iterator[Span]:
    """Yield the spans at which a phrase occurs as whole words.

    A Korean phrase of two or more syllables may also be a part of a compound or of a verb, as 삭제 is in 삭제합니다.
    """
    place = text.find(phrase) if phrase else -1
    while place >= 0:
        end = place + len(phrase)
        begins = is_boundary(text, place) or is_korean(phrase[:2])
        ends = ends_word(text, end) or is_korean(phrase[-2:])
        if begins and ends:
            yield place, end
        place = text.find(phrase, place + 1)


def is_korean(text: str) -> bool:
    """Return whether a text is two or more Korean syllables, and nothing else."""
    return len(text) > 1 and all(_kind(each) == "hangul" for each in text)


def needs_blanks(character: str) -> bool:
    """Return whether the script of a character separates words by spaces."""
    return _kind(character) in ("letter", "hangul")


def is_whole_word(phrase: str) -> bool:
    """Return whether a letter appended to a phrase would make its last word another one: false if the phrase ends in
    Korean, in a script without spaces (such as Chinese) or in a punctuation mark.
    """
    return _kind(phrase[-1]) in ("letter", "mark")
