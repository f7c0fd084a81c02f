"""A node freezes, and no other node is notified."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, FaultOfAnyNode


class Freeze(FaultOfAnyNode):
    """A node's processes are frozen; afterwards they continue where they were."""

    name: Literal["freeze"]

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Freeze a node."""
        actuator.freeze(worker, for_good=self.duration is None)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Thaw a node."""
        actuator.thaw(worker)
