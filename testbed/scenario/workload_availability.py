"""When the nodes of a workload are present, by the same recordings and draws as workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from testbed.errors import Problem
from testbed.faults.population import Availability
from testbed.scenario.availability import availabilities_of
from testbed.scenario.direction import Recording
from testbed.scenario.document import Document, Finding, Keys
from testbed.scenario.settings import Attendance
from testbed.scenario.source import Locate
from testbed.scenario.traces import unreadable
from testbed.scenario.workload import Workload
from testbed.scenario.workload_names import placed
from testbed.values.topology import WhenAbsent
from testbed.values.traces import InvalidLine

FIELD = "availability"


def node_availabilities(workload: Workload, locate: Locate) -> list[Availability]:
    """Return the availability of every node that is not always present, by its number.

    Nodes with the same recording of many devices follow those of different devices.

    Raises:
        OSError, InvalidLine, UnicodeDecodeError: a file cannot be read.
    """
    groups: dict[str, tuple[Attendance, dict[int, str]]] = {}
    stay: set[int] = set()
    for number, own in enumerate(placed(workload)):
        program = workload.workload[own.program]
        _, one = program.node_classes(own.program)[own.index]
        attendance = one.availability or program.availability
        if attendance is not None:
            nodes = groups.setdefault(attendance.model_dump_json(), (attendance, {}))[1]
            nodes[number] = own.name
        if program.absence(one) in ("freeze", "partition"):
            stay.add(number)
    found = [
        replace(one, stays=one.worker in stay)
        for attendance, nodes in groups.values()
        for one in availabilities_of(nodes, attendance, seed=workload.seed, locate=locate)
    ]
    return sorted(found, key=lambda one: one.worker)


def attendances(workload: Workload) -> Iterator[tuple[tuple[str, ...], Attendance]]:
    """Yield every availability of programs and classes, with its path."""
    for name, program in workload.workload.items():
        path = ("workload", name)
        if program.availability is not None:
            yield (*path, FIELD), program.availability
        for kind, one in program.classes.items():
            if one.availability is not None:
                yield (*path, "classes", kind, FIELD), one.availability


def check_availabilities(
    workload: Workload, document: Document, locate: Locate
) -> Iterator[Problem]:
    """Check that all recordings of availability can be read."""
    try:
        node_availabilities(workload, locate)
    except (InvalidLine, UnicodeDecodeError, OSError):
        for path, attendance in attendances(workload):
            yield from _unreadable(workload, path, attendance, document, locate)


def _unreadable(
    workload: Workload, path: Keys, attendance: Attendance, document: Document, locate: Locate
) -> Iterator[Problem]:
    """Yield why the recording of one availability cannot be read."""
    if not isinstance(attendance, Recording):
        return
    count = sum(one == attendance for one in _of_nodes(workload))
    try:
        availabilities_of(
            dict.fromkeys(range(count), ""), attendance, seed=workload.seed, locate=locate
        )
    except (InvalidLine, UnicodeDecodeError, OSError) as error:
        yield unreadable(attendance, error, document, (*path, "trace"))


def _of_nodes(workload: Workload) -> Iterator[Attendance | None]:
    for name, program in workload.workload.items():
        for _, one in program.node_classes(name):
            yield one.availability or program.availability


def check_absent_faults(workload: Workload) -> Iterator[Finding]:
    """Refuse faults that would do, or undo, what a node's absence does, too."""
    absences = dict(_absences(workload))
    names = tuple(absences)
    for place, fault in enumerate(workload.faults):
        for number in fault.candidates((), names):
            node = names[number]
            how = absences[node]
            if how is not None and fault.kind in ("kill", how):
                found = f"a {fault.kind} of {node}, which has `availability`"
                expected = f"another fault or node: {_why(fault.kind, how)}"
                yield ("faults", place), found, expected
                break


def _why(kind: str, how: WhenAbsent) -> str:
    if kind == how:
        return f"its absences are a {how}, too (`when_absent`)"
    return "a program that was killed can neither leave nor return"


def _absences(workload: Workload) -> Iterator[tuple[str, WhenAbsent | None]]:
    for name, program in workload.workload.items():
        for node, (_, one) in zip(
            program.node_names(name), program.node_classes(name), strict=True
        ):
            yield node, program.absence(one)
