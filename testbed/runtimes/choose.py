"""Which driver a runtime has: of a scenario, of a run that goes on, and of whatever is there.

The drivers are imported when they are asked for: a native run needs no engine's client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml
from pydantic import TypeAdapter, ValidationError

from testbed.errors import HostError
from testbed.runtimes import Auto, Docker, Native, Runtime, Simulated
from testbed.runtimes.base import RuntimeDriver
from testbed.runtimes.users import Users, find_users
from testbed.telemetry.folder import RunFolder

Real = Native | Docker
"""The runtimes that have a driver."""

RUNTIME: TypeAdapter[Native | Docker | Auto | Simulated] = TypeAdapter(Runtime)


@dataclass(frozen=True)
class Choice:
    """What ``auto`` came to.

    Attributes:
        runtime: the one to take.
        why: what decided it, in words.
    """

    runtime: Real
    why: str

    def __str__(self) -> str:
        return f"runtime {self.runtime.name}: {self.why}"


def choose(*, gpu: bool) -> Choice:
    """Docker if its engine answers, can be used and has this package's image; else native.

    Args:
        gpu: whether nodes are to use GPUs.
    """
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.image import check_image

    try:
        with connect() as engine:
            image = check_image(engine, gpu=gpu)
    except HostError as error:
        return Choice(Native(name="native"), str(error))
    return Choice(Docker(name="docker"), f"its engine answers and has the image {image}")


def driver_of(runtime: Real) -> RuntimeDriver:
    """The driver of a runtime."""
    if isinstance(runtime, Docker):
        from testbed.runtimes.docker.driver import DockerDriver

        return DockerDriver(image=runtime.image)
    from testbed.runtimes.native import NativeDriver

    return NativeDriver()


def drivers() -> Mapping[str, RuntimeDriver]:
    """All of them, by name; each can end and find what is there of its kind."""
    every: tuple[Real, ...] = (Native(name="native"), Docker(name="docker"))
    return {runtime.name: driver_of(runtime) for runtime in every}


def runtime_of(folder: RunFolder) -> Real:
    """What made the containers of a run; native for a folder that does not say."""
    native = Native(name="native")
    try:
        data = yaml.safe_load(folder.scenario.read_text(encoding="utf-8"))
        found = RUNTIME.validate_python(data["runtime"])
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValidationError):
        return native
    return found if isinstance(found, Docker) else native


def users_of(runtime: Real) -> Users:
    """Where the uids of the nodes come from: the engine is root, whoever asks it.

    Raises:
        HostError: this user can have no nodes.
    """
    return Users("root") if isinstance(runtime, Docker) else find_users()
