"""What a process does with memory: how much glibc keeps, and when Python looks for garbage.

A gradient's buffers are about a megabyte each. By default glibc may map every buffer before its
use and unmap it afterwards: with AdaComp's network, this causes 400 page faults per gradient, a
tenth of the time to compute the gradient.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NODE_TRIM_BYTES, NODE_MAP_BYTES = 16 * 2**20, 4 * 2**20
"""For a node among hundreds: bytes of freed memory to keep, and the size from which a buffer gets
its own mapping."""

TRIM_BYTES, MAP_BYTES = 128 * 2**20, 32 * 2**20
"""The same for one process per CPU that has the machine to itself. 32 MiB is the largest threshold
for mappings that glibc accepts."""

INTERPRETER_OBJECTS = 1000
"""More than Python 3.12 has frozen when it starts, and fewer than any program has."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Make this process keep freed memory, up to ``TRIM_BYTES``, if its C library is glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, MAP_BYTES)


@dataclass
class _Freezes:
    """Who keeps the heap of this process frozen.

    Attributes:
        inside: how often ``heap_frozen`` is active.
        by_others: whether other code has frozen it, for good. Counting frozen objects visits each
            of them: 60 ms for half a million.
    """

    inside: int = 0
    by_others: bool = False


_freezes = _Freezes()


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Inside, the garbage collector skips all objects that already exist.

    A full collection visits every object: 50 to 70 ms after torch, gRPC and pandas have been
    imported, which delays scheduled work. A heap that is already frozen stays frozen.
    """
    if not _freezes.inside and not _freezes.by_others:
        _freezes.by_others = gc.get_freeze_count() > INTERPRETER_OBJECTS
    _freezes.inside += 1
    gc.freeze()
    try:
        yield
    finally:
        _freezes.inside -= 1
        if not _freezes.inside and not _freezes.by_others:
            gc.unfreeze()
