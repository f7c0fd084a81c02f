"""Samples that workers share with each other: their pixels are sent with their indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply, Samples
from testbed.rpc._pb import ps_pb2
from testbed.rpc.wire import MalformedError

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class SharedSamples:
    """n samples.

    Attributes:
        samples: their indices, shape (n,).
        labels: float64, shape (n,).
        pixels: the bytes of their pixels, shape (n, bytes of a sample).
    """

    samples: Samples
    labels: NDArray[np.float64]
    pixels: Pixels

    @property
    def payload_bytes(self) -> int:
        """Size of their pixels."""
        return int(self.pixels.nbytes)

    def message(self) -> ps_pb2.Shared:
        """Convert to a message."""
        return ps_pb2.Shared(
            samples=self.samples.astype("<i8").tobytes(),
            labels=self.labels.astype("<f8").tobytes(),
            pixels=self.pixels.tobytes(),
        )

    @classmethod
    def of(cls, message: ps_pb2.Shared) -> SharedSamples:
        """Convert from a message.

        Raises:
            MalformedError: the numbers of indices, labels and pixels differ.
        """
        count, rest = divmod(len(message.samples), 8)
        if rest or len(message.labels) != 8 * count or not count or len(message.pixels) % count:
            sizes = [len(part) for part in (message.samples, message.labels, message.pixels)]
            raise MalformedError(
                f"{sizes} bytes of numbers, labels and pixels: their sample counts differ"
            )
        samples = np.frombuffer(message.samples, "<i8")
        labels = np.frombuffer(message.labels, "<f8")
        if samples.min() < 0 or not np.isfinite(labels).all():
            raise MalformedError("a shared sample has a negative number or a non-finite label")
        pixels = np.frombuffer(message.pixels, np.uint8).reshape(count, -1)
        return cls(samples, labels, pixels)


@dataclass
class Exchanged:
    """The parameter server's copy of shared samples: the latest of each worker.

    Attributes:
        sample_bytes: size of a sample's pixels.
    """

    STATE: ClassVar = ("_latest",)
    sample_bytes: int
    _latest: dict[int, SharedSamples] = field(default_factory=dict)

    def check(self, shared: SharedSamples | None) -> None:
        """Refuse pixels of another size.

        Raises:
            MalformedError: the size differs.
        """
        width = self.sample_bytes if shared is None else shared.pixels.shape[1]
        if width != self.sample_bytes:
            raise MalformedError(f"shared samples of {width} bytes, expected {self.sample_bytes}")

    def keep(self, worker: int, shared: SharedSamples | None) -> None:
        """Keep a worker's shared samples in place of its earlier ones."""
        if shared is not None:
            self._latest[worker] = shared

    def of(self, reply: Reply | None) -> SharedSamples | None:
        """Return the shared samples to send with a reply; None if there are none."""
        if reply is None or reply.shared is None or not len(reply.shared):
            return None
        known: dict[int, tuple[Any, Any]] = {}
        for one in self._latest.values():
            parts = zip(one.labels, one.pixels, strict=True)
            known |= zip(one.samples.tolist(), parts, strict=True)
        return assembled(reply.shared, (known[sample] for sample in reply.shared.tolist()))


def assembled(samples: Samples, parts: Iterable[tuple[Any, Any]]) -> SharedSamples:
    """Combine samples with their labels and pixels, in the same order."""
    labels, pixels = zip(*parts, strict=True)
    rows = [np.frombuffer(np.ascontiguousarray(one).tobytes(), np.uint8) for one in pixels]
    return SharedSamples(samples, np.array(labels, np.float64), np.stack(rows))
