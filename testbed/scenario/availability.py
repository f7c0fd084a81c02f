"""When workers, and nodes of a workload, are present: recordings, and periods that are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from testbed.errors import Problem
from testbed.faults import Join, Kill, Leave
from testbed.faults.population import Availability
from testbed.scenario.devices import device_pace
from testbed.scenario.direction import Recording
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.schema import Scenario
from testbed.scenario.settings import Attendance, Presence
from testbed.scenario.source import Locate, read_named
from testbed.scenario.traces import offset_of, parse_recording, unreadable
from testbed.values.presence import is_of_devices, read_devices
from testbed.values.seeds import stream
from testbed.values.traces import AVAILABLE, SHORTEST_SECONDS, InvalidLine, Trace

PERIODS = 100
"""Presences that are drawn for a worker; after them, they repeat."""

AVAILABILITY: Keys = ("workers", "availability")


def availabilities(scenario: Scenario, locate: Locate) -> list[Availability]:
    """Return the recorded or drawn availability of every worker; empty without one.

    Raises:
        OSError, InvalidLine, UnicodeDecodeError: the file cannot be read.
    """
    recording = scenario.workers.availability
    if recording is None:
        return []
    workers = {number: f"w{number}" for number in range(scenario.workers.count)}
    return availabilities_of(workers, recording, seed=scenario.seed, locate=locate)


def availabilities_of(
    nodes: Mapping[int, str], attendance: Attendance, *, seed: int, locate: Locate
) -> list[Availability]:
    """Return the availability of nodes, given by their numbers and names; names determine draws.

    Raises:
        OSError, InvalidLine, UnicodeDecodeError: the file cannot be read.
    """
    if isinstance(attendance, Presence):
        return [_drawn(attendance, number, node, seed) for number, node in nodes.items()]
    traces = _traces(len(nodes), attendance, seed, locate)
    return [
        Availability(number, trace, offset_of(attendance, trace, node, seed=seed))
        for (number, node), trace in zip(nodes.items(), traces, strict=True)
    ]


def _traces(count: int, recording: Recording, seed: int, locate: Locate) -> Sequence[Trace]:
    """Return the recording of every node: the same for all, or that of a device of its own."""
    text, repeats = read_named(recording.trace, locate), recording.then == "repeat"
    if not is_of_devices(text):
        return [parse_recording(text, AVAILABLE, recording.reading, repeats=repeats)] * count
    found = list(read_devices(text, repeats=repeats).values())
    if len(found) < count:
        raise InvalidLine(0, f"{len(found):,} devices", f"at least {count:,}, one for each node")
    order = stream(seed, "availability", "devices").permutation(len(found))
    return [found[place] for place in order[:count]]


def _drawn(presence: Presence, number: int, node: str, seed: int) -> Availability:
    """Draw when a node is present: periods in turn, of which ``PERIODS`` repeat.

    The run starts at a time drawn uniformly among them.
    """
    draws = stream(seed, node, "availability")
    time, times, values = 0.0, list[float](), list[float]()
    paces = [
        (1.0, device_pace(presence.present, draws=stream(seed, node, "device", "present"))),
        (0.0, device_pace(presence.absent, draws=stream(seed, node, "device", "absent"))),
    ]
    for _ in range(PERIODS):
        for value, pace in paces:
            times.append(time)
            values.append(value)
            time += max(SHORTEST_SECONDS, pace.law.draw(draws) * pace.base_seconds)
    trace = Trace(tuple(times), tuple(values), time, repeats=True)
    return Availability(number, trace, float(stream(seed, node, "trace").random()) * trace.end)


def check_availability(scenario: Scenario, document: Document, locate: Locate) -> Iterator[Problem]:
    """Check the availability recording, and whether the run can follow it."""
    recording = scenario.workers.availability
    if recording is None:
        return
    try:
        found = availabilities(scenario, locate)
    except (InvalidLine, UnicodeDecodeError, OSError) as error:
        assert isinstance(recording, Recording), "only recordings are files"
        yield unreadable(recording, error, document, (*AVAILABILITY, "trace"))
        return
    if not any(one.at_first for one in found):
        expected = "at least one: training starts with the workers that are present"
        hint = "Try another offset of the recording, or another seed"
        nothing = "no worker that is present at the start"
        yield problem_at(document, AVAILABILITY, found=nothing, expected=expected, hint=hint)
    back = [one.worker for one in found if one.returns or one.joins > (not one.at_first)]
    if back and scenario.runtime.capabilities.engine:
        expected = "a worker that joins for the first time: its container has ended"
        yield problem_at(
            document, AVAILABILITY, found=f"w{back[0]}, which joins again", expected=expected
        )
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, Join | Kill | Leave) and fault.targets_workers:
            both, path = f"{fault.kind} together with workers.availability", ("faults", place)
            expected = "one of the two: the recording determines when workers are present"
            yield problem_at(document, path, found=both, expected=expected)
