"""Fills the gaps that imports have left in the heaps, before the template's first fork.

A node that puts a new object into a gap copies the page around it. So its objects would lie in
hundreds of pages with few of them each; without gaps, they lie side by side in pages of their own.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from itertools import pairwise

OBJECT_BYTES = range(16, 513, 16)
"""Sizes of the objects that Python allocates itself, side by side with others of their size."""

PIECE_BYTES = [*(2**power for power in range(15, 4, -1)), 24]
"""Sizes of the pieces of malloc's heap: the largest that fits goes into a gap, then smaller ones.

The last fills the smallest gap that there is. The buffers of a model are larger: they come and go.
"""

ROUND_BYTES = 2**16
HEAP_ROUND_BYTES = 2**18
"""How much is allocated before a look at whether there are still gaps."""

MOST_ROUNDS = 100
"""For each size: with an unusual allocator, nothing may ever lie side by side."""

FEW_RATIO = 0.1
"""Of the allocations outside of gaps, this many may not lie next to the one before."""

Allocate = Callable[[int], int]


def fill_gaps() -> None:
    """Fill the gaps of Python's heap and of malloc's, with memory that is never released."""
    allocate = _allocator(ctypes.pythonapi, "PyObject_Malloc")
    for size in OBJECT_BYTES:
        _fill(allocate, size, ROUND_BYTES // size)
    allocate = _allocator(ctypes.CDLL(None), "malloc")
    for size in PIECE_BYTES:
        _fill(allocate, size, HEAP_ROUND_BYTES // size)


def _allocator(library: ctypes.CDLL, name: str) -> Allocate:
    function = library[name]
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    allocate: Allocate = function
    return allocate


def _fill(allocate: Allocate, size: int, count: int) -> None:
    """Allocate ``count`` pieces at a time, until nearly all of them lie side by side."""
    for _ in range(MOST_ROUNDS):
        # An array: a list of integers would itself be many new objects.
        addresses = array("Q", (allocate(size) for _ in range(count)))
        apart = [not size <= after - before < 2 * size for before, after in pairwise(addresses)]
        if sum(apart) <= FEW_RATIO * count:
            return
