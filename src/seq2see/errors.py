"""Errors that a user can correct, each with a message of one line; and functions that make text safe for messages.

    SeqError                     the command line prints the message, exit code 2
    ├── DataError                a corpus that cannot be read or used
    │   └── TooLongError         a text with more tokens than can be shown
    ├── SettingError             an unknown key, a wrong value, settings that contradict each other
    └── RunError                 a run folder that is missing, half written, of another program or already there
        ├── PassingError         a temporary problem (full disk): the same command may succeed later; exit code 75
        │   └── LostError        another process of the same training has died, or hangs
        └── OnlyHereError        a problem of only one process of a training; this process has to report it

Bugs of seq2see itself are assertions, and end with a traceback.
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unicodedata import category

INSTALL_ALL = "pip install seq2see, in place of seq2see-slim"
"""End of an error message about a missing package that seq2see installs and seq2see-slim does not."""


class SeqError(Exception):
    """Base class of errors that the user can correct; the message says what happened, where, and what to do."""

    exit_code = 2
    details: Mapping[str, Any] = MappingProxyType({})
    """Facts that tell programs which error this is, besides the message; error responses of `serve` contain them."""


class DataError(SeqError):
    """A corpus that cannot be read or contains no usable pairs."""


class TooLongError(DataError):
    """A text whose inside cannot be shown because its number of tokens is larger than `most`."""

    def __init__(self, line: str, tokens: int, most: int) -> None:
        super().__init__(line)
        self.details = {"code": "too_long", "tokens": tokens, "most": most}


class SettingError(SeqError):
    """An unknown setting, a value out of range, or settings that contradict each other."""


class RunError(SeqError):
    """A run folder that is missing, half written, of another format, already there, or cannot be written to."""


class PassingError(RunError):
    """A temporary error: the same command may succeed later; a training is continued with --resume."""

    exit_code = 75
    """Exit code EX_TEMPFAIL of sysexits.h, after which schedulers repeat a command."""


class LostError(PassingError):
    """Another of the processes (ranks) that train together has died or hangs."""


class OnlyHereError(RunError):
    """A problem of only one of the processes (ranks) that train together; this process has to report it itself."""


def visible(text: str, keep: str = "\n\t", formatting: bool = False) -> str:
    """Return a text for a terminal; control and invisible characters are replaced by their code points: `<U+001B>`.

    Texts of files and models may contain escape sequences, which move the cursor, change the title of the window or
    hide what follows them, and characters that reverse the order of reading.

    Args:
        keep: control characters that are not replaced.
        formatting: keep invisible characters that the spelling of some languages needs (joiners, direction marks), and
            private-use and unassigned characters.
    """
    if text.isprintable():
        return text
    harmless = ("Zs", "Cf", "Co", "Cn") if formatting else ("Zs",)
    return "".join(
        each if each.isprintable() or each in keep or category(each) in harmless else f"<U+{ord(each):04X}>"
        for each in text
    )


def shown(value: Any) -> str:
    """Return the `repr` of a value for a message, shortened to about 80 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits than Python writes; nested very deep
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the closest choice if there is one, else all choices."""
    options = sorted(choices)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Choose from: {', '.join(options)}."


def nearest_of_few(word: str, choices: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the closest choice if there is one, and all choices."""
    options = sorted(choices)
    closest, every = nearest(word, options), f"Choose from: {', '.join(options)}."
    return every if closest == every else f"{closest} {every}"


def nearest_file(missing: Path, others: Iterable[Path] = ()) -> str:
    """Return the end of a message about a missing file: the file with the closest name in its folder, except `others`;
    an empty text if no name without suffixes is similar. Of a link, the missing file to which it points.
    """
    try:
        if missing.is_symlink():
            return f"It is a link to '{missing.readlink()}', which does not exist."
        found = [path for path in missing.parent.iterdir() if path not in others and path.is_file()]
    except (OSError, ValueError):
        return ""
    close = [path for path in found if _likeness(_stem(path), _stem(missing)) >= 0.7]
    best = max(close, key=lambda path: (_likeness(path.name, missing.name), path.name), default=None)
    return "" if best is None else f"Did you mean '{best}'?"


def _stem(path: Path) -> str:
    return path.name.removeprefix(".").partition(".")[0]


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()
