"""Changes of the links of a running run, and when each change expires."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from testbed.errors import TestbedError
from testbed.telemetry.event_kinds import LinkChanged
from testbed.telemetry.wall import WALL
from testbed.values.topology import Direction, LinkSpec

SHAPE = TypeAdapter(Direction | None)


@dataclass
class LinkChanges:
    """Changes links, remembers the planned ones, and restores those when a change expires.

    Attributes:
        relink: changes the shapes of a running node's link.
        wall: clock in seconds since 1970.
        steady: clock in monotonic seconds, by which changes expire.
        done: the changes that the controller does not have yet.
    """

    relink: Callable[[str, LinkSpec], None]
    wall: Callable[[], float] = WALL
    steady: Callable[[], float] = time.monotonic
    done: list[LinkChanged] = field(default_factory=list)
    _forgotten: int = 0  # number of earlier changes
    _planned: dict[str, LinkSpec] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def set(
        self,
        links: Mapping[str, LinkSpec],
        *,
        up: Direction | None,
        down: Direction | None,
        seconds: float | None,
        planned: float | None = None,
        by_hand: bool = False,
    ) -> LinkChanged:
        """Change one direction of links, or both: a direction whose shape is None is unchanged.

        Args:
            links: of the nodes concerned, as they are now.
            seconds: for how long; None until it is reset. Replaces the expiry of earlier changes.
            planned: when a recording schedules it, in seconds since 1970; None if not recorded.
            by_hand: whether a user asks for it, and not the run itself.

        Raises:
            TestbedError: a link could not be changed; the links before it have been.
        """
        begun, steady = self.wall(), self.steady()
        for name, link in links.items():
            self._planned.setdefault(name, link)
            self._due.pop(name, None)
            if seconds is not None:
                self._due[name] = steady + seconds
            self.relink(name, replace(link, up=up or link.up, down=down or link.down))
        action = "set" if planned is None else "recorded"
        moment = begun if planned is None else planned
        new_up, new_down = (SHAPE.dump_python(shape, mode="json") for shape in (up, down))
        nodes, now = tuple(links), self.wall()
        change = LinkChanged(action, nodes, new_up, new_down, moment, now, by_hand=by_hand)
        self.done.append(change)
        return self.done[-1]

    def reset(self, names: Sequence[str], *, by_hand: bool = False) -> LinkChanged:
        """Restore the planned links of nodes; links that were not changed are left as they are."""
        return self._reset("reset", names, self.wall(), by_hand=by_hand)

    def since(self, number: int) -> list[LinkChanged]:
        """Return all changes but the first ``number``, and forget those: recordings have many."""
        had = min(max(number - self._forgotten, 0), len(self.done))
        self._forgotten += had
        del self.done[:had]
        return [*self.done]

    def due_in_seconds(self) -> float | None:
        """Return the seconds until the next change expires; None if none does."""
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - self.steady())

    def expire(self) -> None:
        """End every expired change; a failure is recorded and not retried."""
        now = self.steady()
        due = [name for name, moment in self._due.items() if moment <= now]
        if due:
            planned = self.wall() - (now - min(self._due[name] for name in due))
            self._reset("expired", due, planned)

    def _reset(
        self, action: str, names: Sequence[str], planned: float, *, by_hand: bool = False
    ) -> LinkChanged:
        changed, failures = [], []
        for name in names:
            self._due.pop(name, None)
            link = self._planned.pop(name, None)
            if link is None:
                continue
            try:
                self.relink(name, link)
            except (OSError, TestbedError) as error:  # usually a node that has ended
                failures.append(str(error))
            else:
                changed.append(name)
        failure = "; ".join(failures)
        nodes, now = tuple(changed), self.wall()
        self.done.append(LinkChanged(action, nodes, None, None, planned, now, failure, by_hand))
        return self.done[-1]
