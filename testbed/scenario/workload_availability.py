"""When the nodes of a workload are present, by the same recordings and draws as workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from testbed.errors import Problem
from testbed.faults.population import Availability
from testbed.scenario.availability import availabilities_of
from testbed.scenario.direction import Recording
from testbed.scenario.document import Document, Finding
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
    stays = [how in ("freeze", "partition") for _, how in _absences(workload)]
    found = [
        replace(one, stays=stays[one.worker])
        for attendance, nodes in _groups(workload)
        for one in availabilities_of(nodes, attendance, seed=workload.seed, locate=locate)
    ]
    return sorted(found, key=lambda one: one.worker)


def _groups(workload: Workload) -> Iterable[tuple[Attendance, Mapping[int, str]]]:
    """Return every availability, with the nodes that have it, by number."""
    groups: dict[str, tuple[Attendance, dict[int, str]]] = {
        one.model_dump_json(): (one, {}) for _, one in attendances(workload)
    }
    for number, own in enumerate(placed(workload)):
        program = workload.workload[own.program]
        _, one = program.node_classes(own.program)[own.index]
        if attendance := one.availability or program.availability:
            groups[attendance.model_dump_json()][1][number] = own.name
    return groups.values()


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
    for attendance, nodes in _groups(workload):
        try:
            availabilities_of(nodes, attendance, seed=workload.seed, locate=locate)
        except (InvalidLine, UnicodeDecodeError, OSError) as error:
            assert isinstance(attendance, Recording), "only recordings are files"
            for path, one in attendances(workload):
                if one == attendance:
                    yield unreadable(attendance, error, document, (*path, "trace"))


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
