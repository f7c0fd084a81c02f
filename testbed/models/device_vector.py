"""A flat vector on its compute device: in its own memory, or as a copy on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.payloads import Vector


@dataclass(frozen=True)
class DeviceVector:
    """A flat NumPy vector, and the tensor for computations.

    Attributes:
        host: the vector's own memory.
        tensor: the tensor on the device; ``host`` itself without a device.
    """

    host: Tensor
    tensor: Tensor

    @classmethod
    def of(cls, vector: Vector, device: str | None) -> DeviceVector:
        """Place the vector on a torch device, such as ``cuda``; in place without a device."""
        host = torch.from_numpy(vector)
        return cls(host, host if device is None else host.to(device, copy=True))

    def send(self) -> None:
        """Copy the vector's values to the device."""
        if self.tensor is not self.host:
            self.tensor.copy_(self.host)

    def fetch(self) -> None:
        """Copy the device's values to the vector."""
        if self.tensor is not self.host:
            self.host.copy_(self.tensor)
