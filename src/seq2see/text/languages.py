"""Languages by code and by name, as headers, file names and catalogues spell them; encodings by their letters."""

import codecs
import re
import shlex
import unicodedata
from functools import cache
from pathlib import Path
from typing import Final

from seq2see.errors import SettingError
from seq2see.text.pair import Sides

SPELLED = re.compile(r"([A-Za-z]{2,3})((?:[-_@][A-Za-z0-9]{2,8})*)")
"""Pattern of language codes: `en`, `eng`, `pt_BR`, `zh-Hant-TW`, `sr@latin`."""


_CODE: Final = re.compile(r"[A-Za-z0-9]{2,8}(?:[-_@][A-Za-z0-9]{1,8})*")
"""Pattern of the codes that a user may give, also those of languages that this program does not know."""


def checked(given: Sides) -> Sides:
    """Return the languages that a user gave; raise an error if one is neither a language code nor a name of one."""
    for option, text in zip(("--source-language", "--target-language"), given, strict=True):
        if text is not None and not (_CODE.fullmatch(text) or known(text)):
            raise SettingError(f"{option} {text!r}: not a language code. Give a code such as de, ko or pt-BR")
    return given


def tag(text: str) -> str:
    """Return a language code as HTML has it: `EN_us` -> `en-US`, `zh_hant` -> `zh-Hant`, `ko_KR.UTF-8` -> `ko-KR`."""
    first, *rest = re.split("[-_@]", text.strip().partition(".")[0])
    return "-".join([first.lower(), *(part.upper() if len(part) == 2 else part.title() for part in rest)])


def known(text: str) -> str | None:
    """Return the code of a language by its code or its English or Korean name: `German`, `독일어`, `deu` -> `de`.

    Return None if the text is not a language that has a two-letter code.
    """
    text = text.strip()
    if code := _names().get(text.lower()):
        return code
    spelled = SPELLED.fullmatch(text)
    if spelled and spelled[2] and (code := _names().get(spelled[1].lower())):
        return tag(code + spelled[2])
    return None


def matches(wanted: str, found: str) -> bool:
    """Return whether `found` is the wanted language or a variant of it: `en-US` is one of `en`, not vice versa."""
    wanted, found = tag(wanted).lower(), tag(found).lower()
    return found == wanted or found.startswith(f"{wanted}-")


def display_name(code: str) -> str:
    """Return the name of a language in English: `de` -> `German`; an unknown code stays as it is."""
    from babel import Locale

    names = Locale("en").languages
    return str(names.get(tag(code).replace("-", "_")) or names.get(tag(code).split("-")[0]) or code)


def script(code: str) -> str | None:
    """Return the usual script of a language by its name in Unicode, if known: `en` -> `Latin`, `zh-TW` -> `Han`."""
    from babel import Locale
    from babel.core import get_global

    likely = get_global("likely_subtags")
    first, *rest = tag(code).split("-")
    said = next((part for part in rest if len(part) == 4), None)  # sr-Latn says it
    full = likely.get("_".join([first, *rest])) or likely.get(first)
    written = said or (full and full.split("_")[1])
    return written and _SCRIPTS.get(written, Locale("en").scripts.get(written))


_SCRIPTS = {"Kore": "Hangul", "Jpan": "Kana", "Hans": "Han", "Hant": "Han", "Beng": "Bengali", "Orya": "Oriya"}
"""Scripts by ISO code, for codes that combine several scripts or whose script has another name in Unicode."""


@cache
def _names() -> dict[str, str]:
    """Return two-letter language codes by English or Korean name and by two- or three-letter code, in lower case.

    Languages without a two-letter code are left out: too many of their three-letter codes are also words.
    """
    from babel import Locale
    from babel.core import get_global

    names = {three: two for three, two in get_global("language_aliases").items() if (len(three), len(two)) == (3, 2)}
    del names["src"]  # Sardinian to some, a source to everybody else
    for speaker in ("en", "ko"):
        names |= {name.lower(): code for code, name in Locale(speaker).languages.items() if len(code) == 2}
    return names | {code: code for code in set(names.values())}


# Encodings


