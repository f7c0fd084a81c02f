"""Settles which runtime a run takes, where its scenario leaves that to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from testbed.errors import HostError
from testbed.runtimes import Auto, Docker, Native
from testbed.runtimes.base import RuntimeDriver
from testbed.runtimes.choose import Choice, Real, choose, driver_of
from testbed.scenario.schema import Scenario


class Choose(Protocol):
    """What ``auto`` asks: see testbed.runtimes.choose.choose."""

    def __call__(self, *, gpu: bool) -> Choice: ...


@dataclass(frozen=True)
class Settled:
    """A scenario whose runtime is settled.

    Attributes:
        scenario: with ``native`` or ``docker`` as its runtime.
        runtime: that one.
        choice: how it was found; None where the scenario named it.
    """

    scenario: Scenario
    runtime: Real
    choice: Choice | None

    @property
    def driver(self) -> RuntimeDriver:
        """Of the runtime."""
        return driver_of(self.runtime)


def settle(scenario: Scenario, *, choose: Choose = choose) -> Settled:
    """Settle the runtime of a scenario that makes containers.

    Args:
        scenario: one that is not simulated.
        choose: what ``auto`` asks.

    Raises:
        HostError: ``auto`` came to native, which cannot give what the scenario asks for.
    """
    runtime = scenario.runtime
    if isinstance(runtime, Native | Docker):
        return Settled(scenario, runtime, None)
    assert isinstance(runtime, Auto), f"{runtime.name} makes no containers"
    gpus = next((name for name, one in scenario.workers.classes.items() if one.gpus), None)
    choice = choose(gpu=gpus is not None)
    if gpus is not None and isinstance(choice.runtime, Native):
        raise HostError(
            f"class {gpus} has GPUs, which runtime docker gives and native does not. "
            f"`runtime: auto` takes native here: {choice.why}",
            hint="Mend that and set `runtime: docker`, or set gpus to 0.",
        )
    settled = scenario.model_copy(update={"runtime": choice.runtime})
    return Settled(settled, choice.runtime, choice)
