"""The virtual clock: events ordered by time, then by order of creation."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

Callback = Callable[[float], None]


@dataclass(slots=True)
class ScheduledEvent:
    """An entry: a callback, called with its time when due; None once cancelled."""

    callback: Callback | None

    def cancel(self) -> None:
        """Cancel the entry."""
        self.callback = None


@dataclass
class EventQueue:
    """The planned events and the current time: emulated seconds since training began."""

    STATE: ClassVar = ("now", "_heap", "_made")
    now: float = 0.0
    _heap: list[tuple[float, int, ScheduledEvent]] = field(default_factory=list)
    _made: int = 0

    def at(self, time: float, callback: Callback) -> ScheduledEvent:
        """Schedule a callback at ``time``, after all earlier entries of the same time."""
        entry = ScheduledEvent(callback)
        heapq.heappush(self._heap, (max(time, self.now), self._made, entry))
        self._made += 1
        return entry

    def advance(self) -> bool:
        """Advance to the next event and run it. Return False if there is none."""
        while self._heap:
            time, _, entry = heapq.heappop(self._heap)
            if entry.callback is not None:
                self.now = time
                entry.callback(time)
                return True
        return False
