"""Memory: kept from the system by programs that ask for it over and over, and known to be used up."""

import contextlib
import ctypes
import sys


def keep_freed_memory() -> None:
    """Ask the C library to keep large blocks instead of handing each back to the system, which zeroes it anew.

    For the whole process, until it ends.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""From glibc's malloc.h."""


def is_used_up(problem: BaseException) -> bool:
    """Whether an error says that memory ran out, on a card or in torch's allocator for the processor."""
    said = str(problem)
    return isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError)
        and any(
            words in said for words in ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
        )
    )
