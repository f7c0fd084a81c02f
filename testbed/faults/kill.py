"""A node's process ends without notice, which is detected like any end of a process."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.errors import Unfit
from testbed.faults.base import Actuator, FaultOfAnyNode


class Kill(FaultOfAnyNode):
    """A node's process is killed; of a worker's the parameter server is told that it is gone.

    What feeds streams is started again after `for`; without it, at once or never, as the transport
    of the streams has it.
    """

    name: Literal["kill"]

    @model_validator(mode="after")
    def _workers_join(self) -> Kill:
        if self.strikes_workers and self.duration is not None:
            raise Unfit("`for` with workers", "none: a `join` brings a worker back")
        return self

    def strike(self, actuator: Actuator, worker: int) -> None:
        """Kill it."""
        actuator.kill(worker, for_good=self.duration is None)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Start it again."""
        actuator.join(worker)
