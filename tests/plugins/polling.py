"""How tests wait for what no call returns: a file, a process, an effect of another thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LONGEST_SECONDS = 180.0
"""Only a failure takes as long: other tests may keep the host busy."""

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], story: Callable[[], object] = lambda: "") -> Found:
    """Poll until the result is true, and return it; ``story`` tells of a failure."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"timed out: {story()}"
        time.sleep(0.01)
    return found
