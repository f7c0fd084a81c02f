"""Payloads of updates and replies: the parts of a flat float32 vector that they carry.

Each kind has its own file. A new kind needs a file, an entry in ``KINDS`` and a message of the same
number in the proto.
"""

from testbed.payloads.base import Array, Indices, Packable, Payload, Vector, zeros
from testbed.payloads.dense import Dense
from testbed.payloads.keyed import Keyed
from testbed.payloads.quantized import Quantized
from testbed.payloads.sparse import Sparse

KINDS: tuple[type[Payload], ...] = (Dense, Sparse, Keyed, Quantized)

__all__ = [
    "KINDS",
    "Array",
    "Dense",
    "Indices",
    "Keyed",
    "Packable",
    "Payload",
    "Quantized",
    "Sparse",
    "Vector",
    "zeros",
]
