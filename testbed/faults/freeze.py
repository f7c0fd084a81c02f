"""A node stands still where it is, and nobody is told."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, FaultOfAnyNode


class Freeze(FaultOfAnyNode):
    """A node's processes stand still; what it was doing goes on afterwards."""

    name: Literal["freeze"]

    def strike(self, actuator: Actuator, worker: int) -> None:
        """Stop it."""
        actuator.freeze(worker, for_good=self.duration is None)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Let it go on."""
        actuator.thaw(worker)
