"""Files of the kernel, which are read or written with one call.

A node that starts uses this instead of pathlib: every Python object that it touches is on a page of
its template that it then has to itself.
"""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 4096


def read(file: Path | str) -> bytes:
    """Return what a file contains, at most MOST_BYTES of it."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, MOST_BYTES)
    finally:
        os.close(descriptor)


def write(file: Path | str, data: bytes) -> None:
    """Write into a file that exists."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
