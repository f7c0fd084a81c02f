"""The runtimes: what turns a plan into containers. The closed list of them is ``Runtime``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from testbed.errors import Unfit
from testbed.family import Named

_IMAGE = r"[a-z0-9][A-Za-z0-9._:/@-]{0,254}"


def _image(text: str) -> str:
    if not re.fullmatch(_IMAGE, text):
        raise Unfit("", "the name of an image, like edge-testbed:mine")
    return text


Image = Annotated[
    str, AfterValidator(_image), WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE}$"})
]


class Native(BaseModel):
    """Containers made of the kernel's namespaces and cgroups directly, without an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["native"]


class Docker(BaseModel):
    """Containers of the Docker engine of this machine.

    Attributes:
        image: what they are made from; by default the image of this very package, which
            `testbed image build` makes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["docker"]
    image: Image | None = None


class Auto(BaseModel):
    """Docker if its engine answers, can be used and has the image of this package; else native."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["auto"]


class Simulated(BaseModel):
    """One process on a virtual clock: real gradients, modelled seconds, the same records.

    It makes no containers and has no driver here; the command line sends it to the simulation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["simulated"]


Runtime = Annotated[
    Annotated[Native | Docker | Auto | Simulated, Field(discriminator="name")], Named()
]

__all__ = ["Auto", "Docker", "Native", "Runtime", "Simulated"]
