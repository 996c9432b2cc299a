"""The log on standard error, which can neither block nor stop the service, whatever happens to its reader.

A reader may go away (EPIPE), its disk may be full (ENOSPC), or it may be stopped and leave the pipe full, so that a
write to it would never return. `Log` therefore replaces standard error by a pipe of its own, for this process and for
the engine processes that inherit it. One thread empties this pipe at all times; another writes to the real standard
error, and is the only one that ever waits for it. Lines that cannot be written are dropped and counted.
"""

import contextlib
import fcntl
import os
import select
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

MOST_BYTES = 1024 * 1024
"""Maximum number of bytes of log lines that wait for a slow reader of standard error; further lines are dropped."""
LONGEST_LINE = 64 * 1024
"""Number of bytes after which a line that has no end yet is written as if it were complete."""
PAUSE = 0.01
"""Seconds that the thread of the log waits between two reads of its pipe, so that a busy service wakes it at most 100
times a second.
"""
SECONDS_AT_END = 1.0
"""Maximum seconds for which the end of the service waits for the last lines to be read, and again to be written."""


def log(line: str) -> None:
    """Write a line to standard error; if that fails, the line is lost and the service continues."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: somebody has closed sys.stderr
        if sys.stderr is not None:
            sys.stderr.write(f"{line}\n")


def report(problem: BaseException, where: str) -> None:
    """Log the type of an exception and where it was raised, without its message, which may quote a user's text."""
    frames = "".join(traceback.format_tb(problem.__traceback__))
    log(f"seq2see: {type(problem).__name__} in {where}\n{frames}".rstrip("\n"))


class Log:
    """Context that replaces standard error by a pipe: `with Log(count_dropped): ...`.

    Args:
        dropped: called by another thread with the number of lines that were dropped.
        descriptor: the file descriptor to replace; another number only in tests.
    """

    def __init__(self, dropped: Callable[[int], None], descriptor: int = 2) -> None:
        self._dropped = dropped
        self._descriptor = descriptor
        self._real: int | None = None
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0
        """Number of dropped lines that have not been reported in the log yet."""
        self._is_torn = False
        """Whether a write error has left a line half written."""
        self._ended = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Log":
        if sys.stderr is None:  # closed before the program started
            self._reserve()
            return self
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        self._real = os.dup(self._descriptor)
        reading, writing = os.pipe()
        with contextlib.suppress(OSError):  # a user may have no more memory for pipes
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, MOST_BYTES)
        os.dup2(writing, self._descriptor)
        os.close(writing)
        for do, given in ((self._collect, reading), (self._write, self._real)):
            thread = threading.Thread(target=do, args=(given,), name="log", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        if self._real is None:
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os.dup2(self._real, self._descriptor)
        collector, writer = self._threads
        collector.join(SECONDS_AT_END)
        with self._changed:
            self._ended = True
            self._changed.notify()
        writer.join(SECONDS_AT_END)

    def _reserve(self) -> None:
        """Open /dev/null as standard error if it is closed; otherwise a new socket would get its number and the log
        lines.
        """
        try:
            os.fstat(self._descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._descriptor)
            if null != self._descriptor:
                os.close(null)

    def _collect(self, pipe: int) -> None:
        """Read lines from the pipe and queue them for writing, until all writers of the pipe have closed it."""
        rest = b""
        while data := os.read(pipe, MOST_BYTES):
            lines, newline, rest = (rest + data).rpartition(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, newline, rest = lines + newline + rest, b"\n", b""
            if newline:
                self._put(lines + newline)
            time.sleep(PAUSE)
        if rest:
            self._put(rest + b"\n")
        os.close(pipe)

    def _put(self, lines: bytes) -> None:
        with self._changed:
            if self._bytes + len(lines) > MOST_BYTES:
                self._lose(lines)
                return
            self._waiting.append(lines)
            self._bytes += len(lines)
            self._changed.notify()

    def _write(self, real: int) -> None:
        """Write the collected lines to the real standard error, waiting as long as necessary."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    os.close(real)
                    return
                lines, lost = self._waiting[0], self._lost
            note = f"seq2see: {lost} lines of the log were dropped\n".encode() if lost else b""
            if self._is_torn:
                note = b"\n" + note
            written = _write_all(real, note + lines)
            with self._changed:
                self._waiting.popleft()
                self._bytes -= len(lines)
                if written >= len(note):
                    self._lost -= lost
                if written:
                    self._is_torn = not (note + lines)[:written].endswith(b"\n")
                self._lose((note + lines)[max(written, len(note)) :])

    def _lose(self, lines: bytes) -> None:
        if count := lines.count(b"\n"):
            self._lost += count
            self._dropped(count)


def _write_all(real: int, data: bytes) -> int:
    """Write all of `data`, waiting for a slow reader; return the number of bytes written before any error."""
    done = 0
    while done < len(data):
        try:
            done += os.write(real, data[done:])
        except BlockingIOError:  # whoever shares standard error with us has made it non-blocking
            select.select([], [real], [], 1.0)
        except OSError:
            break
    return done
