"""How much freed memory glibc keeps instead of returning it and taking the page faults again.

A gradient's buffers are about a megabyte. By default each of them may be mapped again and
unmapped after use: with AdaComp's network that is 400 page faults per gradient, and a tenth of
its time.
"""

from __future__ import annotations

import ctypes

NODE_TRIM_BYTES, NODE_MAP_BYTES = 16 * 2**20, 4 * 2**20
"""For one node among hundreds: what it keeps, and the size from which buffers are mmapped."""

TRIM_BYTES, MAP_BYTES = 128 * 2**20, 32 * 2**20
"""For one process per CPU, with the whole machine; glibc's mmap threshold is at most 32 MiB."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Make this process keep freed memory, up to ``TRIM_BYTES``, if its C library is glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, MAP_BYTES)
