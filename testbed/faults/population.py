"""Which workers are present, by faults and by recordings, and which further faults are possible.

By a recording, a device that is switched off leaves, and one that is switched on joins: a device
that is off has lost its results and its connection, so it starts again with a pull, and no barrier
waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from testbed.errors import NodeError
from testbed.faults import AnyFault, Freeze, Join, Kill, Leave
from testbed.faults.base import TimedFault
from testbed.values.traces import Trace


@dataclass(frozen=True)
class Availability:
    """The recording that determines when one worker, or node of a workload, is present."""

    worker: int  # its index
    trace: Trace  # 1 while it is present, 0 while it is absent; emulated seconds
    offset: float = 0.0  # the position in the recording when training starts, in seconds
    stays: bool = False  # whether its process, with the faults on it, lasts while it is absent

    @property
    def at_first(self) -> bool:
        """Whether it is present when training starts."""
        return bool(self.trace.at(0.0, self.offset))

    @property
    def returns(self) -> bool:
        """Whether it joins again and again, without an end."""
        return self.trace.repeats and len(set(self.trace.values)) > 1

    @property
    def joins(self) -> int:
        """How often it joins during training, if the recording has an end."""
        count, change = 0, self.after(0.0, there=self.at_first)
        while change is not None and not self.returns:
            count += change[1]
            change = self.after(change[0], there=change[1])
        return count

    def after(self, time: float, *, there: bool) -> tuple[float, bool] | None:
        """Return the first change after ``time``: its time, and whether the worker joins.

        Args:
            time: emulated seconds since training started.
            there: whether it is present at that time.
        """
        change = self.trace.after(time, float(there), self.offset)
        return None if change is None else (change[0], bool(change[1]))


class Contradiction(NodeError):  # noqa: N818 - named after the relation of the faults
    """A fault that is impossible after the faults before it.

    Attributes:
        place: the fault's position in the scenario's list.
        found: what it asks for.
    """

    def __init__(self, place: int, found: str) -> None:
        super().__init__(f"faults.{place} cannot be applied: {found}.")
        self.place, self.found = place, found


@dataclass
class Population:
    """The state of the workers, and of the nodes that are numbered after them.

    A crash is final: no other fault applies to a crashed worker.

    Attributes:
        absent: those that have not joined yet, or have left.
        held: by kind of undoable fault, the nodes on which one is active, and its position.
        restarted: those that are restarted at once after they were killed.
    """

    STATE: ClassVar = ("absent", "held", "crashed")
    absent: set[int] = field(default_factory=set)
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    crashed: set[int] = field(default_factory=set)
    restarted: Collection[int] = ()

    def present(self, workers: int) -> list[int]:
        """Return those of the first ``workers`` that participate."""
        return [worker for worker in range(workers) if worker not in self.absent]

    def active(self, kind: str) -> dict[int, int]:
        """Return the workers on which a fault of this kind is active, and its position."""
        return self.held.setdefault(kind, {})

    def apply(self, worker: int, fault: TimedFault, place: int, *, node: str) -> None:
        """Apply a fault to a worker, or to another ``node``.

        Raises:
            Contradiction: it is impossible.
        """
        here = worker not in self.absent and worker not in self.active("kill")
        if isinstance(fault, Join):
            if here:
                raise Contradiction(place, f"{node} joins, but is already present")
            self.absent.discard(worker)
            return
        if not here:
            raise Contradiction(place, f"{fault.kind} of {node}, which is absent")
        if worker in self.active("freeze") and isinstance(fault, Freeze | Leave):
            raise Contradiction(place, f"{fault.kind} of {node}, which is frozen")
        if isinstance(fault, Kill | Leave):
            self.end_faults(worker)
            if isinstance(fault, Kill) and fault.ends:
                self.active("kill")[worker] = place
            elif worker not in self.restarted:
                self.absent.add(worker)
        elif worker in self.active(fault.kind):
            found = f"a second {fault.kind} of {node} before the first has ended"
            raise Contradiction(place, found)
        else:
            self.active(fault.kind)[worker] = place

    def undo(self, worker: int, kind: str, place: int) -> bool:
        """Undo a fault; return whether it was still active on the worker."""
        if self.active(kind).get(worker) != place:
            return False
        del self.active(kind)[worker]
        return True

    def mark_absent(self, worker: int) -> None:
        """Register that a worker has ended, planned or not."""
        self.absent.add(worker)
        self.end_faults(worker)

    def end_faults(self, worker: int) -> None:
        """End all active faults of an ended process, except one that killed it for a time."""
        for kind, held in self.held.items():
            if kind != "kill":
                held.pop(worker, None)


def latecomers(faults: Sequence[AnyFault], targets: Sequence[tuple[int, ...]]) -> set[int]:
    """Return the workers that are absent at first: whose first join, kill or leave is a join.

    Faults at times are ordered by time, others by their position in the list.
    """
    first: dict[int, TimedFault] = {}
    for fault, workers in zip(faults, targets, strict=True):
        if not isinstance(fault, Join | Kill | Leave):
            continue
        moment = fault.at.time
        for worker in workers:
            before = first.setdefault(worker, fault).at.time
            if moment is not None and before is not None and moment < before:
                first[worker] = fault
    return {worker for worker, fault in first.items() if isinstance(fault, Join)}
