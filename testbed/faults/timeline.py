"""Which fault targets which worker when. Pure: a run and its simulation use the same timeline.

The driver passes in the time, the progress of training and changes of workers, and carries out
the scheduled actions. The timeline's state is plain data.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, nextafter
from operator import itemgetter
from typing import ClassVar

from testbed.errors import HostLostError, NodeError
from testbed.faults import AnyFault, Crash, Crashes, Join, Leave, Slow
from testbed.faults.base import Actuator, PassingFault, TimedFault, Trigger
from testbed.faults.population import Availability, Contradiction, Population, latecomers
from testbed.telemetry.event_kinds import FaultApplied
from testbed.values.units import Duration

ScheduledFault = tuple[float, bool, int]
"""When, in emulated seconds; whether it begins (ordered after what ends at that moment); the
fault's position in the list, after which the recordings of availability follow."""


JOIN = Join(name="join", at=Trigger(time=Duration(0)))
LEAVE = Leave(name="leave", at=JOIN.at)
"""What a recording makes a worker do."""

BY_HAND = -1
"""Position of a fault that is not in the scenario's list."""


@dataclass(frozen=True)
class FaultAction:
    """An action to carry out now."""

    fault: TimedFault  # the fault; for a recording, a join or a leave
    place: int  # the fault's position in the scenario's list; after the list, a recording's
    begins: bool  # whether the fault begins or ends; for a recording, whether the worker joins
    planned: float  # emulated seconds since training started
    workers: tuple[int, ...]
    passed_over: tuple[int, ...] = ()


