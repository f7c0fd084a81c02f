"""New memory after fill_gaps lies outside of the gaps that there were."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testbed.runtimes.agent.gaps import fill_gaps

EMPTY_BYTES = 33
"""Size of a bytes object of length 0."""

MANY = 2_000

CACHED = 7
"""Released pieces of a size that glibc keeps for requests of exactly this size."""

PIECES = f"""
import ctypes, sys
from testbed.runtimes.agent.gaps import fill_gaps

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
size = int(sys.argv[1])
gaps = {{libc.malloc(size) for _ in range(2 * {MANY})}}
for piece in sorted(gaps)[1::2]:
    gaps.remove(piece)
for piece in gaps:
    libc.free(piece)
fill_gaps()
print(len(gaps & {{libc.malloc(size) for _ in range({MANY})}}))
"""


@pytest.mark.parametrize("size", [64, 512])
def test_new_objects_lie_in_no_gap(size: int) -> None:
    objects = [bytes(size - EMPTY_BYTES) for _ in range(2 * MANY)]
    gaps = set(map(id, objects[::2]))
    del objects[::2]  # the others stay, or Python would use the place for other sizes
    fill_gaps()
    made = [bytes(size - EMPTY_BYTES) for _ in range(MANY)]
    assert len(objects) == MANY
    assert not gaps & set(map(id, made))


@pytest.mark.parametrize("size", [24, 40, 1000])
def test_new_pieces_of_the_heap_lie_in_no_gap(size: int) -> None:
    command = [sys.executable, "-c", PIECES, str(size)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert int(found.stdout) <= CACHED
