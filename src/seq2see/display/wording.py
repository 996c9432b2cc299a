"""Messages in the language of the user: English, as in the sources, or Korean from the catalogue `korean.toml`.

The English text is the key. A message is translated as a whole when it is shown: `{}` in a key stands for a value that
the source inserts (a file, a number), and `{0}`, `{1}`, ... in the Korean text for the same values, in any order. A
message without an entry stays English.
"""

import os
import re
import textwrap
import tomllib
from functools import cache
from importlib import resources
from typing import Final, NamedTuple
from unicodedata import east_asian_width

LANGUAGES: Final = ("en", "ko")
VARIABLES: Final = ("SEQ2SEE_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""Environment variables that name the language of messages; the first that is set decides."""
LONGEST: Final = 4000
"""Maximum number of characters of a text that is looked up in the catalogue of messages; a longer text is shown
unchanged, since it must be data.
"""


HEADINGS: Final = {
    "Usage: ": "사용법: ",
    "Options:\n": "옵션:\n",
    "Arguments:\n": "인자:\n",
    "Commands:\n": "명령:\n",
    "Show this message and exit.": "이 도움말을 출력하고 끝냅니다.",
    "[required]": "[필수]",
    "[default: ": "[기본값: ",
    "Example: ": "예: ",
}
"""Korean translations of the headings and phrases that the command-line library writes into help pages."""


DOT: Final = "  ·  "
"""Separator between statements in the subtitle of a picture; each statement is translated by itself."""
ENOUGH: Final = 6
"""Minimum number of characters, without spaces and placeholders, of an English catalogue text whose placeholders may
stand for texts with spaces; shorter ones would match too many messages.
"""


PARTICLES: Final = re.compile(r"([가-힣0-9])(['\")\]»”]*)(은\(는\)|이\(가\)|을\(를\)|과\(와\)|\(으\)로)")
"""A Korean particle in both of its forms, after Korean text or a digit, whose pronunciation decides between them."""
DIGITS: Final = "영일이삼사오육칠팔구"
"""Korean readings of the digits 0 to 9, by which the particle after a number is chosen. A number that ends in 0 is read
as ten, hundred or thousand, which end in a consonant as the reading of zero does.
"""


class _Entry(NamedTuple):
    literals: list[str]
    """Parts of the English text before, between and after its placeholders."""
    korean: str

    @property
    def says_enough(self) -> bool:
        """Return whether the key is specific enough for values with spaces: `{} to {}` is not."""
        return sum(not each.isspace() for literal in self.literals for each in literal) >= ENOUGH


def language() -> str:
    """Return the language of messages: "ko" if `--lang`, SEQ2SEE_LANG or the locale chooses Korean, else "en"."""
    chosen = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
    return "ko" if re.match(r"ko([_.@-]|$)", chosen, re.IGNORECASE) else "en"


def choose(name: str) -> None:
    """Set the language of messages, one of `LANGUAGES`, for this process and those that it starts."""
    os.environ[VARIABLES[0]] = name


def translated(text: str, to: str | None = None) -> str:
    """Return a message in the language of the user (or in `to`), unchanged if there is no translation."""
    if (to or language()) != "ko" or not text or len(text) > LONGEST:
        return text
    return _translated(text)


def columns(text: str) -> int:
    """Return the width of a text in columns of a terminal; a Korean syllable takes two."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def padded(text: str, width: int, right: bool = False) -> str:
    """Return a text padded with spaces to a width in columns of a terminal; `right`: spaces before the text."""
    spaces = " " * (width - columns(text))
    return spaces + text if right else text + spaces


def wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of at most this width in columns of a terminal, if no word is longer."""
    if text.isascii():
        return textwrap.wrap(text, width)
    lines: list[str] = []
    for word in text.split():
        if lines and columns(lines[-1]) + 1 + columns(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _translated(text: str) -> str:
    if DOT in text:
        return DOT.join(map(_translated, text.split(DOT)))
    whole, entries = catalogue()
    core = text.strip()
    if core in whole:
        return text.replace(core, whole[core], 1)
    for entry in entries:
        parts = _match(entry.literals, core)
        if parts is not None and (entry.says_enough or not any(" " in part for part in parts)):
            # A part with a space may be a message itself; a single word is a name, a number or a file.
            found = entry.korean.format(*(_translated(part) if " " in part.strip() else part for part in parts))
            return text.replace(core, PARTICLES.sub(_particle, found), 1)
    return "\n".join(map(_translated, text.split("\n"))) if "\n" in core else text


def _particle(found: re.Match[str]) -> str:
    """Return a word's last character and the particle in the right form: 3을, 2를, 1로, 3으로."""
    last, closing, both = found.groups()
    final = (ord(DIGITS[int(last)] if last.isdigit() else last) - ord("가")) % 28  # 0: a vowel, 8: the consonant ㄹ
    if both == "(으)로":
        return last + closing + ("로" if final in (0, 8) else "으로")
    return last + closing + (both[0] if final else both[2])


def _match(literals: list[str], text: str) -> list[str] | None:
    """Return the values of the placeholders between `literals`, each as short as possible; None if the text does not
    match.
    """
    first, *middle, last = literals
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return None
    at, end, parts = len(first), len(text) - len(last), []
    for literal in middle:
        there = text.find(literal, at, end)
        if there < 0:
            return None
        parts.append(text[at:there])
        at = there + len(literal)
    return [*parts, text[at:end]]


@cache
def catalogue() -> tuple[dict[str, str], list[_Entry]]:
    """Return the Korean texts of keys without placeholders, by key, and the entries whose keys have placeholders, those
    with the longest keys first.
    """
    tables = tomllib.loads(resources.files(__package__).joinpath("korean.toml").read_text("utf-8"))
    texts = {key.strip(): value for table in tables.values() for key, value in table.items()}
    entries = [_Entry(key.split("{}"), value) for key, value in texts.items() if "{}" in key]
    entries.sort(key=lambda entry: -sum(map(len, entry.literals)))
    return {key: value for key, value in texts.items() if "{}" not in key}, entries
