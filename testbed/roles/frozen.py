"""Workers with a stopped process: which they are, and which of them count as silent when."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

SILENT_SECONDS = 10.0
"""Real seconds after which a frozen worker counts as silent: it gets no replies, and the end of the
training does not wait for it."""


@dataclass
class FrozenWorkers:
    """The workers with a stopped process; moments are on the steady clock.

    Attributes:
        since: since when each is stopped that no fault thaws.
    """

    since: dict[int, float] = field(default_factory=dict)
    _silent_at: dict[int, float] = field(default_factory=dict)  # of those that are not yet silent
    _thawed_by_fault: set[int] = field(default_factory=set)

    def __contains__(self, worker: int) -> bool:
        return worker in self.since or worker in self._thawed_by_fault

    def add(self, worker: int, now: float, *, thaws: bool) -> None:
        """Add a worker; it never counts as silent if a fault ``thaws`` it."""
        if thaws:
            self.discard(worker)
            self._thawed_by_fault.add(worker)
        elif worker not in self.since:
            self._thawed_by_fault.discard(worker)
            self.since[worker], self._silent_at[worker] = now, now + SILENT_SECONDS

    def discard(self, worker: int) -> None:
        """Remove a worker, if it is frozen."""
        self._thawed_by_fault.discard(worker)
        self.since.pop(worker, None)
        self._silent_at.pop(worker, None)

    @property
    def next_silent(self) -> float:
        """When the next worker counts as silent; infinite if none will."""
        return min(self._silent_at.values(), default=inf)

    def take_silent(self, now: float) -> list[int]:
        """Return the workers that have begun to count as silent since the last call."""
        due = [worker for worker, at in self._silent_at.items() if at <= now]
        for worker in due:
            del self._silent_at[worker]
        return due
