"""The runtimes: what turns a plan into containers. The closed list of them is ``Runtime``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from testbed.family import Named


class Native(BaseModel):
    """Containers made of the kernel's namespaces and cgroups directly, without an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["native"]


# With a second member this becomes Annotated[Native | ..., Field(discriminator="name"), Named()].
Runtime = Annotated[Native, Named()]

__all__ = ["Native", "Runtime"]
