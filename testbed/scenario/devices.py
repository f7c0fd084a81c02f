"""The devices of a scenario one by one: what a class says, or what was drawn for each of them.

Every draw has its own stream of random numbers, named after the device and the value, so that a
scenario without such values has the same draws as before.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import StringIO
from pathlib import PurePath
from typing import Any

from numpy.random import Generator

from testbed.scenario.direction import TRACED, Link, TracedDirection
from testbed.scenario.durations import (
    PER_DEVICE,
    DeviceDuration,
    ProfileTime,
    StepPace,
    TableDuration,
    class_pace,
)
from testbed.scenario.per_device import DrawnDelay, DrawnRate, Table, quantities
from testbed.scenario.schema import DeviceClass, Scenario
from testbed.values.seeds import stream
from testbed.values.units import Duration, Quantity, Rate

LEAST_RATE = Rate(10e3)
"""A frame takes 1.2 s at this rate; lower drawn or recorded rates are raised to it."""

SHORTEST_STEP = 1e-6
KINDS: Mapping[str, type[Quantity]] = {"rate": Rate, "delay": Duration}


@dataclass(frozen=True)
class Device:
    """One worker's device; emulated times and rates."""

    worker: int
    device_class: str
    pace: StepPace | None  # None: as fast as the host
    link: Link


def devices(scenario: Scenario) -> tuple[Device, ...]:
    """Return the device of every worker, by index."""
    found: list[Device] = []
    for name, count in scenario.workers.class_counts().items():
        member = scenario.workers.classes[name]
        first = len(found)
        if not differs(member):
            pace = class_pace(member.speed)
            found += [Device(first + at, name, pace, member.link) for at in range(count)]
            continue
        for place in range(count):
            draws = _Draws(scenario.seed, f"w{first + place}", place, name)
            pace, link = draws.pace(member.speed), draws.link(member.link)
            found.append(Device(first + place, name, pace, link))
    return tuple(found)


def drawn_link(link: Link, *, node: str, seed: int, place: int, owner: str) -> Link:
    """Return the link of a node of a workload, with its own draws and rows of tables.

    Args:
        link: of its class or program.
        node: its name.
        seed: of the scenario.
        place: the node's place among those with this link.
        owner: name of the class or program.
    """
    return _Draws(seed, node, place, owner).link(link)


def differs(member: DeviceClass) -> bool:
    """Whether the devices of a class have different speeds or links."""
    return (
        isinstance(member.speed, PER_DEVICE) or member.link.up.differs or member.link.down.differs
    )


def any_differs(scenario: Scenario) -> bool:
    """Whether a class has values that differ from device to device."""
    return any(map(differs, scenario.workers.classes.values()))


@lru_cache(maxsize=64)
def _order(seed: int, owner: str, file: str, count: int) -> tuple[int, ...]:
    """Return the rows of a table in the order in which a class's devices get them."""
    draws = stream(seed, "table", file, owner)
    return tuple(map(int, draws.permutation(count)))


@dataclass(frozen=True)
class _Draws:
    """What is drawn for one device."""

    seed: int
    node: str
    place: int  # its place in its class
    owner: str  # the class

    def pace(self, speed: object) -> StepPace | None:
        """Return the device's pace."""
        whole = class_pace(speed)
        if isinstance(speed, DeviceDuration):
            return device_pace(speed, draws=stream(self.seed, self.node, "device", "speed"))
        if isinstance(speed, ProfileTime) and speed.each is not None:
            return speed.pace(speed.each.draw(stream(self.seed, self.node, "device", "speed")))
        if isinstance(speed, TableDuration) and whole is not None:
            return replace(whole, base_seconds=self._from(speed.table, Duration))
        return whole

    def link(self, link: Link) -> Link:
        """Return the device's own link."""
        up, down = (self.direction(getattr(link, way), way) for way in ("up", "down"))
        return link.model_copy(update={"up": up, "down": down})

    def direction(self, shape: TracedDirection, way: str) -> TracedDirection:
        """Return the device's own values for one direction of its link."""
        own: dict[str, Quantity] = {}
        for name in TRACED:
            kind = KINDS[name]
            drawn: DrawnRate | DrawnDelay | None = getattr(shape, f"{name}_each")
            table: Table | None = getattr(shape, f"{name}_table")
            if drawn is not None:
                draws = stream(self.seed, self.node, "device", f"{way}.{name}")
                own[name] = kind(drawn.each.draw(draws) * drawn.mean)
            elif table is not None:
                own[name] = kind(self._from(table, kind))
        if "rate" in own:
            own["rate"] = max(LEAST_RATE, own["rate"])
        return shape.model_copy(update=own) if own else shape

    def _from(self, table: Table, kind: type[Quantity]) -> float:
        """Return the device's value in a table: its row is its place, or drawn."""
        row, values = self.place, quantities(kind, table.values)
        if table.rows == "drawn":
            file = PurePath(table.file).name  # a run has a copy in another folder
            row = _order(self.seed, self.owner, file, len(values))[row]
        return values[row]


def device_pace(given: Any, *, draws: Generator) -> StepPace:
    """Return the pace of one device for a duration; its mean is drawn if it is a law per device."""
    pace = class_pace(given)
    assert pace is not None, "a duration has a mean"
    if not isinstance(given, DeviceDuration):
        return pace
    drawn = given.each.draw(draws) * pace.base_seconds
    return replace(pace, base_seconds=max(SHORTEST_STEP, drawn))


COLUMNS = (
    "worker",
    "class",
    "step_seconds",
    "step_seconds_per_sample",
    "up_bits_per_second",
    "up_delay_seconds",
    "down_bits_per_second",
    "down_delay_seconds",
)


def rows(found: Sequence[Device]) -> Iterator[dict[str, object]]:
    """Yield a row of ``devices.csv`` for each device; None for a value that is not set."""
    for one in found:
        pace, up, down = one.pace, one.link.up, one.link.down
        values = (
            one.worker,
            one.device_class,
            None if pace is None else pace.base_seconds,
            None if pace is None else pace.sample_seconds,
            *(None if value is None else float(value) for value in (up.rate, up.delay)),
            *(None if value is None else float(value) for value in (down.rate, down.delay)),
        )
        yield dict(zip(COLUMNS, values, strict=True))


def devices_text(scenario: Scenario) -> str:
    """Return the content of ``devices.csv``: the values of every device, emulated."""
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(devices(scenario)))
    return text.getvalue()
