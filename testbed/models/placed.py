"""A flat vector where it is computed with: in its own memory, or as a copy on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.payloads import Vector


@dataclass(frozen=True)
class Placed:
    """A flat vector of NumPy's, and the tensor that is computed with.

    Attributes:
        here: the vector's own memory.
        there: the tensor on the device; ``here`` itself where there is no other device.
    """

    here: Tensor
    there: Tensor

    @classmethod
    def of(cls, vector: Vector, device: str | None) -> Placed:
        """The vector on a device of torch's, such as ``cuda``; in place without one."""
        here = torch.from_numpy(vector)
        return cls(here, here if device is None else here.to(device, copy=True))

    def send(self) -> None:
        """Bring the vector's values to the device."""
        if self.there is not self.here:
            self.there.copy_(self.here)

    def fetch(self) -> None:
        """Bring the device's values into the vector."""
        if self.there is not self.here:
            self.here.copy_(self.there)
