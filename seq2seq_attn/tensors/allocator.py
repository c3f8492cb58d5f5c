"""Freed memory stays with the process: given back, it would be mapped and cleared anew, page by page, at every step."""

from __future__ import annotations

import ctypes
import os

# of <malloc.h>
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tell glibc's malloc so; whether it heard. With another C library, or where MALLOC_… is set, nothing changes.

    By default malloc returns a large tensor to the system as soon as it is freed, and the next one costs a page fault
    for every 4 KiB, in one thread at a time. See mallopt(3).
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, -1))
