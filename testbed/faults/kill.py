"""A worker's process ends without a word, which is noticed as any end of a process is."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, TimedFault


class Kill(TimedFault):
    """A worker's process is killed; the parameter server is told that it is gone."""

    name: Literal["kill"]

    def strike(self, actuator: Actuator, worker: int) -> None:
        """Kill it."""
        actuator.kill(worker)
