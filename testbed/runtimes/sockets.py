"""Unix sockets in run folders, whose paths may be longer than an address can be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name for a socket whose own path may be longer than the 107 bytes that an address holds.

    Raises:
        OSError: its folder is missing.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
