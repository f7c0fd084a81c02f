"""A node can reach no other for a time, and neither side is notified."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.errors import InvalidValue
from testbed.faults.base import Actuator, FaultOfAnyNode


class NetworkPartition(FaultOfAnyNode):
    """A node's link transfers nothing in either direction; data in transit continues afterwards."""

    name: Literal["partition"]

    @model_validator(mode="after")
    def _ends(self) -> NetworkPartition:
        if self.duration is None:
            raise InvalidValue("no `for`", "a duration, like `for: 5s`, which connections survive")
        return self

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Block the traffic of a node."""
        actuator.partition(worker)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Unblock the traffic of a node."""
        actuator.heal(worker)
