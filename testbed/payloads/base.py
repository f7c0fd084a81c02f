"""The base of payloads: a set of arrays, with the interface that the frame and the codec need.

Sizes are those of the raw encoding, which writes ``arrays`` unchanged; ``encodings`` has others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Indices = NDArray[np.int32]
Array = NDArray[Any]

VALUE_BYTES = 4
"""Size of a value (float32) in a model, and in a push of all values."""

PICKLE9_BYTES = {"<f4": 9, "<i4": 3}
"""Bytes per value and per index in ``pickle9``, a model of AdaComp's published volumes, not a wire
format: its 460 GB for 250,000 dense pushes match the size of 8-byte floats in Python 2's pickle.
Other numbers count with their size in memory."""

CACHE_LINE_BYTES = 64


def zeros(size: int) -> Vector:
    """Return zeros, float32 (size,), aligned to a cache line.

    NumPy aligns arrays to 16 bytes only. Then every load of 64 bytes touches two lines, and writing
    a gradient there takes 5 to 10 % longer.
    """
    memory = np.zeros(VALUE_BYTES * size + CACHE_LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE_BYTES
    return memory[start : start + VALUE_BYTES * size].view(np.float32)


class Payload(ABC):
    """The content of an update or a reply: a dataclass of arrays; the last array has the values.

    Attributes:
        NUMBER: its number in the proto's ``Payload``.
        TYPES: type of each array, in the order on the wire.
    """

    NUMBER: ClassVar[int]
    TYPES: ClassVar[tuple[str, ...]]

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Self:
        """Create the payload from its arrays, one for each of ``TYPES``."""
        return cls(*arrays)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that go over the wire."""
        return tuple(self.__dict__.values())

    @property
    def entries(self) -> int:
        """Number of entries of the vector in the payload."""
        return self.arrays[-1].size

    @property
    def size(self) -> int:
        """Bytes of its arrays in the raw encoding."""
        return sum([array.nbytes for array in self.arrays])

    @property
    def pickle9_bytes(self) -> int:
        """Its size as a pickle with 9 bytes per value and 3 bytes per index."""
        kinds = zip(self.arrays, self.TYPES, strict=True)
        return sum([array.size * PICKLE9_BYTES.get(kind, array.itemsize) for array, kind in kinds])

    def as_declared(self) -> Self:
        """Return the payload with flat arrays of ``TYPES``, as they are sent and counted.

        Float64 becomes float32, and int64 int32: NumPy makes these where float32 and int32 are
        meant, and their bytes would count twice.

        Raises:
            TypeError: an array cannot be converted without changing what its values are.
            ValueError, RuntimeError: it is no array, or a tensor that needs a gradient.
        """
        arrays = self.arrays
        if all(_is_declared(*one) for one in zip(arrays, self.TYPES, strict=True)):
            return self
        return self.of([_converted(*one) for one in zip(arrays, self.TYPES, strict=True)])

    @abstractmethod
    def flaw(self, size: int) -> str:
        """Return why it does not fit a vector of ``size`` entries; an empty string if it fits."""

    @property
    def finite(self) -> bool:
        """Whether all values are finite."""
        return bool(np.isfinite(self.arrays[-1]).all())


def _is_declared(array: Any, kind: str) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.str == kind and array.ndim == 1


def _converted(given: Any, kind: str) -> Array:
    """Return an array of this type; see ``Payload.as_declared``."""
    array = np.asarray(given)
    if not np.can_cast(array.dtype, kind, "same_kind"):
        raise TypeError(f"an array of {array.dtype}, expected {np.dtype(kind)}")
    return np.ascontiguousarray(array, kind).reshape(-1)


class Packable(Payload):
    """A payload that ``encodings`` can pack: one array of values, and optional indices."""

    @abstractmethod
    def with_values(self, values: Vector) -> Self:
        """Return the same entries with other values; zeros are omitted if the kind allows it."""


def ascending(indices: Indices, size: int) -> bool:
    """Return whether indices increase strictly within [0, size)."""
    # Neighbours are compared, not subtracted: in int32 a difference can wrap to a positive one.
    if indices.size == 0:
        return True
    return bool(indices[0] >= 0 and indices[-1] < size and (indices[:-1] < indices[1:]).all())
