"""A node's process ends without notice, which is detected like any end of a process."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.errors import InvalidValue
from testbed.faults.base import Actuator, FaultOfAnyNode


class Kill(FaultOfAnyNode):
    """A node's process is killed; the parameter server is notified of the end of a worker.

    Producers and brokers are restarted after `for`; without `for`, at once or never, depending on
    the transport of the streams.
    """

    name: Literal["kill"]

    @model_validator(mode="after")
    def _workers_join(self) -> Kill:
        if self.targets_workers and self.duration is not None:
            raise InvalidValue("`for` with workers", "no `for`: use `join` to bring a worker back")
        return self

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Kill a node's process."""
        actuator.kill(worker, for_good=self.duration is None)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Start a node again."""
        actuator.join(worker)
