"""What a transport of records is to those at its two ends: a producer's process, and a device.

A record is in one device's stream, and a transport keeps the order of each. It may bring a record
twice, never lose one that it has taken over:

    producer                                  device
      send(device, record)     ──────>          poll(least, seconds) -> records
      acknowledged(device)     <──────          commit(), once its buffer has them
      flush()

What no device has committed comes again to one whose process was started anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Sender(ABC):
    """A producer's end. It never blocks for long: one process feeds many devices."""

    @abstractmethod
    def send(self, device: int, record: bytes) -> bool:
        """Take over the next record of a device's stream; False if there is no room for it now.

        What is refused so is to be sent again later, before any other of that device.
        """

    @abstractmethod
    def acknowledged(self, device: int) -> int:
        """How many of the device's records can no more be lost with this process.

        Direct: those that the device has committed. With a broker: those that it has written.
        """

    @abstractmethod
    def available(self, device: int) -> int:
        """How many of the device's records it could have fetched by now.

        Direct: those that were taken over. With a broker: those that it has written.
        """

    @abstractmethod
    async def flush(self) -> None:
        """Hand on what was taken over, as far as the other end takes it."""


class Receiver(ABC):
    """A device's end; one thread calls it."""

    @abstractmethod
    def poll(self, least: int, seconds: float) -> Sequence[bytes]:
        """The records that come next, in their order; none if nothing has come.

        Args:
            least: wait until so many are there,
            seconds: but no longer than that, real.

        Raises:
            RejectedError: the other end does not want this device.
            NodeError: nobody is there; a later call may find somebody.
        """

    @abstractmethod
    def commit(self) -> None:
        """The device's buffer has all that ``poll`` has returned."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the receiver holds; doing it twice is harmless."""
