"""Determines the runtime of a scenario that leaves it to the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from testbed.errors import HostError
from testbed.host.users import Users, find_users
from testbed.runtimes import Auto, Docker, Native, Real
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload

Kind = TypeVar("Kind", Scenario, Workload)


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


def users_of(runtime: Real) -> Users:
    """Return where the nodes' uids come from: an engine is root for every user."""
    return Users("root") if runtime.capabilities.engine else find_users()


@dataclass(frozen=True)
class Settled(Generic[Kind]):
    """A scenario whose runtime is determined, and how that was; None if the scenario named it."""

    scenario: Kind
    runtime: Real
    choice: Choice | None = None


def settle(scenario: Kind, *, choose: Callable[..., Choice] = choose) -> Settled[Kind]:
    """Determine the runtime of a scenario that creates containers; ``auto`` has it chosen."""
    runtime = scenario.runtime
    if isinstance(runtime, Real):
        return Settled(scenario, runtime)
    assert isinstance(runtime, Auto), f"{runtime.name} creates no containers"
    choice = choose(gpu=_wants_gpu(scenario))
    settled = scenario.model_copy(update={"runtime": choice.runtime})
    return Settled(settled, choice.runtime, choice)


def _wants_gpu(scenario: Scenario | Workload) -> bool:
    if isinstance(scenario, Workload):
        return False
    return any([scenario.evaluate.gpus, *(one.gpus for one in scenario.workers.classes.values())])
