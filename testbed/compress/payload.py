"""Payloads: what an update or a reply carries of a flat float32 vector.

Byte sizes are those of the raw encoding (4 bytes a value, 4 bytes an index); the codec counts them
as it reads and writes, and nobody else does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Dense:
    """All N entries, in order.

    Attributes:
        values: float32, shape (N,).
    """

    values: Vector


@dataclass(frozen=True, eq=False)
class Sparse:
    """Some entries of the vector; may be empty.

    Attributes:
        indices: int32, shape (k,), strictly increasing, each in [0, N).
        values: float32, shape (k,), the entries at ``indices``.
    """

    indices: Indices
    values: Vector


Payload = Dense | Sparse
