"""The runtime that created the containers of an existing run, and its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, TypeAdapter

from testbed.errors import Problem, ScenarioError
from testbed.plan.written import read_plan
from testbed.runtimes import RUNTIME, Auto, Native, Real, Simulated, names
from testbed.runtimes.base import RuntimeDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Plan

REAL: TypeAdapter[Real] = TypeAdapter(Annotated[Real, Field(discriminator="name")])


def drivers() -> Mapping[str, RuntimeDriver]:
    """Return all drivers by name; each can end and find the existing runs of its runtime."""
    return {name: REAL.validate_python({"name": name}).driver() for name in names()}


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
