"""Record which source files of seq2see a call enters, in the order in which they are first entered."""

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import seq2see

PACKAGE = f"{Path(seq2see.__file__).parent}/"


class Trace:
    """The files of which at least one function was entered; module bodies and class bodies do not count.

    Args:
        until: The name of a function; nothing is recorded after it has returned for the first time.
    """

    def __init__(self, until: str = "") -> None:
        self.files: dict[str, None] = {}
        self._until = until
        self._ended = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self._ended or event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if event == "return":
            self._ended = code.co_name == self._until
        elif code.co_flags & inspect.CO_OPTIMIZED:
            self.files[code.co_filename.removeprefix(PACKAGE)] = None


@contextmanager
def traced(until: str = "") -> Iterator[Trace]:
    """Trace this thread, and those that are started meanwhile."""
    trace = Trace(until)
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
