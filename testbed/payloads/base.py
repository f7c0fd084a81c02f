"""What a payload is: some arrays, with what the frame and the codec need to know of them.

Bytes are those of the raw encoding, which writes ``arrays`` as they are; ``encodings`` has others.
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

PICKLE9_BYTES = {"<f4": 9, "<i4": 3}
"""What a value and an index take in ``pickle9``, a model of AdaComp's published volumes and no wire
format: its 460 GB for 250,000 dense pushes are what Python 2's pickle makes of 8-byte floats.
Other numbers take what they take in memory."""

CACHE_LINE_BYTES = 64


def zeros(size: int) -> Vector:
    """Zeros, float32 (size,), that begin at a cache line.

    NumPy's begin at any multiple of 16 bytes. There every load of 64 bytes touches two lines, and a
    gradient that is written there takes 5 to 10 % longer.
    """
    memory = np.zeros(4 * size + CACHE_LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE_BYTES
    return memory[start : start + 4 * size].view(np.float32)


class Payload(ABC):
    """What an update or a reply carries: a dataclass of arrays, the last of which has the values.

    Attributes:
        NUMBER: of its message in the proto's ``Payload``.
        TYPES: type of each array, in the order of the fields 1, 2, ... of that message.
    """

    NUMBER: ClassVar[int]
    TYPES: ClassVar[tuple[str, ...]]

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Self:
        """The payload of these arrays, one for each of ``TYPES``."""
        return cls(*arrays)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What goes over the wire."""
        return tuple(self.__dict__.values())

    @property
    def entries(self) -> int:
        """How many entries of the vector it speaks of."""
        return self.arrays[-1].size

    @property
    def size(self) -> int:
        """Bytes of its arrays as they are encoded."""
        return sum([array.nbytes for array in self.arrays])

    @property
    def pickle9_bytes(self) -> int:
        """What it would take as a pickle of 9 bytes a value and 3 an index."""
        kinds = zip(self.arrays, self.TYPES, strict=True)
        return sum([array.size * PICKLE9_BYTES.get(kind, array.itemsize) for array, kind in kinds])

    @abstractmethod
    def flaw(self, size: int) -> str:
        """Why it does not fit a vector of ``size`` entries; empty if it does."""

    @property
    def finite(self) -> bool:
        """Whether no value is NaN or infinite."""
        return bool(np.isfinite(self.arrays[-1]).all())


class Packable(Payload):
    """A payload that ``encodings`` can pack: one array of values, and indices if it has any."""

    @abstractmethod
    def with_values(self, values: Vector) -> Self:
        """The same entries with other values; those of value 0 are left out where they can be."""


def ascending(indices: Indices, size: int) -> bool:
    """Whether indices increase strictly within [0, size)."""
    # Neighbours are compared, not subtracted: in int32 a difference can wrap to a positive one.
    if indices.size == 0:
        return True
    return bool(indices[0] >= 0 and indices[-1] < size and (indices[:-1] < indices[1:]).all())
