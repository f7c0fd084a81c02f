"""Keeps the collector of garbage from standing in the way of what is due."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Inside, the collector passes over what exists by now.

    A full collection looks at every object: 50 to 70 ms after torch, gRPC and pandas have been
    imported, in which nothing that is due gets done. A heap that is frozen already stays so.
    """
    frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
