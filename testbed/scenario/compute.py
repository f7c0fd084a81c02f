"""The field ``compute`` of a scenario: which processes compute the gradients of the workers."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field

from testbed.values.family import Named
from testbed.values.fields import Count, StrictModel

MOST_SAMPLES = 16_384
"""Maximum number of samples that a request for a gradient names."""


class Own(StrictModel):
    """Every worker computes its own gradients, in its own node."""

    name: Literal["own"]


class Shared(StrictModel):
    """One node computes the gradients of all workers.

    Attributes:
        processes: number of its processes; by default one per CPU of the host.
    """

    name: Literal["shared"]
    processes: Count | None = None

    @property
    def process_count(self) -> int:
        """The number of processes on this host."""
        return self.processes or len(os.sched_getaffinity(0))


ComputeSettings = Annotated[Annotated[Own | Shared, Field(discriminator="name")], Named()]
