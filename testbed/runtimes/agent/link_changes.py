"""Changes of the links of a running run, and when each change expires."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import TypeAdapter

from testbed.errors import TestbedError
from testbed.telemetry.wall import WALL
from testbed.values.topology import Direction, LinkSpec

Action = Literal["set", "recorded", "reset", "expired"]


@dataclass(frozen=True)
class LinkChange:
    """One change, as it happened.

    Attributes:
        action: ``set``; ``recorded``, from a recording; ``reset`` to the plan's link by a
            command; ``expired``, reset automatically.
        nodes: the nodes that own the links.
        up: the nodes' new sending shape; None if the plan's links differ or were not changed.
        down: the new receiving shape.
        planned: when it was scheduled, in seconds since 1970.
        actual: when the last of the links had changed.
        failure: the error; empty if there was none.
    """

    action: Action
    nodes: tuple[str, ...]
    up: Direction | None
    down: Direction | None
    planned: float
    actual: float
    failure: str = ""


SHAPE = TypeAdapter(Direction | None)
LINK = TypeAdapter(LinkSpec)
CHANGE = TypeAdapter(LinkChange)
CHANGES = TypeAdapter(tuple[LinkChange, ...])

Relink = Callable[[str, LinkSpec], None]
"""Changes the shapes of a running node's link."""


@dataclass
class LinkChanges:
    """Changes links, remembers the planned ones, and restores those when a change expires.

    Attributes:
        wall: clock in seconds since 1970.
        steady: clock in monotonic seconds, by which changes expire.
        done: every change so far.
    """

    wall: Callable[[], float] = WALL
    steady: Callable[[], float] = time.monotonic
    done: list[LinkChange] = field(default_factory=list)
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
        relink: Relink,
    ) -> LinkChange:
        """Change one direction of links, or both: a direction whose shape is None is unchanged.

        Args:
            links: of the nodes concerned, as they are now.
            seconds: for how long; None until it is reset. Replaces the expiry of earlier changes.
            planned: when a recording schedules it, in seconds since 1970; None if not recorded.
            relink: applies it.

        Raises:
            TestbedError: a link could not be changed; the links before it have been.
        """
        begun, now = self.wall(), self.steady()
        for name, link in links.items():
            self._planned.setdefault(name, link)
            self._due.pop(name, None)
            if seconds is not None:
                self._due[name] = now + seconds
            relink(name, replace(link, up=up or link.up, down=down or link.down))
        action: Action = "set" if planned is None else "recorded"
        moment = begun if planned is None else planned
        return self._enter(LinkChange(action, tuple(links), up, down, moment, self.wall()))

    def reset(self, names: Sequence[str], *, relink: Relink) -> LinkChange:
        """Restore the planned links of nodes; links that were not changed are left as they are."""
        return self._reset("reset", names, self.wall(), relink)

    def due_in_seconds(self) -> float | None:
        """Return the seconds until the next change expires; None if none does."""
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - self.steady())

    def expire(self, *, relink: Relink) -> None:
        """End every expired change; a failure is recorded and not retried."""
        now = self.steady()
        due = [name for name, moment in self._due.items() if moment <= now]
        if due:
            planned = self.wall() - (now - min(self._due[name] for name in due))
            self._reset("expired", due, planned, relink)

    def _reset(
        self, action: Action, names: Sequence[str], planned: float, relink: Relink
    ) -> LinkChange:
        changed, failures = [], []
        for name in names:
            self._due.pop(name, None)
            link = self._planned.pop(name, None)
            if link is None:
                continue
            try:
                relink(name, link)
            except (OSError, TestbedError) as error:  # usually a node that has ended
                failures.append(str(error))
            else:
                changed.append(name)
        failure = "; ".join(failures)
        return self._enter(
            LinkChange(action, tuple(changed), None, None, planned, self.wall(), failure)
        )

    def _enter(self, change: LinkChange) -> LinkChange:
        self.done.append(change)
        return change