class Undecoded:
    """Lines of a file that are not UTF-8, from which its encoding is guessed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beginnings: list[bytes] = []
        self._room = _GUESSED_BY
        self._count = 0
        self.decoded = 0
        """Number of lines of the file that are UTF-8 and not ASCII."""

    def add(self, line: bytes) -> None:
        """Add a line that is not UTF-8; only the first ones are remembered, up to `_GUESSED_BY` bytes."""
        self._count += 1
        if self._room:
            self._beginnings.append(line[: self._room])
            self._room -= len(self._beginnings[-1])

    @property
    def advice(self) -> str:
        """Return advice with the command that converts the file, if its encoding is known."""
        encoding = guess_encoding(self._beginnings)
        if self.decoded >= self._count:
            if not encoding:
                return "Other lines of the file are UTF-8: correct these lines."
            return f"Other lines of the file are UTF-8. These are probably {encoding}: correct them."
        if encoding:
            return f"It is probably {encoding}. Convert it: {conversion(self._path, encoding)}"
        return "Convert the file to UTF-8."


def conversion(path: Path, encoding: str) -> str:
    """Return the command that writes a copy of a file in UTF-8: `iconv -f CP949 -t UTF-8 a.tsv > a-utf8.tsv`."""
    zipped = path.suffix.lower() == ".gz"
    plain = path.with_suffix("") if zipped else path
    old, new = shlex.quote(str(path)), shlex.quote(str(plain.with_stem(f"{plain.stem}-utf8")) + zipped * ".gz")
    command = f"iconv -f {encoding} -t UTF-8"
    return f"gzip -dc {old} | {command} | gzip > {new}" if zipped else f"{command} {old} > {new}"


def utf_16(start: bytes) -> str | None:
    """Return the name of the UTF-16 encoding in which a file begins, by its byte order mark or by zero bytes; None if
    it is another encoding.
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    zeros = start[::2].count(0), start[1::2].count(0)  # in big and in little endian, ASCII has one such byte
    # A line that was read up to its line feed ends in the low byte of that in little endian, and so has an odd length.
    is_little = len(start) % 2 == 1 if start.endswith(b"\n") else zeros[1] > zeros[0]
    name = "UTF-16LE" if is_little else "UTF-16BE"
    try:
        text = codecs.getincrementaldecoder(name)().decode(start)  # the last character may be cut in two
    except UnicodeDecodeError:
        return None
    is_text = not any(unicodedata.category(each) in ("Cc", "Cn", "Co") and each not in "\t\r\n" for each in text)
    return name if text and is_text and zeros[is_little] else None


_GUESSED_BY: Final = 1 << 16
"""Maximum number of bytes, of the first lines that are not UTF-8, from which the encoding of a file is guessed."""
_ENCODINGS: Final = (
    ("cp932", "\u3040", "\u30ff", 0.2),  # first: katakana have second bytes of ASCII
    ("euc_kr", "가", "힣", 0.9),
    ("euc_jp", "\u3040", "\u30ff", 0.2),
    ("cp949", "가", "힣", 0.9),
    ("cp1251", "А", "я", 0.9),
    ("gb18030", "一", "\u9fff", 0.7),
    ("big5", "一", "\u9fff", 0.7),
)
"""Encodings to try on sequences of bytes over 127: name, range of letters, and the share of decoded characters that
must be in that range.
"""


def guess_encoding(lines: list[bytes]) -> str | None:
    """Return the name of the encoding for `iconv -f`, guessed from the decoded letters; None if no guess is
    convincing.
    """
    whole = b"\n".join(lines)
    runs = re.findall(rb"[\x80-\xff]+", whole)
    if not runs:
        return None
    for name, first, last, share in _ENCODINGS:
        if name != "cp932" and sum(map(len, runs)) < 1.7 * len(runs):  # single letters within words of ASCII
            return "CP1252"
        try:
            text = codecs.getincrementaldecoder(name)().decode(whole)  # the last letter may be cut in two
            letters = [character for character in text if not character.isascii()]
        except UnicodeDecodeError:
            continue
        if sum(first <= character <= last for character in letters) > share * len(letters):
            return {"euc_kr": "CP949"}.get(name, name.upper().replace("_", "-"))
    return None
