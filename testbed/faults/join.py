"""A worker joins during training: a new one, or one that had left."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, TimedFault


class Join(TimedFault):
    """A worker joins. If its first join, leave or kill is a join, it is absent at the start."""

    name: Literal["join"]

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Start a worker."""
        actuator.join(worker)
