"""Text in pictures: tokens as labels in the direction of their script, and the fonts that draw their characters.

matplotlib shapes and orders Arabic and Devanagari by itself since 3.11, but it does not search for a font that has a
character. Only the search for fonts imports it: a page that labels tokens needs no matplotlib.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

_JOINER = "\u200d"
_FROM_THE_RIGHT, _END = "\u2067", "\u2069"


def of(tokens: Sequence[str]) -> list[str]:
    """Return a label for each token, with invisible characters that keep Arabic letters joined and numbers in place."""
    labels = [visible(token) for token in tokens]
    # Arabic letters join their neighbours, also across the cut between two tokens: an invisible sign says so.
    for place, (one, other) in enumerate(pairwise(tokens)):
        if _joins(one[-1:]) and _joins(other[:1]):
            labels[place] += _JOINER
            labels[place + 1] = _JOINER + labels[place + 1]
    # A number alone has no direction, but the space before it stands where the text puts it. (The space before the
    # first of several tokens of one number stays on the left: on the right it would split the number.)
    if right_to_left("".join(tokens)):
        for place, token in enumerate(tokens):
            continued = "".join(tokens[place + 1 : place + 2]).isdecimal()
            if token.startswith("▁") and _is_number(token) and not continued:
                labels[place] = f"{_FROM_THE_RIGHT}{labels[place]}{_END}"
    return labels


def about_blanks(text: str) -> str:
    """Return the end of a subtitle that explains the mark `▁`, if the text contains the mark; else ""."""
    return "  ·  ▁: a space" if "▁" in text else ""


def arrow(source: str, translation: str) -> str:
    """Return `source → translation` from left to right, with each text in its own direction."""
    return f"\u200e\u2068{source}\u2069 → \u2068{translation}\u2069"


def right_to_left(text: str) -> bool:
    """Return whether the first letter of a text belongs to a script such as Arabic or Hebrew."""
    strong = (kind for kind in map(unicodedata.bidirectional, text) if kind in ("L", "R", "AL"))
    return next(strong, "L") != "L"


def in_order(tokens: Sequence[str], backwards: bool) -> list[int]:
    """Return the indices of tokens from left to right on the page.

    With `backwards` (Arabic, Hebrew), the tokens run from right to left, but the digits of a number from left to right.
    """
    if not backwards:
        return list(range(len(tokens)))
    order: list[int] = []
    number: list[int] = []
    for place, token in enumerate(tokens):
        if _is_number(token) and "▁" in token:  # another one begins
            order, number = [*number, *order], [place]
        elif _is_number(token):
            number.append(place)
        else:
            order = [place, *number, *order]
            number = []
    return [*number, *order]


def visible(token: str) -> str:
    """Return a token with visible signs for tabs and line ends, and for its spaces if it has nothing else."""
    token = token.replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")
    return token if token.strip() else "␣" * len(token)


def columns_wide(text: str) -> int:
    """Return the width of a text in terminal columns: East Asian characters count 2, joiners and marks 0."""
    return sum(
        0 if unicodedata.category(character) in ("Mn", "Cf") else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def _is_number(token: str) -> bool:
    return token.strip(f"▁{_FROM_THE_RIGHT}{_END}").isdecimal()


def _joins(character: str) -> bool:
    return "\u0620" <= character <= "\u06ff" and unicodedata.category(character) in ("Lo", "Lm")


# --- fonts -----------------------------------------------------------------------------------------------------------

BASE_FONT = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek, Cyrillic, Arabic and symbols
# The common sans-serif fonts of each system, tried in this order before all other fonts.
_KOREAN = ("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Nanum Gothic", "Malgun Gothic", "Apple SD Gothic Neo")
_JAPANESE = ("Noto Sans CJK JP", "Noto Sans JP", "IPAexGothic", "Yu Gothic", "Hiragino Sans")
_CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC")
_OTHERS = (
    "Noto Sans",
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
    "Nirmala UI",
    "Kohinoor Devanagari",
    "Arial Unicode MS",
)
_BOXES = ("Last Resort", "LastResort", "Adobe Blank")  # claim every character, draw none


def font_families(text: str) -> list[str]:
    """Return installed font families that together draw a text, for matplotlib's `fontfamily`.

    The last one is a generic family, for readers of an SVG who have none of the others.
    """
    families, _ = search_fonts(_to_draw(text))
    return [*families, "sans-serif"]


def missing_glyphs(text: str) -> str:
    """Return the characters of a text that no installed font draws, each once, in order of appearance."""
    _, missing = search_fonts(_to_draw(text))
    return "".join(dict.fromkeys(character for character in text if character in missing))


def note(text: str) -> str | None:
    """Return a line for the user if some characters have no font, else None."""
    missing = missing_glyphs(text)
    if not missing:
        return None
    named = "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in missing)
    kinds = dict.fromkeys(map(_kind, missing))
    fonts, packages = " and ".join(kind for kind, _ in kinds), " ".join(package for _, package in kinds)
    return f"no installed font draws '{named}': install {fonts}, for example `apt-get install {packages}`"


def drawn(texts: Iterable[str], path: Path) -> list[str]:
    """Return texts in which characters without a font are replaced by their code point (`U+1F98A`).

    Texts for SVG and HTML are not changed: the reader may have the font.
    """
    texts = list(texts)
    missing = "" if path.suffix.lower() in (".svg", ".html") else missing_glyphs("".join(texts))
    table = str.maketrans({character: f"U+{ord(character):04X}" for character in missing})
    return [text.translate(table) for text in texts]


def _kind(character: str) -> tuple[str, str]:
    """Return the font to install for a character: its description, and its Debian package."""
    symbol = unicodedata.category(character) in ("So", "Sk") and character >= "\u2600"
    if symbol and not "\u3000" <= character <= "\ufaff":
        return "a monochrome emoji font (colour fonts cannot be drawn)", "fonts-symbola"
    if unicodedata.east_asian_width(character) in "WF":
        return "a Noto or Nanum font", "fonts-noto-cjk"
    return "a Noto font", "fonts-noto-core"


def _to_draw(text: str) -> frozenset[str]:
    """Return the characters that need a glyph: not white space, joiners, direction marks or variation selectors."""
    return frozenset(
        character
        for character in text
        if not character.isspace()
        and unicodedata.category(character) not in ("Cc", "Cf")
        and not "\ufe00" <= character <= "\ufe0f"
    )


@lru_cache(maxsize=256)
def search_fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return families that draw the characters, in order of preference, and the characters that none draws."""
    families = [BASE_FONT]
    # Fonts put what they like in the private use area (Co): no font's drawing there is the right one.
    private = {ord(character) for character in characters if unicodedata.category(character) == "Co"}
    left = {ord(character) for character in characters} - private - coverage(BASE_FONT)
    for refresh in (False, True):
        if left and (not refresh or add_new_fonts()):
            for family in sorted(_regular_faces(), key=lambda name: (preference(name, characters), name)):
                if found := left & coverage(family):
                    families.append(family)
                    left -= found
                if not left:
                    break
    return tuple(families), frozenset(map(chr, left | private))


