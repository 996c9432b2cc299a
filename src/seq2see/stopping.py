"""A stop that somebody asks for: Ctrl-C, a scheduler's SIGTERM, a terminal that is closed."""

import _thread
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):  # noqa: N818
    """What was going on is given up at once; nothing has changed by it."""


class Stop:
    """Whether a stop was asked for, and by which signal; a second signal does not wait.

    Args:
        echo: a signal that comes again within so many seconds is still the first: a scheduler may send it to all, and
            torchrun pass it on.
    """

    def __init__(self, echo: float = 0.0) -> None:
        self.signal = 0
        self._echo = echo
        self._heard_at = 0.0
        self._at_once = False
        self._listens = False

    def asked(self) -> bool:
        return self.signal != 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear signals, where this thread can; those that somebody else chose to ignore (nohup) stay ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in heard}
        self._listens = True
        try:
            yield
        finally:
            self._listens = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self, number: int) -> None:
        """As if the signal had come here, which another process was sent; called by another thread."""
        if self._listens and not self.asked():
            _thread.interrupt_main(signal.Signals(number))

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Around what changes nothing, such as a validation: it is left by `Stopped` wherever it stands."""
        self._at_once = True
        try:
            if self.asked():
                raise Stopped
            yield
        finally:
            self._at_once = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked():
            if time.monotonic() - self._heard_at < self._echo:
                return
            raise KeyboardInterrupt
        self.signal, self._heard_at = number, time.monotonic()
        if self._at_once:
            raise Stopped
