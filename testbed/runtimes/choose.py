"""Which runtime is taken where the scenario leaves it to the host, and all that there are."""

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
    """What ``auto`` came to, and what decided it, in words."""

    runtime: Real
    why: str

    def __str__(self) -> str:
        return f"runtime {self.runtime.name}: {self.why}"


def choose(*, gpu: bool) -> Choice:
    """Docker if its engine answers, can be used and has this package's image; else native.

    ``gpu`` asks for the image whose torch can use one.
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
    """All of them, by name; each can end and find what is there of its kind."""
    names = (get_args(kind.model_fields["name"].annotation)[0] for kind in get_args(Real))
    return {name: REAL.validate_python({"name": name}).driver() for name in names}


def users_of(runtime: Real) -> Users:
    """Where the uids of the nodes come from: an engine is root, whoever asks it."""
    return Users("root") if runtime.capabilities.engine else find_users()
