"""Measure scripts, digits and punctuation of thousands of texts at a time, and repair wrongly decoded characters.

Every character is looked up in tables made once from Python's own Unicode data, so that a block of texts is measured by
a few operations on arrays instead of a loop over its letters.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)

OTHER, BREAK, CONTROL, LOST = range(4)
"""Kinds of characters that are not letters: any other character, line breaks, control characters, and the replacement
character U+FFFD. Numbers from 4 on are scripts, the indices of `Tables.scripts`.
"""

_PART: Final = 1 << 16
"""Number of characters that are looked up at a time, to save memory: NumPy converts codes to indices of 8 bytes."""
_HAN: Final = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
_HANGUL: Final = ((0xAC00, 0xD7A3),)
_NOT_NAMED: Final = {"LATIN": ("FULLWIDTH", "FEMININE", "MASCULINE"), "KANA": ("HIRAGANA", "KATAKANA", "HALFWIDTH")}
_SIGNS: Final = ("?？؟", "!！", ":：", "(（", '"“„«「', "/", "%％", ",،、，")
"""Groups of equivalent punctuation marks that translations usually keep; `TextMeasures.signs` has one bit for each
group.
"""

BREAKS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that `str.splitlines` and other programs treat as the end of a line."""


class Tables(NamedTuple):
    """Properties of each code point, as arrays."""

    scripts: list[str]
    """Names of the kinds of characters, by number: the four kinds that are not letters, then the scripts."""
    kind: NDArray[np.uint8]
    sign: NDArray[np.uint8]
    digit: NDArray[np.uint32]
    """A random number for each of the ten digits, the same in all scripts; 0 for a character that is not a digit.
    `TextMeasures.digits` is the sum over a text, modulo 65,536.
    """
    kept: NDArray[np.bool_]
    """Whether each character is a letter, mark or number; `keys`, which compares texts, ignores all other
    characters.
    """
    byte: NDArray[np.bool_]
    """Whether each character could be a byte of text in another encoding that was decoded as Latin-1 or cp1252."""


@cache
def tables() -> Tables:
    size = 0x110000
    scripts = ["", "", "", ""]
    numbers: dict[str, int] = {}
    folded = {word: script for script, words in _NOT_NAMED.items() for word in words}
    kind = np.zeros(size, np.uint8)
    digit = np.zeros(size, np.uint32)
    kept = np.zeros(size, np.bool_)
    kept[0x10000:0x1F000] = kept[0x20000:0x40000] = True  # rare letters; from 0x1F000 on there are pictures
    weights = np.random.default_rng(0).integers(1, 1 << 16, 10)

    def number(script: str) -> int:
        if script not in numbers:
            numbers[script] = len(scripts)
            scripts.append(script.capitalize())
        return numbers[script]

    # Han and Hangul have no names worth asking for one by one, and private use has none.
    for code in (*range(0x3400), *range(0xA000, 0xAC00), *range(0xFB00, 0xFFFE)):
        character = chr(code)
        category = unicodedata.category(character)
        kept[code] = category[0] in "LMN"
        if category[0] == "L" or category in ("Mn", "Mc"):
            script = unicodedata.name(character).split(" ", 1)[0]
            if category[0] == "L" or script not in ("COMBINING", "VARIATION"):
                kind[code] = number(folded.get(script, script))
        elif category == "Nd":
            digit[code] = weights[unicodedata.digit(character)]
        elif category == "Cc" and character != "\t":
            kind[code] = CONTROL
    for script, ranges in (("HAN", _HAN), ("HANGUL", _HANGUL)):
        for first, last in ranges:
            kind[first : last + 1] = number(script)
            kept[first : last + 1] = True
    kind[0xD800:0xE000] = CONTROL  # half a surrogate pair: JSON can write it, nothing can encode it
    kind[[0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB, 0xFFFE, 0xFFFF]] = CONTROL
    kind[[ord(character) for character in BREAKS]] = BREAK
    kind[0xFFFD] = LOST
    sign = np.zeros(size, np.uint8)
    for bit, characters in enumerate(_SIGNS):
        sign[[ord(character) for character in characters]] = 1 << bit
    byte = np.zeros(size, np.bool_)
    byte[[ord(character) for character in _BYTES]] = True
    return Tables(scripts, kind, sign, digit, kept, byte)


