"""A node's link gets another rate or delay: a train in a tunnel, a neighbour's video call."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.errors import InvalidValue
from testbed.faults.base import Actuator, FaultOfAnyNode, LinkChange


class ChangedLink(FaultOfAnyNode):
    """A node's link changes, also for data in transit.

    Attributes:
        up: the direction from the node to the switch.
        down: the direction from the switch to the node.
    """

    name: Literal["link"]
    up: LinkChange = LinkChange()
    down: LinkChange = LinkChange()

    @model_validator(mode="after")
    def _something(self) -> ChangedLink:
        if self.up == self.down == LinkChange():
            raise InvalidValue(
                "no change", "a rate or a delay of `up` or `down`, like {rate: 1mbit}"
            )
        return self

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Change the link."""
        actuator.change_link(worker, self.up, self.down)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Restore the scenario's link."""
        actuator.reset_link(worker)
