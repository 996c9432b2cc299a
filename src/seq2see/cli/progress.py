"""One line on a terminal about what takes long."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seq2see.errors import visible

PATIENCE = 1.0
"""Seconds for which nobody needs to be told anything."""
_CLEAR = "\r\x1b[K"


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """`with progress() as run.watch:` writes and rewrites `what: 12 of 60` on stderr, and wipes it away at the end."""
    begun, on_terminal, shown = time.monotonic(), sys.stderr.isatty(), False

    def tell(what: str, done: int, total: int) -> None:
        nonlocal shown
        if on_terminal and time.monotonic() - begun > PATIENCE:
            shown = True
            print(f"{_CLEAR}{visible(what)}: {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
