"""The recording that says which workers are there: read, checked, and dealt to the workers."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.errors import Problem
from testbed.faults import Join, Kill, Leave
from testbed.faults.availability import Availability
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import Locate, offset_of, read_recording, unreadable
from testbed.values.traces import AVAILABLE, UnfitLine

PATH: Keys = ("workers", "availability")


def availabilities(scenario: Scenario, locate: Locate) -> list[Availability]:
    """When every worker is there, where the scenario names a recording of that; else nothing.

    Raises:
        OSError, UnfitLine, UnicodeDecodeError: the file cannot be read.
    """
    recording = scenario.workers.availability
    if recording is None:
        return []
    trace = read_recording(recording, AVAILABLE, locate)
    return [
        Availability(worker, trace, offset_of(recording, trace, worker, seed=scenario.seed))
        for worker in range(scenario.workers.count)
    ]


def check_availability(scenario: Scenario, document: Document, locate: Locate) -> Iterator[Problem]:
    """What the recording asks for in vain, and whatever is wrong with its file."""
    recording = scenario.workers.availability
    if recording is None:
        return
    try:
        found = availabilities(scenario, locate)
    except (UnfitLine, UnicodeDecodeError, OSError) as error:
        yield unreadable(recording, error, document, (*PATH, "trace"))
        return
    if not any(one.at_first for one in found):
        expected = "at least one: a training begins with those that are there"
        hint = "Another offset of the recording, or another seed, may have one"
        nobody = "no worker that is there at the beginning"
        yield problem_at(document, PATH, found=nobody, expected=expected, hint=hint)
    back = [one.worker for one in found if one.returns or one.joins > (not one.at_first)]
    if back and scenario.runtime.capabilities.engine:
        expected = "a worker that was not there before: an engine's container has ended then"
        yield problem_at(document, PATH, found=f"w{back[0]}, which comes back", expected=expected)
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, Join | Kill | Leave) and fault.strikes_workers:
            gone, path = f"{fault.kind} beside workers.availability", ("faults", place)
            expected = "one of the two: the recording says when workers are there"
            yield problem_at(document, path, found=gone, expected=expected)
