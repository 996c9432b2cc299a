"""Read the templates, style sheets and scripts from which HTML pages are made.

This module does not import torch: the process that answers HTTP makes the live page from these files.
"""

from importlib import resources

from seq2see.display.wording import language

SCRIPTS = ("korean.js", "basics.js", "attention.js", "components.js")
"""Scripts that `look` and the live page share, in the order in which they are joined into one module."""


STYLES = ("page.css", "maps.css")
"""Style sheets that `look` and the live page share; of these, reports include `maps.css`."""


def read(name: str, package: str = "seq2see.look") -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def in_language(page: str) -> str:
    """Return a page that begins in Korean if that is the language of the user; the page has a language switch."""
    return page.replace('<html lang="en">', '<html lang="en" data-language="ko">') if language() == "ko" else page


def style() -> str:
    """Return the CSS that the page of `look` and the live page share."""
    return "\n".join(map(read, STYLES))


def script(start: str) -> str:
    """Return the script of a page: the shared components, and the text `start` of the script that runs them."""
    return "\n".join([*map(read, SCRIPTS), start])
