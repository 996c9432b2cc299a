"""Memory: how much is free, kept from the system by programs that ask for it over and over, and known to be used up."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path


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


def free() -> int:
    """Return the bytes that this process can get without swapping, within the limit of its container."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder, limit, used in CONTAINERS:
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such file here, or "max": no limit
            numbers = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = int(numbers["active_file"]) + int(numbers["inactive_file"])  # files, given back when asked for
            found = min(found, max(0, int((folder / limit).read_text()) - int((folder / used).read_text()) + cached))
    return found


CONTAINERS = [
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
]
"""Files of Linux with the limit of a container and what it uses, by cgroups of version 2 and 1."""


def is_used_up(problem: BaseException) -> bool:
    """Whether an error says that memory ran out, on a card or in torch's allocator for the processor."""
    said = str(problem)
    return isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError)
        and any(
            words in said for words in ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
        )
    )
