"""The runtimes: what turns a plan into containers. The closed list of them is ``Runtime``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.family import Named


class Native(BaseModel):
    """Containers made of the kernel's namespaces and cgroups directly, without an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["native"]


class Simulated(BaseModel):
    """One process on a virtual clock: real gradients, modelled seconds, the same records.

    It makes no containers and has no driver here; the command line sends it to the simulation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["simulated"]


Runtime = Annotated[Annotated[Native | Simulated, Field(discriminator="name")], Named()]

__all__ = ["Native", "Runtime", "Simulated"]
