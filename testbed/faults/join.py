"""A worker comes during the training: one that was not there before, or one that was gone."""

from __future__ import annotations

from typing import Literal

from testbed.faults.base import Actuator, TimedFault


class Join(TimedFault):
    """A worker joins the training. One for which this comes first is not there at the beginning."""

    name: Literal["join"]

    def strike(self, actuator: Actuator, worker: int) -> None:
        """Bring it up."""
        actuator.join(worker)
