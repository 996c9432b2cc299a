"""The C library's memory: kept, for programs that ask for the same large blocks over and over."""

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
