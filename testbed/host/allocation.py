"""How much freed memory glibc keeps instead of giving it back and taking the page faults again.

A gradient's buffers are of the order of a megabyte. By default each of them may be mapped anew and
unmapped after its use: with AdaComp's network that is 400 page faults a gradient, and a tenth of
its time.
"""

from __future__ import annotations

import ctypes

NODE_TRIM_BYTES, NODE_MAP_BYTES = 16 * 2**20, 4 * 2**20
"""Of one node among hundreds: what it keeps, and from what size on a buffer is mapped alone."""

TRIM_BYTES, MAP_BYTES = 128 * 2**20, 32 * 2**20
"""Of one process a CPU, which has the whole machine; glibc maps no less than 32 MiB alone."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Have this process keep what it frees, up to ``TRIM_BYTES``, where its C library is glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, MAP_BYTES)