class TextMeasures(NamedTuple):
    """Measures of several texts, as arrays with one value for each text."""

    length: NDArray[np.int64]
    script: NDArray[np.uint8]
    """Number of the script with the most letters in the text; that of Kana if more than a tenth of the letters are
    Kana, since Japanese has Han, too; 0 if the text has no letters.
    """
    pure: NDArray[np.bool_]
    """Whether at least nine in ten letters of the text belong to `script`. It is true for every Japanese text, which
    mixes scripts, and false for a text without letters.
    """
    signs: NDArray[np.uint8]
    digits: NDArray[np.uint16]
    """Hash of the digits of the text, which does not depend on their order or script; 0 if the text has no digits."""
    damaged: NDArray[np.bool_]
    """Whether `mend` should check the text: it has line breaks, control characters, replacement characters (U+FFFD), or
    adjacent characters that may be wrongly decoded bytes.
    """


def measure(texts: list[str]) -> TextMeasures:
    """Measure one or more texts; this takes about 20 bytes of memory for each character."""
    table = tables()
    length = np.fromiter(map(len, texts), np.int64, len(texts))
    # A space after each text keeps `reduceat` from tripping over empty ones.
    codes = _codes(" ".join(texts) + " ")
    starts = np.cumsum(length + 1) - length - 1

    kinds = _look_up(table.kind, codes)
    present = np.flatnonzero(sum(np.bincount(part, minlength=256) for part in _parts(kinds)))
    counts = {int(kind): np.add.reduceat(kinds == kind, starts, dtype=np.int32) for kind in present if kind}
    damaged = np.zeros(len(texts), np.bool_)
    for kind in (BREAK, CONTROL, LOST):
        damaged |= counts.pop(kind, np.int32(0)) > 0
    misread = _look_up(table.byte, codes)
    if misread.any():
        damaged |= np.logical_or.reduceat(misread & np.roll(misread, -1), starts)

    letters = sum(counts.values(), np.zeros(len(texts), np.int32))
    script, most = np.zeros(len(texts), np.uint8), np.zeros(len(texts), np.int32)
    for kind, count in counts.items():
        script[count > most] = kind
        np.maximum(most, count, out=most)
    if (kana := table.scripts.index("Kana")) in counts:  # Japanese, even where most letters are Han
        japanese = 10 * counts[kana] > letters
        script[japanese] = kana
        most[japanese] = letters[japanese]
    return TextMeasures(
        length,
        script,
        (most > 0) & (10 * most >= 9 * letters),
        np.bitwise_or.reduceat(_look_up(table.sign, codes), starts),
        np.add.reduceat(_look_up(table.digit, codes), starts).astype(np.uint16),
        damaged,
    )


def keys(texts: list[str]) -> list[bytes]:
    """Return keys that are equal for near-duplicates: letters and digits in lower case, without punctuation and spaces.

    A single word of ASCII is its own key (in molecules, code and identifiers capitals and signs mean something), and so
    is a text of which at least half is punctuation and spaces, or that has no letters.
    """
    table = tables()
    codes = _codes("\n".join(texts).casefold() + "\n")
    ends = np.flatnonzero(codes == 10)
    starts = np.append(0, ends[:-1] + 1)
    kept = _look_up(table.kept, codes)
    counts = np.add.reduceat(kept, starts, dtype=np.int64)
    digits = np.add.reduceat(_look_up(table.digit, codes) > 0, starts, dtype=np.int64)
    prose = np.logical_or.reduceat((codes == 32) | (codes > 127), starts)
    folds = prose & (2 * counts > ends - starts) & (digits < counts)
    letters = codes[kept].tobytes()
    stops = 4 * np.cumsum(counts)
    return [
        letters[stop - size : stop] if fold else text.encode("utf-32-le")
        for text, fold, stop, size in zip(texts, folds.tolist(), stops.tolist(), (4 * counts).tolist(), strict=True)
    ]


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _look_up(table: NDArray[Number], codes: NDArray[np.uint32]) -> NDArray[Number]:
    """Return `table[codes]`, computed in chunks because NumPy converts every index to 8 bytes."""
    found = np.empty(len(codes), table.dtype)
    for into, part in zip(_parts(found), _parts(codes), strict=True):
        table.take(part, out=into, mode="clip")
    return found


def _parts(numbers: NDArray[Number]) -> Iterator[NDArray[Number]]:
    return (numbers[start : start + _PART] for start in range(0, len(numbers), _PART))


