"""Determines the runtime of a scenario that leaves it to the host, and of an existing run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from pydantic import Field, TypeAdapter

from testbed.errors import HostError, Problem, ScenarioError
from testbed.host.users import Users, find_users
from testbed.plan.written import read_plan
from testbed.runtimes import RUNTIME, Auto, Docker, Native, Real, Simulated, names
from testbed.runtimes.base import RuntimeDriver
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Plan

Kind = TypeVar("Kind", Scenario, Workload)

REAL: TypeAdapter[Real] = TypeAdapter(Annotated[Real, Field(discriminator="name")])


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
    return {name: REAL.validate_python({"name": name}).driver() for name in names()}


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


def runtime_of(folder: RunFolder) -> Real:
    """Return the runtime that created a run's containers; native if the folder does not say.

    Raises:
        TestbedError: its plan cannot be read.
    """
    found = _planned_runtime(folder)
    return found if isinstance(found, Real) else Native(name="native")


def is_simulated(folder: RunFolder) -> bool:
    """Return whether a run has no containers anywhere, as far as its folder says."""
    return isinstance(_planned_runtime(folder), Simulated)


def _planned_runtime(folder: RunFolder) -> Real | Auto | Simulated | None:
    try:
        return RUNTIME.validate_python(dict(read_plan(folder).runtime))
    except ScenarioError:  # neither a plan nor a scenario is left
        return None


def driver_for(folder: RunFolder, plan: Plan) -> RuntimeDriver:
    """Return the driver of a run, for access to a node or a link.

    Raises:
        ScenarioError: the run is simulated, whether it is running or not.
    """
    runtime = RUNTIME.validate_python(dict(plan.runtime))
    if isinstance(runtime, Real):
        return runtime.driver()
    expected = f"a run with containers and links: {' or '.join(names())}"
    hint = "A simulated run has no nodes; use `testbed logs` and `testbed report`."
    raise ScenarioError([Problem(str(folder.plan), 0, "runtime", runtime.name, expected, hint)])
