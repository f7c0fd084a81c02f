"""What comes from files about devices: tables with a row for each, and device profiles.

With the cost of the model, a profile gives the time of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    """A field of a class that a table determines.

    Attributes:
        path: its path in the class.
        kind: what the column's values are.
        devices: number of devices of the class.
    """

    device_class: str
    path: tuple[str, ...]
    table: Table
    kind: type[Quantity]
    devices: int

    @property
    def keys(self) -> Keys:
        """Its path in the scenario, as users write it."""
        return ("workers", "classes", self.device_class, *self.path, "table")


def table_fields(scenario: Scenario) -> Iterator[TableField]:
    """Yield all fields that tables determine."""
    counts = scenario.workers.class_counts()
    for name, member in scenario.workers.classes.items():
        if isinstance(member.speed, TableDuration):
            yield TableField(name, ("speed",), member.speed.table, Duration, counts[name])
        for way in ("up", "down"):
            for what in TRACED:
                table = getattr(getattr(member.link, way), f"{what}_table")
                if table is not None:
                    yield TableField(name, ("link", way, what), table, KINDS[what], counts[name])


def with_tables(
    scenario: Scenario, document: Document, locate: Locate | None
) -> tuple[Scenario, list[Problem]]:
    """Fill in the columns of tables; return the scenario and the problems.

    The columns of a run's own scenario are already filled in, and stay as they are.
    """
    problems = []
    for field in table_fields(scenario):
        if locate is None and field.table.values:
            continue
        found = read_table(
            *(field.table, field.kind, field.devices), locate, document=document, keys=field.keys
        )
        if isinstance(found, Problem):
            problems.append(found)
        else:
            scenario = _filled(scenario, field, found)
    return scenario, problems


def read_table(
    table: Table,
    kind: type[Quantity],
    devices: int,
    locate: Locate | None,
    *,
    document: Document,
    keys: Keys,
) -> tuple[str, ...] | Problem:
    """Read a table's column for some devices; return its values, or why it cannot be read.

    Args:
        table: names the file and the column.
        kind: what its values are.
        devices: number of devices that need a row.
        locate: finds the file; None if there is none.
        document: the scenario.
        keys: the table's path in it.
    """
    try:
        return read_column(read_named(table.file, locate), table, kind, devices=devices)
    except InvalidLine as error:
        return Problem(table.file, error.line, "", error.found, error.expected)
    except (OSError, UnicodeDecodeError) as error:
        found = f"{table.file}: {getattr(error, 'strerror', None) or 'not a text file'}"
        expected = "a CSV file, relative to the scenario's folder"
        return problem_at(document, (*keys, "file"), found, expected)


def mean_of(values: Sequence[str], kind: type[Quantity]) -> Quantity:
    """Return the mean of a table's values."""
    return kind(sum(map(float, map(kind.parse, values))) / len(values))


def _filled(scenario: Scenario, field: TableField, values: tuple[str, ...]) -> Scenario:
    """Return the scenario with a table's values, and their mean as the value of a link's field."""
    table = field.table.model_copy(update={"values": values})
    path = ("workers", "classes", field.device_class, *field.path)
    if field.path == ("speed",):
        return replaced(scenario, (*path, "table"), table)
    scenario = replaced(scenario, path, mean_of(values, field.kind))
    return replaced(scenario, (*path[:-1], f"{path[-1]}_table"), table)
