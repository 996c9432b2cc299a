"""Languages by code and by name, as headers, suffixes of files and catalogues spell them."""

import re
from functools import cache

SPELLED = re.compile(r"([A-Za-z]{2,3})((?:[-_@][A-Za-z0-9]{2,8})*)")
"""Pattern of language codes: `en`, `eng`, `pt_BR`, `zh-Hant-TW`, `sr@latin`."""


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
