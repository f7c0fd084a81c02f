"""A worker ends in order: it announces that it no longer participates."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, TimedFault


class Leave(TimedFault):
    """A worker leaves the training."""

    name: Literal["leave"]

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Ask a worker to leave."""
        actuator.leave(worker)
