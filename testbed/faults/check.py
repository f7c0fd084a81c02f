"""Finds errors in a list of faults before any of them is applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from testbed.faults import AnyFault, Crash, Join
from testbed.faults.base import PassingFault, TimedFault
from testbed.faults.population import Contradiction
from testbed.faults.timeline import Timeline

MOST_ACTIONS = 10_000
"""Maximum number of actions checked; a fault may recur every millisecond of a year."""


def contradictions(
    faults: Sequence[AnyFault],
    classes: Sequence[str],
    *,
    seed: int,
    others: Sequence[str] = (),
    restarted: bool = False,
) -> Iterator[tuple[int, str]]:
    """Yield faults that contradict others: the position in the list, and the error found.

    The arguments are those of ``Timeline.of``. Only faults at times can be ordered in advance.
    If other faults target a worker too, a contradiction is found during the run, which then ends.
    """
    timeline = Timeline.of(faults, classes, seed=seed, others=others, restarted=restarted)
    yield from _second_crashes(timeline)
    if classes and len(timeline.population.absent) == len(classes):
        joins = next(place for place, fault in enumerate(faults) if isinstance(fault, Join))
        yield joins, "no worker that is present at the start"
        return
    unsettled = {
        worker
        for fault, workers in zip(faults, timeline.targets, strict=True)
        if isinstance(fault, TimedFault)
        and (fault.at.time is None or fault.end_trigger is not None)
        for worker in workers
    }
    timeline.targets = [
        tuple(one for one in workers if one not in unsettled) for workers in timeline.targets
    ]
    try:
        for _ in islice(timeline.due(_settled(faults)), MOST_ACTIONS):
            pass
    except Contradiction as wrong:
        yield wrong.place, wrong.found


def _second_crashes(timeline: Timeline) -> Iterator[tuple[int, str]]:
    """Yield crashes of workers that already have a crash probability."""
    crashing: dict[int, int] = {}
    for place, (fault, workers) in enumerate(zip(timeline.faults, timeline.targets, strict=True)):
        if not isinstance(fault, Crash):
            continue
        twice = [worker for worker in workers if worker in crashing]
        if twice and not fault.is_drawn:
            first = f"after faults.{crashing[twice[0]]}"
            yield place, f"a second crash probability for w{twice[0]}, {first}"
        crashing = dict.fromkeys(workers, place) | crashing


def rejoining(
    faults: Sequence[AnyFault], classes: Sequence[str], *, seed: int
) -> Iterator[tuple[int, int]]:
    """Yield faults that bring back an absent worker: position in the list, first such worker."""
    timeline = Timeline.of(faults, classes, seed=seed)
    joined = dict.fromkeys(timeline.population.absent, 0)
    for place, (fault, workers) in enumerate(zip(faults, timeline.targets, strict=True)):
        if not isinstance(fault, Join):
            continue
        back = [one for one in workers if joined.get(one) != 0]
        joined.update(dict.fromkeys(workers, 1))
        if back:
            yield place, back[0]


def _settled(faults: Sequence[AnyFault]) -> float:
    """Return when the last fault at a time has begun, and recurring ones have recurred twice."""
    last = 0.0
    for fault in faults:
        if isinstance(fault, TimedFault) and fault.at.time is not None:
            end = float(fault.at.time)
            if isinstance(fault, PassingFault):
                end += 2 * float(fault.every or fault.duration or 0.0)
            last = max(last, end)
    return last
