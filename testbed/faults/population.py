"""Which workers are there, and which faults hold them: what a further fault may do to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from testbed.errors import NodeError
from testbed.faults import Freeze, Join, Kill, Leave
from testbed.faults.base import TimedFault


class Contradiction(NodeError):  # noqa: N818 - says what the faults are to one another
    """A fault that cannot be, after those before it.

    Attributes:
        place: the fault's, in the scenario's list.
        found: what it asks for.
    """

    def __init__(self, place: int, found: str) -> None:
        super().__init__(f"faults.{place} cannot be applied: {found}.")
        self.place, self.found = place, found


@dataclass
class Population:
    """What became of the workers, and of the nodes that are numbered behind them.

    A crash is final: nothing else happens to who has crashed.

    Attributes:
        absent: those that have not joined yet, or are gone.
        held: by kind of fault, those that one holds which can be undone, and its place.
        restarted: those that are started again at once when they have been killed.
    """

    absent: set[int] = field(default_factory=set)
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    crashed: set[int] = field(default_factory=set)
    restarted: Collection[int] = ()

    def present(self, workers: int) -> list[int]:
        """Those of the first ``workers`` that take part."""
        return [worker for worker in range(workers) if worker not in self.absent]

    def held_by(self, kind: str) -> dict[int, int]:
        """The workers that a fault of this kind holds, and the place of that fault."""
        return self.held.setdefault(kind, {})

    def take(self, worker: int, fault: TimedFault, place: int, *, node: str) -> None:
        """A fault strikes a worker, or another ``node``.

        Raises:
            Contradiction: it cannot be.
        """
        here = worker not in self.absent and worker not in self.held_by("kill")
        if isinstance(fault, Join):
            if here:
                raise Contradiction(place, f"{node} joins, which is there already")
            self.absent.discard(worker)
            return
        if not here:
            raise Contradiction(place, f"{fault.kind} of {node}, which is not there")
        if worker in self.held_by("freeze") and isinstance(fault, Freeze | Leave):
            raise Contradiction(place, f"{fault.kind} of {node}, which stands still")
        if isinstance(fault, Kill | Leave):
            self.ended(worker)
            if isinstance(fault, Kill) and fault.duration is not None:
                self.held_by("kill")[worker] = place
            elif worker not in self.restarted:
                self.absent.add(worker)
        elif worker in self.held_by(fault.kind):
            found = f"a second {fault.kind} of {node} before the first is over"
            raise Contradiction(place, found)
        else:
            self.held_by(fault.kind)[worker] = place

    def undo(self, worker: int, kind: str, place: int) -> bool:
        """A fault's time is over; returns whether the worker was still struck by it."""
        if self.held_by(kind).get(worker) != place:
            return False
        del self.held_by(kind)[worker]
        return True

    def gone(self, worker: int) -> None:
        """A worker has ended, planned or not."""
        self.absent.add(worker)
        self.ended(worker)

    def ended(self, worker: int) -> None:
        """A process has ended: nothing holds it up any more, but a fault that has killed it."""
        for kind, held in self.held.items():
            if kind != "kill":
                held.pop(worker, None)
