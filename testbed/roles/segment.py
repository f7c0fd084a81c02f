"""What a worker and the processes that compute its gradients share: memory, and messages.

The memory holds the worker's parameters and the last gradient. Its size is sealed, so that neither
end can make the other's access fail. Messages travel through a unix socket that keeps them whole:

    hello     a token, with the descriptor of the memory; answered if it is a worker's
    request   a step's draw and its samples
    answer    loss and duration, once the gradient is in the memory; or an error of the user's code
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from testbed.algorithms.base import Samples
from testbed.algorithms.frame.actions import Step
from testbed.errors import NodeError, UserCodeError
from testbed.payloads import VALUE_BYTES, Vector
from testbed.payloads.base import CACHE_LINE_BYTES
from testbed.scenario.settings import MOST_SAMPLES

MESSAGE_BYTES = 8 * (MOST_SAMPLES + 1)
"""Maximum size of a message; the default buffer of a socket holds it."""

SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

WELCOME = b"+"

_WORKER, _DRAW, _COMPUTED = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<dd")
_SUCCESS, _FAILURE = b"+", b"-"
_QUOTED = 16_000  # characters of a traceback


@dataclass(frozen=True, eq=False)
class Segment:
    """Memory with a worker's parameters and its last gradient, each float32 (N,)."""

    parameters: Vector
    gradient: Vector

    @classmethod
    def create(cls, size: int) -> tuple[Segment, int]:
        """Create one for ``size`` parameters; return the descriptor of its memory too."""
        descriptor = os.memfd_create("gradient", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, 2 * _row_bytes(size))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        return cls.of(descriptor, size), descriptor

    @classmethod
    def of(cls, descriptor: int, size: int) -> Segment:
        """Return the segment in this memory.

        Raises:
            NodeError: it has another size, or one that could change.
            OSError: it cannot be mapped.
        """
        expected, found = 2 * _row_bytes(size), os.fstat(descriptor).st_size
        if found != expected or fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) != SEALS:
            raise NodeError(f"found memory of {found:,} bytes, expected {expected:,}, and sealed.")
        rows = np.frombuffer(mmap.mmap(descriptor, expected), np.float32).reshape(2, -1)
        return cls(rows[0, :size], rows[1, :size])


def _row_bytes(size: int) -> int:
    """Return the bytes of a vector, rounded up to whole cache lines."""
    return -(-VALUE_BYTES * size // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def worker_bytes(index: int) -> bytes:
    """Return a worker's number as a message."""
    return _WORKER.pack(index)


def worker_in(message: bytes) -> int:
    """Return the worker's number of a message."""
    (index,) = _WORKER.unpack(message)
    return int(index)


def request_of(step: Step) -> bytes:
    """Return the request for a step.

    Raises:
        NodeError: it has too many samples for a message.
    """
    if len(step.samples) > MOST_SAMPLES:
        raise NodeError(
            f"a step of {len(step.samples):,} samples, with `compute: shared` expected at most "
            f"{MOST_SAMPLES:,}.",
            hint="Use smaller batches, or `compute: own`.",
        )
    return _DRAW.pack(step.draw) + step.samples.astype("<i8").tobytes()


def step_in(request: bytes, samples: int) -> Step:
    """Return the step of a request; the data set has this many ``samples``.

    Raises:
        NodeError: the request is malformed.
    """
    if len(request) % 8 or len(request) < 16:
        raise NodeError(f"found a request of {len(request)} bytes, expected a draw and samples.")
    (draw,) = _DRAW.unpack_from(request)
    chosen: Samples = np.frombuffer(request, "<i8", offset=_DRAW.size)
    if not 0 <= chosen.min() <= chosen.max() < samples:
        found = f"samples {chosen.min():,} to {chosen.max():,}"
        raise NodeError(f"found {found}, expected indices below {samples:,}.")
    return Step(chosen, draw)


def success(loss: float, computed_seconds: float) -> bytes:
    """Return the answer to a request whose gradient is in the memory, and took this long."""
    return _SUCCESS + _COMPUTED.pack(loss, computed_seconds)


def failure(error: UserCodeError) -> bytes:
    """Return the answer to a request in which the user's code failed."""
    parts = [error.message, error.hint, error.node, error.trace[-_QUOTED:]]
    return _FAILURE + json.dumps(parts).encode()


def result_in(answer: bytes) -> tuple[float, float]:
    """Return loss and duration of an answer.

    Raises:
        UserCodeError: the user's code failed.
    """
    if answer.startswith(_FAILURE):
        message, hint, node, trace = json.loads(answer[1:])
        raise UserCodeError(message, hint=hint, node=node, trace=trace)
    loss, computed_seconds = _COMPUTED.unpack(answer[1:])
    return loss, computed_seconds
