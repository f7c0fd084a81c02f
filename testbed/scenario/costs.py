"""Device profiles in a scenario: their numbers, and the cost of the model on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.errors import InvalidValue
from testbed.scenario.document import Document, Finding, Keys
from testbed.scenario.durations import ModelCost, ProfileTime
from testbed.scenario.profiles import DeviceProfile, is_file, known_device, read_profile
from testbed.scenario.schema import Scenario
from testbed.values.fields import replaced

Locate = Callable[[str], Path]


def check_profiles(document: Document, locate: Locate | None) -> Iterator[Finding]:
    """Check the device profiles that a document names, whatever else is wrong in it."""
    classes = document.at(("workers", "classes"))
    for name in classes if isinstance(classes, dict) else ():
        path: Keys = ("workers", "classes", name, "speed", "profile")
        profile = document.at(path)
        if not isinstance(profile, str) or "\0" in profile:
            continue  # no field accepts it
        try:
            _device(profile, locate)
        except InvalidValue as error:
            yield path, error.found, error.expected
        except OSError as error:
            expected = "a shipped device, or a file that `testbed calibrate` wrote"
            yield path, f"{profile}: {error.strerror}", expected


def with_profiles(scenario: Scenario, locate: Locate | None) -> Scenario:
    """Fill in the numbers of device profiles, which are valid."""
    for path, speed in _profiles(scenario):
        if (found := _device(speed.profile, locate)) is not None:
            numbers = {"gflops": found.gflops, "memory_gb_per_second": found.memory_gb_per_second}
            scenario = replaced(scenario, path, speed.model_copy(update=numbers))
    return scenario


def with_cost(scenario: Scenario, cost: ModelCost | None) -> Scenario:
    """Return the scenario with the cost of its model in all device profiles, or without one."""
    for path, _ in _profiles(scenario):
        scenario = replaced(scenario, (*path, "cost"), cost)
    return scenario


def uses_profiles(scenario: Scenario) -> bool:
    """Whether step times follow from the cost of the model."""
    return any(_profiles(scenario))


def _profiles(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], ProfileTime]]:
    """Yield the speeds by device profiles, each with its path."""
    for name, member in scenario.workers.classes.items():
        if isinstance(member.speed, ProfileTime):
            yield ("workers", "classes", name, "speed"), member.speed


def _device(profile: str, locate: Locate | None) -> DeviceProfile | None:
    """Return a shipped device or that of a file; None for a file without ``locate``."""
    if not is_file(profile):
        return known_device(profile)
    return None if locate is None else read_profile(locate(profile))


def builtin_cost(scenario: Scenario) -> ModelCost | None:
    """Count the cost of a built-in model on a built-in data set; None if files define them.

    Raises:
        ScenarioError: it cannot be counted.
    """
    from testbed.models import CustomModel
    from testbed.models.cost import count_flops

    images = scenario.dataset.images
    if images is None or isinstance(scenario.model, CustomModel):
        return None
    network = scenario.model.build(*images, folder=Path())
    return ModelCost(flops=count_flops(network, *images), parameters=network.layout.size)