def is_invisible(text: str) -> bool:
    """Return whether a text shows nothing: it is empty, or has only spaces, joiners, direction marks and the like."""
    return all(character.isspace() or unicodedata.category(character) in ("Cf", "Cc") for character in text)


def script_name(kind: int) -> str:
    return tables().scripts[kind]


UNSPACED = {"Han", "Kana", "Khmer", "Lao", "Myanmar", "Thai", "Tibetan"}
"""Names of the scripts (as in `script_name`) that are written without spaces between words."""


def are_unspaced(texts: list[str]) -> bool:
    """Return whether most of the texts are in a script without spaces between words."""
    found = [script_name(script) in UNSPACED for script in measure(texts).script]
    return 2 * sum(found) > len(found)


# --- damage ----------------------------------------------------------------------------------------------------------

_BYTES: Final = {chr(byte): byte for byte in range(0x80, 0x100)} | {
    bytes([byte]).decode("cp1252"): byte for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
"""Values of bytes above 127, by the character that the byte becomes if it is decoded as Latin-1 or cp1252."""
_RUN: Final = re.compile(f"[{re.escape(''.join(_BYTES))}]{{2,}}")
_FOLLOWING: Final = f"[{re.escape(''.join(character for character, byte in _BYTES.items() if byte < 0xC0))}]"
_CERTAIN: Final = re.compile(f"[ÂÃ]{_FOLLOWING}|â[€\x80]{_FOLLOWING}|â[‚\x82]¬|ï»¿|ï¿½")
_CLOSING: Final = frozenset("”“’‘»«›‹…–—\u00a0")
"""Quotation marks, dashes and similar characters, which may follow a word without a space in any language."""
_BREAK: Final = re.compile(f"\\s*[{BREAKS}]+\\s*")
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]+")


class Mended(NamedTuple):
    """A repaired text, and which damage it had; lost characters (U+FFFD) cannot be repaired."""

    text: str
    mojibake: bool
    breaks: bool
    controls: bool
    lost: bool


def mend(text: str) -> Mended:
    """Undo wrong decoding, turn line breaks into spaces, and remove control characters; U+FFFD cannot be repaired."""
    read = unmangle(text)
    broken = _BREAK.sub(" ", read)
    clean = _CONTROL.sub("", broken)
    return Mended(clean.strip(), read != text, broken != read, clean != broken, "\ufffd" in clean)


def unmangle(text: str) -> str:
    """Undo wrong decoding: `cafÃ©` -> `café`, `ì•ˆë…•` -> `안녕`, `¾È³ç` -> `안녕`.

    Characters that may be right are left unchanged.
    """
    for _ in range(3):  # misread once more each time it was saved
        read = _unmangle_once(text)
        if read == text:
            break
        text = read
    return text


def _unmangle_once(text: str) -> str:
    runs = {match[0]: _read(match[0]) for match in _RUN.finditer(text) if not _ends_a_word(match)}
    found = {run: read for run, read in runs.items() if read is not None}
    # `é…»` at the end of a French quotation is, by accident, one Chinese letter: one such find is none.
    if not found or not (any(map(_CERTAIN.search, runs)) or sum(map(len, found.values())) > 1):
        return text
    return _RUN.sub(lambda match: match[0] if _ends_a_word(match) else found.get(match[0], match[0]), text)


def _ends_a_word(match: re.Match[str]) -> bool:
    """Return whether characters that could be wrongly decoded bytes are right: the last letter of a word and a closing
    sign, as `Ã”` in `“AMANHÃ” é`; in `CÃ”TE` (CÔTE) they are not.
    """
    run, text, (start, end) = match[0], match.string, match.span()
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    fits = str.isupper if before.isupper() else str.islower
    if not (fits(before) and fits(run[0]) and _CLOSING.issuperset(run[1:])):
        return False
    read = _read(run) or run
    return not (read in _CLOSING or (fits(read) and fits(after)))


def _read(run: str) -> str | None:
    return _as_utf8(run) or _as_korean(run)


def _as_utf8(run: str) -> str | None:
    try:
        return bytes(_BYTES[character] for character in run).decode()
    except UnicodeDecodeError:
        return None


def _as_korean(run: str) -> str | None:
    try:
        read = bytes(_BYTES[character] for character in run).decode("euc_kr")
    except UnicodeDecodeError:
        return None
    return read if len(read) > 1 and all("가" <= character <= "힣" for character in read) else None
