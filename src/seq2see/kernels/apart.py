"""Call functions in another process, where threads of this one do not slow them down.

Only one thread of a process runs Python at a time. While a thread compiles GPU kernels, other Python code that consists
of many short operations, such as the aligner, waits after each of them and takes several times as long.
"""

import contextlib
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from seq2see.machine import WorkerProcess, cores

Result = TypeVar("Result")


class Call(Protocol):
    """A function that calls `function` with the arguments `given`, as `operator.call` does, perhaps elsewhere."""

    def __call__(self, function: Callable[..., Result], /, *given: Any) -> Result: ...


@contextlib.contextmanager
def process(*expected: Callable[..., Any]) -> Iterator[Call]:
    """Start a process, yield a function that calls others in it, and end it. On one core, no process is started.

    Args:
        expected: Functions that will be called, of modules that do not import torch. The process imports them when it
            starts, while this one does other work.
    """
    if cores() < 2 or not sys.executable:  # nothing to gain, or Python is a part of another program
        yield operator.call
        return
    worker = WorkerProcess(_Calling, expected)

    def there(function: Callable[..., Result], /, *given: Any) -> Result:
        worker.send((function, given))
        result: Result = worker.receive()
        return result

    try:
        yield there
    finally:
        worker.end()


class _Calling:
    """Callable for worker processes: a task is a function and its arguments."""

    def __init__(self, *expected: Callable[..., Any]) -> None:
        """Do nothing with the expected functions: that they are arguments has imported them."""

    def __call__(self, task: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
        function, given = task
        return function(*given)


def begin(function: Callable[..., Result], *given: Any) -> Callable[[], Result]:
    """Begin to compute `function(*given)` in another process, and return a function that waits for the result.

    If this program ends before, it does not wait, and the other process ends, too.
    """
    found: Future[Result] = Future()

    def work() -> None:
        try:
            with process(function) as call:
                found.set_result(call(function, *given))
        except BaseException as problem:  # raised again by whoever asks for the result
            found.set_exception(problem)

    threading.Thread(target=work, name="apart", daemon=True).start()
    return found.result
