"""A worker joins during training: a new one, or one that had left."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, TimedFault


class Join(TimedFault):
    """A worker joins the training. One for which this comes first is not there at the beginning."""

    name: Literal["join"]

    def strike(self, actuator: Actuator, worker: int) -> None:
        """Start it."""
        actuator.join(worker)
