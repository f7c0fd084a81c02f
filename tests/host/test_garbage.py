"""What the garbage collector skips while a deadline may be near."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc, weakref
from testbed.host.allocation import heap_frozen

class Kept: pass

def looked_at(one):
    return any(found is one for found in gc.get_objects())

before = Kept()
{first}
try:
    with heap_frozen(), heap_frozen():
        since = Kept()
        print(looked_at(since), looked_at(before))
        cycle = Kept()
        cycle.itself = cycle
        alive = weakref.ref(cycle)
        del cycle
        gc.collect()
        print(alive() is None)
        raise KeyError
except KeyError:
    print(looked_at(since), looked_at(before))
"""


@pytest.mark.parametrize(
    ("first", "seen"),
    [
        ("", "True False\nTrue\nTrue True\n"),
        ("gc.freeze()", "True False\nTrue\nTrue False\n"),  # a heap frozen before stays so
    ],
)
def test_existing_objects_are_skipped_only_inside(first: str, seen: str) -> None:
    """In a separate process: this one's heap is frozen, and has to stay so."""
    command = [sys.executable, "-c", SCRIPT.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == seen
