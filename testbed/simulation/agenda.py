"""The virtual clock: events by their time, and by the order of their making at equal times."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Happening = Callable[[float], None]


@dataclass(slots=True)
class Planned:
    """What is called with the time when it is due; None once it was struck out."""

    happening: Happening | None

    def strike(self) -> None:
        """Take the entry out of the agenda."""
        self.happening = None


@dataclass
class Agenda:
    """What is to happen, and what time it is: emulated seconds since the training began."""

    now: float = 0.0
    _heap: list[tuple[float, int, Planned]] = field(default_factory=list)
    _made: int = 0

    def at(self, time: float, happening: Happening) -> Planned:
        """Let something happen at ``time``, after all that was put there before."""
        entry = Planned(happening)
        heapq.heappush(self._heap, (max(time, self.now), self._made, entry))
        self._made += 1
        return entry

    def advance(self) -> bool:
        """Go to the next event and let it happen. Returns False when there is none."""
        while self._heap:
            time, _, entry = heapq.heappop(self._heap)
            if entry.happening is not None:
                self.now = time
                entry.happening(time)
                return True
        return False
