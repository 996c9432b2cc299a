"""The command line: one module for each verb, which parses the options, calls one function and prints the result.

Nothing here imports torch until a verb needs it, so that `--help` answers at once.
"""

from seq2see.cli.program import main

__all__ = ["main"]
