"""Call functions in another process, where threads of this one do not slow them down.

Only one thread of a process runs Python at a time. While a thread compiles GPU kernels, other Python code that consists
of many short operations, such as the aligner, waits after each of them and takes several times as long.
"""

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from seq2see.machine import WorkerProcess

Result = TypeVar("Result")


class Call(Protocol):
    """A function that calls `function` with the arguments `given`, as `operator.call` does, perhaps elsewhere."""

    def __call__(self, function: Callable[..., Result], /, *given: Any) -> Result: ...


@contextlib.contextmanager
def process(*expected: Callable[..., Any]) -> Iterator[Call]:
    """Start a process, yield a function that calls others in it, and end it.

    Args:
        expected: Functions that will be called, of modules that do not import torch. The process imports them when it
            starts, while this one does other work.
    """
    if not sys.executable:  # Python is a part of another program
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
    """Begin to compute `function(*given)` in another process, and return a function that waits for the result."""

    def work() -> Result:
        with process(function) as call:
            return call(function, *given)

    return ThreadPoolExecutor(1).submit(work).result