@dataclass
class Timeline:
    """The pending actions of a scenario's faults."""

    STATE: ClassVar = ("_due", "_changes", "_waiting")
    faults: Sequence[AnyFault] = ()
    targets: Sequence[tuple[int, ...]] = ()  # the numbers of each fault's targets
    availabilities: Sequence[Availability] = ()  # of the workers that join and leave by a recording
    population: Population = field(default_factory=Population)
    lower: frozenset[str] = frozenset()  # metrics whose lower values are better
    names: Sequence[str] = ()  # of the possible targets: the workers by index, then the other nodes
    _due: list[ScheduledFault] = field(default_factory=list)  # a heap: of the faults
    _changes: list[ScheduledFault] = field(default_factory=list)  # a heap: of the recordings
    # faults that begin (True) or end at a version, a line or an evaluation, and their positions
    _waiting: set[tuple[bool, int]] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        faults: Sequence[AnyFault],
        classes: Sequence[str],
        *,
        seed: int,
        availabilities: Sequence[Availability] = (),
        others: Sequence[str] = (),
        restarted: bool = False,
        lower: Collection[str] = (),
    ) -> Timeline:
        """Create the timeline of a scenario.

        Args:
            faults: as the scenario lists them.
            classes: of the workers, by index.
            seed: of the scenario.
            availabilities: of the workers that join and leave by a recording.
            others: the other nodes that faults can target.
            restarted: whether the others are restarted at once after they were killed.
            lower: names of metrics whose lower values are better.
        """
        targets = [
            fault.pick_targets(classes, seed=seed, place=place, others=others)
            for place, fault in enumerate(faults)
        ]
        absent = latecomers(faults, targets)
        absent |= {one.worker for one in availabilities if not one.at_first}
        names = (*(f"w{index}" for index in range(len(classes))), *others)
        back = range(len(classes), len(names)) if restarted else ()
        population = Population(absent, restarted=back)
        better = frozenset(lower) | {"loss"}
        timeline = cls(faults, targets, availabilities, population, better, names)
        for place, fault in enumerate(faults):
            if isinstance(fault, TimedFault):
                if fault.at.time is None:
                    timeline._waiting.add((True, place))
                else:
                    heapq.heappush(timeline._due, (float(fault.at.time), True, place))
        for place, one in enumerate(availabilities, len(faults)):
            timeline._plan_change(place, 0.0, there=one.at_first)
        return timeline

    @property
    def next_time(self) -> float:
        """When the next action is scheduled; infinite if none is known yet."""
        return min((heap[0][0] for heap in (self._due, self._changes) if heap), default=inf)

    @property
    def waits(self) -> bool:
        """Whether beginnings or ends at a version, a line or an evaluation are pending."""
        return bool(self._waiting)

    @property
    def away(self) -> set[int]:
        """The nodes that are absent by their availability."""
        return self.population.absent & self._recorded

    @property
    def held(self) -> set[int]:
        """The nodes that are frozen or dead until a line is printed or a value is reached."""
        ends = {place for begins, place in self._waiting if not begins}
        active = (self.population.active(kind) for kind in ("freeze", "kill"))
        return {node for nodes in active for node, place in nodes.items() if place in ends}

    @property
    def departed(self) -> set[int]:
        """The nodes that are absent by their availability, and never return."""
        pending = {place for _, _, place in self._changes}
        places = enumerate(self.availabilities, len(self.faults))
        return self.away & {one.worker for place, one in places if place not in pending}

    def retire(self, worker: int) -> None:
        """Schedule no more changes of a node that has ended for good."""
        first = len(self.faults)
        self._changes[:] = [
            change
            for change in self._changes
            if self.availabilities[change[2] - first].worker != worker
        ]
        heapq.heapify(self._changes)

    @property
    def next_pace(self) -> float:
        """When a slowdown of workers may next begin or end; infinite if unknown."""
        times = (time for time, _, place in self._due if isinstance(self._fault(place), Slow))
        return min(times, default=inf)

    @property
    def to_come(self) -> list[int]:
        """The workers that will certainly join, once for every join."""
        planned = [
            worker
            for _, _, place in self._due
            if isinstance(self._fault(place), Join)
            for worker in self.targets[place]
        ]
        return planned + [one.worker for one in self.availabilities for _ in range(one.joins)]

    @property
    def returning(self) -> set[int]:
        """The workers that always join again after they have left."""
        return {one.worker for one in self.availabilities if one.returns}

    def crash(self, worker: int, *, planned: float, actual: float) -> FaultApplied:
        """Register a worker that crashed with a push; return the event to record.

        Args:
            worker: its index.
            planned: when the push was taken, emulated.
            actual: when the worker froze.
        """
        self.population.crashed.add(worker)
        place = next(
            place
            for place, fault in enumerate(self.faults)
            if isinstance(fault, Crash) and worker in self.targets[place]
        )
        return FaultApplied("crash", True, self.named((worker,)), planned, actual, place)

    def reached(self, version: int, *, now: float) -> bool:
        """Register that the model has ``version`` updates; return whether that triggers faults."""
        return self._trigger(now, lambda at: at.version is not None and version >= at.version)

    def evaluated(self, found: Mapping[str, float | None], *, now: float) -> bool:
        """Register the values of an evaluation during training; return as ``reached`` does.

        ``found`` has the ``accuracy``, the ``loss`` and the metrics by name; None is no value.
        """
        return self._trigger(now, lambda at: at.met(found, lower=self.lower))

    def printed(self, line: str, *, now: float) -> bool:
        """Register a line that a node has printed; return as ``reached`` does."""
        return self._trigger(
            now, lambda at: at.log is not None and re.search(at.log, line) is not None
        )

    def _trigger(self, now: float, met: Callable[[Trigger], bool]) -> bool:
        come = []
        for begins, place in self._waiting:
            fault = self._timed(place)
            trigger = fault.at if begins else fault.end_trigger
            if trigger is not None and met(trigger):
                come.append((begins, place))
        for begins, place in come:
            self._waiting.discard((begins, place))
            # An end follows the beginning, also if both lines are read at the same moment.
            heapq.heappush(self._due, (now if begins else nextafter(now, inf), begins, place))
            if begins:
                self._await_end(place)
        return bool(come)

    def _await_end(self, place: int) -> None:
        """From now on, what a fault's `until` names ends it."""
        if self._timed(place).end_trigger is not None:
            self._waiting.add((False, place))

    def _fault(self, place: int) -> AnyFault | None:
        """Return the fault at a position; None after the last."""
        return self.faults[place] if place < len(self.faults) else None

    def _timed(self, place: int) -> TimedFault:
        fault = self._fault(place)
        assert isinstance(fault, TimedFault), "only timed faults are scheduled"
        return fault

    def due(self, now: float) -> Iterator[FaultAction]:
        """Yield the actions scheduled by now, one after the other.

        Raises:
            Contradiction: a fault is impossible.
        """
        heaps = (self._due, self._changes)
        while come := [heap for heap in heaps if heap and heap[0][0] <= now]:
            planned, begins, place = heapq.heappop(min(come, key=itemgetter(0)))
            take = self._fault_action if place < len(self.faults) else self._availability_action
            action = take(place, planned, begins)
            if action is not None:
                yield action

    def _fault_action(self, place: int, planned: float, begins: bool) -> FaultAction | None:
        """Begin or end a fault."""
        fault, population = self._timed(place), self.population
        over: list[int] = []
        others: list[int] = []
        for one in self.targets[place]:
            (over if self._is_passed_over(one, begins=begins) else others).append(one)
        if begins:
            workers = tuple(one for one in others if self._try_apply(one, fault, place))
            over += [one for one in others if one not in workers]
            self._plan_next(fault, place, planned)
            if fault.at.time is not None:  # otherwise since its line, or value
                self._await_end(place)
        else:
            workers = tuple(one for one in others if population.undo(one, fault.kind, place))
        if not workers and not begins and fault.end_trigger is None:
            return None
        return FaultAction(fault, place, begins, planned, workers, tuple(over))

    def _try_apply(self, worker: int, fault: TimedFault, place: int) -> bool:
        """Apply a fault to a worker; return False if a drawn target cannot be hit."""
        try:
            self.population.apply(worker, fault, place, node=self.names[worker])
        except Contradiction:
            if not fault.is_drawn:
                raise
            return False
        return True

    def _availability_action(self, place: int, planned: float, comes: bool) -> FaultAction | None:
        """Make a worker join or leave as recorded; None if it already has, or has crashed."""
        one, population = self.availabilities[place - len(self.faults)], self.population
        worker = one.worker
        self._plan_change(place, planned, there=comes)
        if worker in population.crashed or comes == (worker not in population.absent):
            return None
        if comes:
            population.absent.discard(worker)
        elif one.stays:
            population.absent.add(worker)
        else:
            population.mark_absent(worker)
        return FaultAction(JOIN if comes else LEAVE, place, comes, planned, (worker,))

    def _is_passed_over(self, worker: int, *, begins: bool) -> bool:
        """Return whether faults skip a worker: it has crashed, or is absent by its recording.

        A fault on a process that lasts while its node is absent ends nevertheless.
        """
        if worker in self.population.crashed:
            return True
        away = worker in self.population.absent and worker in self._recorded
        return away and (begins or worker not in self._staying)

    @cached_property
    def _recorded(self) -> frozenset[int]:
        """The workers that join and leave by a recording."""
        return frozenset(one.worker for one in self.availabilities)

    @cached_property
    def _staying(self) -> frozenset[int]:
        """Those whose processes last while they are absent."""
        return frozenset(one.worker for one in self.availabilities if one.stays)

    def _plan_change(self, place: int, time: float, *, there: bool) -> None:
        change = self.availabilities[place - len(self.faults)].after(time, there=there)
        if change is not None:
            heapq.heappush(self._changes, (*change, place))

    def _plan_next(self, fault: TimedFault, place: int, planned: float) -> None:
        if not isinstance(fault, PassingFault):
            return
        if fault.duration is not None:
            heapq.heappush(self._due, (planned + fault.duration, False, place))
        if fault.every is not None:
            heapq.heappush(self._due, (planned + fault.every, True, place))

    def carry_out(
        self, action: FaultAction, actuator: Actuator, clock: Callable[[], float]
    ) -> FaultApplied:
        """Carry out an action; the clock returns emulated seconds. Return the event to record.

        Workers whose host is lost are passed over.

        Raises:
            NodeError: it failed.
        """
        recorded, lost = action.place >= len(self.faults), list[int]()
        for worker in action.workers:
            try:
                if action.begins or recorded:
                    actuator.begin(action.fault, worker)
                elif isinstance(action.fault, PassingFault):
                    actuator.end(action.fault, worker)
            except HostLostError:
                lost.append(worker)
            except NodeError as error:
                whose = "an availability" if recorded else f"faults.{action.place}"
                found = f"{action.fault.kind} of {self.names[worker]}: {error.message}"
                raise NodeError(f"{whose} cannot be applied: {found}") from error
        done = [worker for worker in action.workers if worker not in lost]
        return self._applied(action, done, actual=clock(), lost=lost)

    def missed(self, action: FaultAction, *, now: float) -> FaultApplied:
        """Return the event to record for a scheduled action that the end of the run preceded.

        It has no targets, and its delay is measured until now.
        """
        return self._applied(action, (), actual=now)

    def _applied(
        self,
        action: FaultAction,
        workers: Collection[int],
        *,
        actual: float,
        lost: Collection[int] = (),
    ) -> FaultApplied:
        recorded = action.place >= len(self.faults)
        return FaultApplied(
            kind=action.fault.kind,
            begins=action.begins or recorded,
            nodes=self.named(workers),
            planned_seconds=action.planned,
            actual_seconds=actual,
            place=None if recorded else action.place,
            passed_over=self.named([*action.passed_over, *lost]),
            recorded=recorded,
        )

    def named(self, numbers: Collection[int]) -> tuple[str, ...]:
        """Return the names of nodes, in the order of their numbers."""
        return tuple(self.names[number] for number in sorted(numbers))


def crashes(timeline: Timeline, *, seed: int) -> Crashes:
    """Return the generator of the crashes that a timeline's faults plan."""
    after_push: dict[int, float] = {}
    for fault, workers in zip(timeline.faults, timeline.targets, strict=True):
        if isinstance(fault, Crash):  # if two faults drew a worker, the first counts
            after_push = dict.fromkeys(workers, fault.after_push) | after_push
    return Crashes(seed, after_push)
