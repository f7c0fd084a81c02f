"""A worker's training steps take longer: its device throttles, or runs other programs too."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from testbed.faults.base import Actuator, PassingFault


class Slow(PassingFault):
    """A worker's steps take longer, from its next step on.

    Attributes:
        factor: factor by which the duration of a step is multiplied.
    """

    name: Literal["slow"]
    factor: Annotated[float, Field(gt=1, le=1e6, strict=True)]

    def apply(self, actuator: Actuator, worker: int) -> None:
        """Slow down a worker."""
        actuator.slow(worker, self.factor)

    def undo(self, actuator: Actuator, worker: int) -> None:
        """Restore the duration of a worker's steps."""
        actuator.slow(worker, 1.0)
