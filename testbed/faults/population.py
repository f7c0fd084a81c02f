"""Which workers are present, and which faults are active: what a further fault may do to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from testbed.errors import NodeError
from testbed.faults import Freeze, Join, Kill, Leave
from testbed.faults.base import TimedFault


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
            if isinstance(fault, Kill) and fault.duration is not None:
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
