"""A node can reach no other for a time, and neither side is notified."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.errors import Unfit
from testbed.faults.base import Actuator, FaultOfAnyNode


class Partition(FaultOfAnyNode):
    """A node's link carries nothing either way; what was on its way goes on afterwards."""

    name: Literal["partition"]

    @model_validator(mode="after")
    def _ends(self) -> Partition:
        if self.duration is None:
            raise Unfit("no `for`", "how long it lasts, like `for: 5s`: connections outlive it")
        return self

    def strike(self, actuator: Actuator, worker: int) -> None:
        """Block its traffic."""
        actuator.partition(worker)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Unblock its traffic."""
        actuator.heal(worker)
