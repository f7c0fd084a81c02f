"""Chooses the runtime where the scenario leaves it to the host, and lists all runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, get_args

from pydantic import Field, TypeAdapter

from testbed.errors import HostError
from testbed.host.users import Users, find_users
from testbed.runtimes import Auto, Docker, Native, Real, Runtime, Simulated
from testbed.runtimes.base import RuntimeDriver

RUNTIME: TypeAdapter[Native | Docker | Auto | Simulated] = TypeAdapter(Runtime)
REAL: TypeAdapter[Native | Docker] = TypeAdapter(Annotated[Real, Field(discriminator="name")])


@dataclass(frozen=True)
class Choice:
    """The result of ``auto``, and the reason for it as text."""

    runtime: Real
    why: str

    def __str__(self) -> str:
        return f"runtime {self.runtime.name}: {self.why}"


def choose(*, gpu: bool) -> Choice:
    """Choose Docker if its engine answers, is usable and has this package's image; else native.

    ``gpu`` requires the image whose torch can use a GPU.
    """
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.image import check_image

    try:
        with connect() as engine:
            image = check_image(engine, gpu=gpu)
    except HostError as error:
        return Choice(Native(name="native"), str(error))
    return Choice(Docker(name="docker"), f"its engine answers and has the image {image}")


def drivers() -> Mapping[str, RuntimeDriver]:
    """Return all drivers by name; each can end and find the existing runs of its runtime."""
    names = (get_args(kind.model_fields["name"].annotation)[0] for kind in get_args(Real))
    return {name: REAL.validate_python({"name": name}).driver() for name in names}


def users_of(runtime: Real) -> Users:
    """Return where the nodes' uids come from: an engine is root for every user."""
    return Users("root") if runtime.capabilities.engine else find_users()
