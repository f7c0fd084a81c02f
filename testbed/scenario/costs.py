"""Device profiles in a scenario: their numbers, and the cost of the model on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.errors import InvalidValue, Problem
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.durations import ModelCost, ProfileTime
from testbed.scenario.profiles import is_file, known_device, read_profile
from testbed.scenario.schema import Scenario


def uses_profiles(scenario: Scenario) -> bool:
    """Whether step times follow from the cost of the model."""
    members = scenario.workers.classes.values()
    return any(isinstance(member.speed, ProfileTime) for member in members)


def with_profiles(
    scenario: Scenario, document: Document, locate: Callable[[str], Path] | None
) -> tuple[Scenario, list[Problem]]:
    """Fill in the numbers of device profiles; return the scenario and the problems."""
    problems: list[Problem] = []

    def filled(speed: ProfileTime, name: str) -> ProfileTime:
        path: Keys = ("workers", "classes", name, "speed", "profile")
        try:
            if not is_file(speed.profile):
                found = known_device(speed.profile)
            elif locate is None:
                return speed
            else:
                found = read_profile(locate(speed.profile))
        except InvalidValue as error:
            problems.append(problem_at(document, path, error.found, error.expected))
            return speed
        except OSError as error:
            found_text = f"{speed.profile}: {error.strerror}"
            expected = "a shipped device, or a file that `testbed calibrate` wrote"
            problems.append(problem_at(document, path, found_text, expected))
            return speed
        memory = found.memory_gb_per_second
        return speed.model_copy(update={"gflops": found.gflops, "memory_gb_per_second": memory})

    return _changed(scenario, filled), problems


def with_cost(scenario: Scenario, cost: ModelCost | None) -> Scenario:
    """Return the scenario with the cost of its model in all device profiles, or without one."""
    return _changed(scenario, lambda speed, _: speed.model_copy(update={"cost": cost}))


def _changed(scenario: Scenario, change: Callable[[ProfileTime, str], ProfileTime]) -> Scenario:
    if not uses_profiles(scenario):
        return scenario
    classes = {
        name: member.model_copy(update={"speed": change(member.speed, name)})
        if isinstance(member.speed, ProfileTime)
        else member
        for name, member in scenario.workers.classes.items()
    }
    workers = scenario.workers.model_copy(update={"classes": classes})
    return scenario.model_copy(update={"workers": workers})


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
