"""What a note of an update or a reply may hold: numbers, text and arrays, by name.

Numbers are part of a message's head, and do not count as payload. Text and arrays count with their
exact size: UTF-8, and the bytes of the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from testbed.payloads.base import Array

Note: TypeAlias = Mapping[str, float | str | NDArray[Any]]

TYPES = frozenset(
    ("<f4", "<f8", "<f2", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1")
)
"""Types of arrays in a note, little-endian."""


def note_bytes(note: Note) -> int:
    """Return the bytes of texts and arrays in a note."""
    return sum([_bytes(value) for value in note.values() if isinstance(value, str | np.ndarray)])


def _bytes(value: str | Array) -> int:
    return len(value.encode()) if isinstance(value, str) else value.nbytes


def note_flaw(note: Note, most: int) -> str:
    """Return why a note cannot be sent, with texts and arrays of at most ``most`` bytes."""
    for name, value in note.items():
        if not isinstance(value, np.ndarray | str | int | float | np.number):
            return f"{name} in its note is a {type(value).__name__}: not a number, text or array"
        if isinstance(value, np.ndarray) and value.dtype.str not in TYPES:
            return f"{name} in its note is an array of {value.dtype}, which is not supported"
    size = note_bytes(note)
    limit = f"its config's most_noted is {most:,}"
    return f"its note has {size:,} bytes of text and arrays, but {limit}" if size > most else ""


def is_finite(note: Note) -> bool:
    """Return whether all values of a note's arrays are finite."""
    arrays = [value for value in note.values() if isinstance(value, np.ndarray)]
    return all(bool(np.isfinite(array).all()) for array in arrays)


def equal(one: Note, other: Note) -> bool:
    """Return whether two notes are equal, arrays bit by bit."""
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name])
        if isinstance(value, np.ndarray)
        else value == other[name]
        for name, value in one.items()
    )


def number(note: Note, name: str, default: float = 0.0) -> float:
    """Return a number of a note; ``default`` if it is missing, or no number."""
    value = note.get(name, default)
    return float(value) if isinstance(value, int | float) else default
