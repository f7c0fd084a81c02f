"""Payloads of updates and replies, and their compression.

Here: what a message carries of a flat float32 vector, one file per kind, and pure functions that
select or quantize its values (``topk``, ``qsgd``, ``core_explorer``). Not here: the algorithm that
decides to compress (``algorithms``), bytes on the wire (``rpc``). A new kind is a file and an entry
in ``KINDS``.
"""

from testbed.payloads.base import VALUE_BYTES as VALUE_BYTES
from testbed.payloads.base import Array as Array
from testbed.payloads.base import Indices as Indices
from testbed.payloads.base import Packable as Packable
from testbed.payloads.base import Payload as Payload
from testbed.payloads.base import Vector as Vector
from testbed.payloads.base import zeros as zeros
from testbed.payloads.entries import Dense as Dense
from testbed.payloads.entries import Sparse as Sparse
from testbed.payloads.factors import Factors as Factors
from testbed.payloads.keyed import Keyed as Keyed
from testbed.payloads.quantized import Quantized as Quantized
from testbed.payloads.signs import Signs as Signs

KINDS: tuple[type[Payload], ...] = (Dense, Sparse, Keyed, Quantized, Signs, Factors)
