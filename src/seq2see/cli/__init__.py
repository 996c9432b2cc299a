"""The command line: one verb a file, each parses, calls one function and prints.

Nothing here imports torch until a verb needs it, so that `--help` answers at once.
"""

from seq2see.cli.program import main

__all__ = ["main"]
