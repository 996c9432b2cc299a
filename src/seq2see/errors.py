"""The mistakes a user can make, each with one clear line.

    SeqError                     caught by the command line: one line, exit code 2
    ├── DataError                a corpus that cannot be read or used
    ├── SettingError             an unknown key, a wrong value, settings that contradict each other
    └── RunError                 a run folder that is missing, half written, foreign or already there

Our own mistakes are `assert`s and stay tracebacks.
"""

import difflib
from collections.abc import Iterable


class SeqError(Exception):
    """Base of everything that is the user's to mend; the message says what, where and what to do."""


class DataError(SeqError):
    """A corpus that cannot be read or holds nothing usable."""


class SettingError(SeqError):
    """An unknown setting, a value out of range, or settings that contradict each other."""


class RunError(SeqError):
    """A run folder that is missing, half written, of another format, or in the way."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """End of a message: the closest spelling where there is one, else the whole choice."""
    options = sorted(choices)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Choose from: {', '.join(options)}."
