"""A key-value store that all ranks share: they find each other through it, and wait for each other while all are alive.

It is a store of torch.distributed, hosted by torchrun or by the first rank. See `ranks` for when it is used.
"""

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from seq2see.errors import LostError, PassingError, RunError
from seq2see.machine import Stop

TIMEOUT = timedelta(seconds=45)
"""Maximum time that ranks wait for each other in one collective, for a heartbeat elsewhere, and for a reply of the
store. A rank that dies on this machine is noticed at once, by torchrun and by its closed connections. A rank that
hangs, or whose machine is unreachable, is noticed only by this limit, which ends the others within a minute. The limit
can be short because a step takes about a second, all ranks have equal work in it, and none waits for a disk.
"""
BEATS = 45
"""Number of heartbeats that each rank sends in the time `TIMEOUT`."""
Result = TypeVar("Result")


class Board:
    """A store that the ranks of one group share: they send heartbeats to it, and wait for each other (`meet`)."""

    def __init__(self, rank: int, world: int, store: Any) -> None:
        self.rank, self.world, self._store = rank, world, store
        self._meetings = 0
        self._may_stop: tuple[Stop, str] | None = None
        self._left = threading.Event()
        self._heart = threading.Thread(target=self._live, daemon=True)
        self._heart.start()

    def _live(self) -> None:
        """Send heartbeats until `leave`; inside `leaving_together`, also pass requests to stop between the ranks."""
        store = self._store.clone()  # a connection of its own, which nobody keeps waiting
        with contextlib.suppress(RuntimeError):  # the board is lost: who looks at it will find out
            while not self._left.wait(TIMEOUT.total_seconds() / BEATS):
                store.add(f"beats of {self.rank}", 1)
                stop, asked = self._may_stop or (None, "")
                if stop is None:
                    continue
                if stop.asked():
                    store.set(asked, str(stop.signal))
                elif store.check([asked]):
                    stop.pass_on(int(store.get(asked)))

    def meet(self) -> None:
        """Wait until all ranks have called this; a rank may take any time as long as it sends heartbeats.

        The first rank watches all others, and they watch the first. Raise an error if a rank has failed, or a watched
        one has sent no heartbeat for `TIMEOUT`.
        """
        self._meetings += 1
        name = f"meeting {self._meetings}"
        if self._ask(lambda: self._store.add(f"at {name}", 1)) == self.world:
            self._ask(lambda: self._store.set(name, ""))
        watched = [f"beats of {other}" for other in (range(1, self.world) if self.rank == 0 else [0])]
        before, still = [b""] * len(watched), [0] * len(watched)
        began = looked = time.monotonic()
        while not self._ask(lambda: self._store.check([name])):
            if self._ask(lambda: self._store.check(["failed"]) and not self._store.check([name])):
                passing = self._ask(lambda: self._store.get("failed")) == b"passing"
                raise (PassingError if passing else RunError)("another process has failed: see its error message")
            _pause(began)
            if time.monotonic() - looked < TIMEOUT.total_seconds() / BEATS:
                continue
            looked = time.monotonic()
            beats = self._ask(lambda: self._store.multi_get(watched))
            # Counted in looks, not by the clock: where the whole machine stood still for a while, nobody is lost.
            still = [count + 1 if one == old else 0 for count, one, old in zip(still, beats, before, strict=True)]
            before = beats
            if max(still) > BEATS:
                silent = watched[still.index(max(still))].removeprefix("beats of ")
                raise lost(f"process {silent} hangs")

    def _ask(self, question: Callable[[], Result], patience: float | None = None) -> Result:
        """Return the result of a request to the store; raise an error if the request fails or takes longer than
        `patience` seconds, by default `TIMEOUT`.
        """
        from concurrent.futures import Future  # late: `--help` need not wait for it

        answer: Future[Result] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except Exception as problem:
                answer.set_exception(problem)

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(TIMEOUT.total_seconds() if patience is None else patience)
        except TimeoutError:
            raise lost("the first process or its machine does not answer") from None
        except RuntimeError as problem:
            raise lost(shortly(problem)) from problem

    @contextlib.contextmanager
    def leaving_together(self, stop: Stop) -> Iterator[None]:
        """Context for work and the call of `meet` after it: if one rank is asked to stop, all ranks are."""
        self._may_stop = stop, f"stop before {self._meetings + 1}"
        try:
            yield
        finally:
            self._may_stop = None

    def fail(self, problem: BaseException) -> None:
        """Tell the ranks that wait in `meet` that this rank has failed, if the store can still be reached."""
        how = "passing" if isinstance(problem, PassingError) else "for good"
        with contextlib.suppress(PassingError):
            self._ask(lambda: self._store.set("failed", how), patience=2.0)

    def leave(self) -> None:
        self._left.set()
        self._heart.join(2.0)  # a thread in torch that outlives Python can crash it


def _pause(began: float) -> None:
    """Sleep between two reads of the store: about a tenth of the time since `began`, at most a second."""
    time.sleep(min(1.0, 0.002 + 0.1 * (time.monotonic() - began)))


def find_each_other(board: Any, number: int, count: int) -> str:
    """Wait until all ranks have started, however long that takes; return a name for this start of the group.

    After a restart the store `board` may still contain old entries, so a rank trusts only a reply to itself: each rank
    stores a random word, the first rank replies to every word with its own, and a rank that gets the reply confirms it.
    The word of the first rank is the name.
    """
    word, began = secrets.token_hex(8), time.monotonic()
    if number == 0:
        missing = set(range(1, count))
        while missing:
            for other in sorted(missing):
                if board.check([f"{word} signed by {other}"]):
                    missing.remove(other)
                elif board.check([f"word {other}"]):
                    board.set(f"answer to {str(board.get(f'word {other}'), 'utf-8')}", word)
            _pause(began)
        return word
    board.set(f"word {number}", word)
    while not board.check([f"answer to {word}"]):
        _pause(began)
    name = str(board.get(f"answer to {word}"), "utf-8")
    board.set(f"{name} signed by {number}", "")
    return name


def lost(why: str) -> LostError:
    return LostError(
        f"another process was lost, or silent for {TIMEOUT.seconds} s ({why}). Resume a training with --resume"
    )


def shortly(problem: Exception) -> str:
    """Return the first sentence of an error's message, without the library's source location before it."""
    return re.sub(r"^\[\S*\] ", "", str(problem).partition("\n")[0]).partition(". ")[0].rstrip(".")
