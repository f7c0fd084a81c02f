"""The interface of a record transport, for its two ends: a producer process, and a device.

A record belongs to one device's stream, and a transport keeps the order of each stream. It may
deliver a record twice, but never loses a record that it accepted:

    producer                                  device
      send(device, record)     ──────>          poll(least, seconds) -> records
      acknowledged(device)     <──────          commit(), once they are in its buffer
      flush()

Records that the device has not committed are delivered again after its process restarts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Sender(ABC):
    """The producer's end. It never blocks for long: one process feeds many devices."""

    @abstractmethod
    def send(self, device: int, record: bytes) -> bool:
        """Accept the next record of a device's stream; return False if there is no space for it.

        The caller must retry a refused record later, before any other record of that device.
        """

    @abstractmethod
    def acknowledged(self, device: int) -> int:
        """Return how many of the device's records can no longer be lost with this process.

        Direct: those that the device has committed. With a broker: those that it has written.
        """

    @abstractmethod
    def available(self, device: int) -> int:
        """Return how many of the device's records it could have fetched by now.

        Direct: the accepted records. With a broker: those that it has written.
        """

    @abstractmethod
    async def flush(self) -> None:
        """Send the accepted records, as far as the other end accepts them."""


class Receiver(ABC):
    """The device's end; called from a single thread.

    Attributes:
        begins_after: number of records that earlier processes of the device have committed; known
            after the first ``poll``.
    """

    begins_after: int

    @abstractmethod
    def poll(self, least: int, seconds: float) -> Sequence[bytes]:
        """Return the next records, in order; empty if none has arrived.

        Args:
            least: number of records to wait for.
            seconds: maximum wait, in real seconds.

        Raises:
            RejectedError: the other end refuses this device.
            NodeError: the other end is not reachable; a later call may succeed.
        """

    @abstractmethod
    def commit(self) -> None:
        """Confirm that the device's buffer has all records that ``poll`` returned."""

    @abstractmethod
    def close(self) -> None:
        """Release the receiver's resources. Idempotent."""
