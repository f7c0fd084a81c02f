"""A flat vector on its compute device: in its own memory, or as a copy on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.payloads import Vector


@dataclass(frozen=True)
class Placed:
    """A flat NumPy vector, and the tensor for computations.

    Attributes:
        here: the vector's own memory.
        there: the tensor on the device; ``here`` itself without a device.
    """

    here: Tensor
    there: Tensor

    @classmethod
    def of(cls, vector: Vector, device: str | None) -> Placed:
        """Place the vector on a torch device, such as ``cuda``; in place without a device."""
        here = torch.from_numpy(vector)
        return cls(here, here if device is None else here.to(device, copy=True))

    def send(self) -> None:
        """Copy the vector's values to the device."""
        if self.there is not self.here:
            self.there.copy_(self.here)

    def fetch(self) -> None:
        """Copy the device's values to the vector."""
        if self.there is not self.here:
            self.here.copy_(self.there)
