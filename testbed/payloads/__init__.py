"""Payloads of updates and replies, and their compression.

Here: what a message carries of a flat float32 vector, one file per kind, and pure functions that
select or quantize its values (``topk``, ``qsgd``, ``core_explorer``). Not here: the algorithm that
decides to compress (``algorithms``), bytes on the wire (``rpc``). A new kind is a file and an entry
in ``KINDS``.
"""

from testbed.payloads.base import Array, Indices, Packable, Payload, Vector, zeros
from testbed.payloads.entries import Dense, Sparse
from testbed.payloads.factors import Factors
from testbed.payloads.keyed import Keyed
from testbed.payloads.quantized import Quantized
from testbed.payloads.signs import Signs

KINDS: tuple[type[Payload], ...] = (Dense, Sparse, Keyed, Quantized, Signs, Factors)

__all__ = [
    "KINDS",
    "Array",
    "Dense",
    "Factors",
    "Indices",
    "Keyed",
    "Packable",
    "Payload",
    "Quantized",
    "Signs",
    "Sparse",
    "Vector",
    "zeros",
]
