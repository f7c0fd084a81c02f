"""A worker joins during training: a new one, or one that had left."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, TimedFault


class Join(TimedFault):
    """A worker joins; if this is its first fault of join, leave and kill, it is absent at first."""

    name: Literal["join"]

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Start it."""
        actuator.join(worker)
