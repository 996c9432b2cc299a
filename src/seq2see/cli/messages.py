"""What the program prints: messages and progress for people, and lines of data for programs."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from seq2see.display.wording import translated
from seq2see.errors import visible

PATIENCE = 1.0
"""Seconds that a computation must have taken before its progress is shown on a terminal."""
_CLEAR = "\r\x1b[K"


def echo(message: object = "", nl: bool = True, err: bool = False, dim: bool = False) -> None:
    """Print a message in the language of the user; control characters in it are replaced by their code points."""
    text = visible(translated(str(message)))
    typer.echo(typer.style(text, dim=True) if dim else text, nl=nl, err=err)


def write_line(line: str) -> None:
    """Write one line of data to standard output, in UTF-8 whatever the locale; line feeds in it become spaces.

    On a terminal, control characters are replaced by their code points; a file or a pipe gets them unchanged.
    """
    line = line.replace("\n", " ")
    if sys.stdout.isatty():
        line = visible(line, keep="\t", formatting=True)
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows `what: 12 of 60` in one line of a terminal, but not in the first `PATIENCE` seconds;
    the line is cleared at the end.
    """
    begun, on_terminal, shown = time.monotonic(), sys.stderr.isatty(), False

    def tell(what: str, done: int, total: int) -> None:
        nonlocal shown
        if on_terminal and time.monotonic() - begun > PATIENCE:
            shown = True
            line = f"{visible(translated(what))}: {translated(f'{done:,} of {total:,}')}"
            print(f"{_CLEAR}{line}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
