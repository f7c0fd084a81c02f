"""What comes from files about devices: tables with a row for each, and device profiles.

With the cost of the model, a profile gives the time of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from testbed.errors import InvalidValue, Problem
from testbed.scenario.devices import KINDS
from testbed.scenario.direction import TRACED
from testbed.scenario.document import Document, Finding, Keys, problem_at
from testbed.scenario.durations import ModelCost, ProfileTime, TableDuration
from testbed.scenario.per_device import Table, read_column
from testbed.scenario.profiles import DeviceProfile, is_file, known_device, read_profile
from testbed.scenario.schema import Scenario
from testbed.scenario.source import Locate, read_named
from testbed.scenario.traces import AnyScenario, written_links
from testbed.scenario.workload import Workload
from testbed.values.fields import replaced
from testbed.values.traces import InvalidLine
from testbed.values.units import Duration, Quantity


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


@dataclass(frozen=True)
class TableField:
    """A field of a scenario that a table determines.

    Attributes:
        path: its path in the scenario; the table is at its key ``table``, as users write it.
        kind: what the column's values are.
        devices: number of devices that need a row.
    """

    path: tuple[str, ...]
    table: Table
    kind: type[Quantity]
    devices: int


def table_fields(scenario: Scenario | Workload) -> Iterator[TableField]:
    """Yield all fields that tables determine."""
    if isinstance(scenario, Scenario):
        counts = scenario.workers.class_counts()
        for name, member in scenario.workers.classes.items():
            if isinstance(member.speed, TableDuration):
                path = ("workers", "classes", name, "speed")
                yield TableField(path, member.speed.table, Duration, counts[name])
    for one, way, what in product(written_links(scenario), ("up", "down"), TRACED):
        table = getattr(getattr(one.link, way), f"{what}_table")
        if table is not None:
            yield TableField((*one.path, way, what), table, KINDS[what], len(one.nodes))


def with_tables(
    scenario: AnyScenario, document: Document, locate: Locate | None
) -> tuple[AnyScenario, list[Problem]]:
    """Fill in the columns of tables; return the scenario and the problems.

    The columns of a run's own scenario are already filled in, and stay as they are.
    """
    problems = []
    for field in table_fields(scenario):
        if locate is None and field.table.values:
            continue
        found = _read_table(field, locate, document)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            scenario = _filled(scenario, field, found)
    return scenario, problems


def _read_table(
    field: TableField, locate: Locate | None, document: Document
) -> tuple[str, ...] | Problem:
    """Read the column of a table; return its values, or why it cannot be read."""
    table = field.table
    try:
        return read_column(read_named(table.file, locate), table, field.kind, devices=field.devices)
    except InvalidLine as error:
        return Problem(table.file, error.line, "", error.found, error.expected)
    except (OSError, UnicodeDecodeError) as error:
        found = f"{table.file}: {getattr(error, 'strerror', None) or 'not a text file'}"
        expected = "a CSV file, relative to the scenario's folder"
        return problem_at(document, (*field.path, "table", "file"), found, expected)


def _filled(scenario: AnyScenario, field: TableField, values: tuple[str, ...]) -> AnyScenario:
    """Return the scenario with a table's values, and their mean as the value of a link's field."""
    table = field.table.model_copy(update={"values": values})
    *above, name = field.path
    if name == "speed":
        return replaced(scenario, (*field.path, "table"), table)
    mean = field.kind(sum(map(float, map(field.kind.parse, values))) / len(values))
    return replaced(replaced(scenario, field.path, mean), (*above, f"{name}_table"), table)