def preference(family: str, characters: frozenset[str]) -> int:
    """Return the rank of a font family in the search for fonts that draw `characters`; the lowest rank is tried
    first.

    Korean, Japanese and Chinese fonts draw the same Han characters differently: Hangul or kana among them decides.
    """
    if any("\u3040" <= character <= "\u30ff" for character in characters):
        han = (*_JAPANESE, *_KOREAN, *_CHINESE)
    elif any("\uac00" <= character <= "\ud7a3" or "\u1100" <= character <= "\u11ff" for character in characters):
        han = (*_KOREAN, *_JAPANESE, *_CHINESE)
    else:
        han = (*_CHINESE, *_JAPANESE, *_KOREAN)
    first = (*han, *_OTHERS)
    if family in first:
        return first.index(family)
    return len(first) + (0 if family.startswith("Noto Sans") else 1 if family.startswith("Noto") else 2)


def _regular_faces() -> "dict[str, FontEntry]":
    """Return one font face per family: upright, and nearest to the regular weight; fonts that draw boxes or colours are
    left out.
    """
    from matplotlib import font_manager

    def irregularity(entry: "FontEntry") -> tuple[bool, float]:
        weight = font_manager.weight_dict.get(entry.weight, 400) if isinstance(entry.weight, str) else entry.weight
        return entry.style != "normal", abs(weight - 400)

    faces: dict[str, FontEntry] = {}
    for entry in font_manager.fontManager.ttflist:
        if not entry.name.startswith(_BOXES) and "Color Emoji" not in entry.name:
            faces[entry.name] = min(faces.get(entry.name, entry), entry, key=irregularity)
    return faces


@cache
def coverage(family: str) -> frozenset[int]:
    """Return the code points that a font family covers; empty if it is not installed or its file cannot be read."""
    from matplotlib.ft2font import FT2Font

    face = _regular_faces().get(family)
    try:
        return frozenset(FT2Font(face.fname, face_index=face.index).get_charmap()) if face else frozenset()
    except (OSError, RuntimeError):
        return frozenset()


@cache
def add_new_fonts() -> bool:
    """Register fonts that were installed since matplotlib wrote its cache; return whether there are any."""
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    found = False
    for path in font_manager.findSystemFonts():
        if path not in known:
            try:
                font_manager.fontManager.addfont(path)
                found = True
            except (OSError, RuntimeError):  # a format that FreeType does not read
                continue
    return found
