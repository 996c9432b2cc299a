"""What the program prints: messages, in which nothing can act on a terminal, and data, which stay as they are."""

import sys

import typer

from seq2see.errors import visible


def echo(message: object = "", nl: bool = True, err: bool = False, dim: bool = False) -> None:
    """Print a message for people. Names and texts of others in it cannot act on the terminal, now or from a log."""
    text = visible(str(message))
    typer.echo(typer.style(text, dim=True) if dim else text, nl=nl, err=err)


def write_line(line: str) -> None:
    """Write one line of data to standard output, in UTF-8 whatever the machine speaks.

    In a file or a pipe it is what the model or the program gives, to the last byte. On a terminal nobody but a person
    reads it, so that control characters are shown by their numbers.
    """
    line = line.replace("\n", " ")
    if sys.stdout.isatty():
        line = visible(line, keep="\t", formatting=True)
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
