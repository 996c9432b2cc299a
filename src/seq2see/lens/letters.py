"""Letters of every script: which installed fonts draw them, and what to install where none does.

matplotlib shapes and orders Arabic and Devanagari by itself since 3.11; what it does not do is look for a font.
"""

import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

BASE_FONT = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek, Cyrillic, Arabic and symbols
# Tried first, in this order, before all other fonts: the common sans-serif faces of each system.
_KOREAN = ("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Nanum Gothic", "Malgun Gothic", "Apple SD Gothic Neo")
_JAPANESE = ("Noto Sans CJK JP", "Noto Sans JP", "IPAexGothic", "Yu Gothic", "Hiragino Sans")
_CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC")
_OTHERS = (
    "Noto Sans",
    "Noto Sans Devanagari",
    "Nirmala UI",
    "Kohinoor Devanagari",
    "Noto Sans Arabic",
    "Arial Unicode MS",
)
_BOXES = ("Last Resort", "LastResort", "Adobe Blank")  # claim every character, draw none


def font_families(text: str) -> list[str]:
    """Installed font families that together draw the text, for matplotlib's `fontfamily`: DejaVu Sans, then others.

    The last is for the readers of an SVG, who may have none of them.
    """
    families, _ = _search(_to_draw(text))
    return [*families, "sans-serif"]


def missing_glyphs(text: str) -> str:
    """The characters of the text that no installed font draws, each once, in order of appearance."""
    _, missing = _search(_to_draw(text))
    return "".join(dict.fromkeys(character for character in text if character in missing))


def note(text: str) -> str | None:
    """A line for the user where some letters have no font."""
    missing = missing_glyphs(text)
    if not missing:
        return None
    named = "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in missing)
    kinds = dict.fromkeys(map(_kind, missing))
    fonts, packages = " and ".join(kind for kind, _ in kinds), " ".join(package for _, package in kinds)
    return f"no installed font draws '{named}': install {fonts}, for example `apt-get install {packages}`"


def _kind(character: str) -> tuple[str, str]:
    """What to install for a character: in words, and as a package of Debian."""
    if (
        unicodedata.category(character) in ("So", "Sk")
        and character >= "\u2600"
        and not "\u3000" <= character <= "\ufaff"
    ):
        return "an emoji font of one colour (those of many cannot be drawn)", "fonts-symbola"
    if unicodedata.east_asian_width(character) in "WF":
        return "a Noto or Nanum font", "fonts-noto-cjk"
    return "a Noto font", "fonts-noto-core"


def drawn(texts: Iterable[str], path: Path) -> list[str]:
    """Texts as a picture has them: what no font draws is written as its number, `U+1F98A`, instead of as a box.

    In SVG and HTML letters stay letters: whoever reads those may have the font.
    """
    texts = list(texts)
    missing = "" if path.suffix.lower() in (".svg", ".html") else missing_glyphs("".join(texts))
    table = str.maketrans({character: f"U+{ord(character):04X}" for character in missing})
    return [text.translate(table) for text in texts]


def _to_draw(text: str) -> frozenset[str]:
    """Characters that need a glyph: not white space, not joiners, marks of direction or variation selectors."""
    return frozenset(
        character
        for character in text
        if not character.isspace()
        and unicodedata.category(character) not in ("Cc", "Cf")
        and not "\ufe00" <= character <= "\ufe0f"
    )


@lru_cache(maxsize=256)
def _search(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Families that draw the characters, tried in order of preference, and the characters left over."""
    families = [BASE_FONT]
    # Fonts put what they like in the private use area (Co): no font's drawing there is the right one.
    private = {ord(character) for character in characters if unicodedata.category(character) == "Co"}
    left = {ord(character) for character in characters} - private - _coverage(BASE_FONT)
    for refresh in (False, True):
        if left and (not refresh or _add_new_fonts()):
            for family in sorted(_regular_faces(), key=lambda name: (_rank(name, characters), name)):
                if drawn := left & _coverage(family):
                    families.append(family)
                    left -= drawn
                if not left:
                    break
    return tuple(families), frozenset(map(chr, left | private))


def _rank(family: str, characters: frozenset[str]) -> int:
    """Place in the order of trial. Korean, Japanese and Chinese draw the same Han characters each in their own way."""
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


def _regular_faces() -> dict[str, font_manager.FontEntry]:
    """One face per family: upright, nearest to the regular weight."""
    faces: dict[str, font_manager.FontEntry] = {}
    for entry in font_manager.fontManager.ttflist:
        if not entry.name.startswith(_BOXES) and "Color Emoji" not in entry.name:
            faces[entry.name] = min(faces.get(entry.name, entry), entry, key=_irregularity)
    return faces


def _irregularity(entry: font_manager.FontEntry) -> tuple[bool, float]:
    weight = font_manager.weight_dict.get(entry.weight, 400) if isinstance(entry.weight, str) else entry.weight
    return entry.style != "normal", abs(weight - 400)


@cache
def _coverage(family: str) -> frozenset[int]:
    """Code points that a family draws; none where its file cannot be read."""
    face = _regular_faces().get(family)
    if face is None:
        return frozenset()
    index = getattr(face, "index", 0)  # of the face in a .ttc collection; matplotlib before 3.11 reads the first only
    try:
        font = FT2Font(face.fname, face_index=index) if index else FT2Font(face.fname)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(font.get_charmap())


@cache
def _add_new_fonts() -> bool:
    """Show matplotlib the fonts installed since it wrote its cache, which it never does by itself; whether any."""
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
