"""What was changed at the links of a run that goes on, and when each change is due to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import TypeAdapter

from testbed.errors import TestbedError
from testbed.telemetry.wall import WALL
from testbed.topology import LinkSpec, Shape

Action = Literal["set", "recorded", "reset", "expired"]


@dataclass(frozen=True)
class LinkChange:
    """One change, as it happened.

    Attributes:
        action: ``set``; ``recorded``, as a recording has it; ``reset`` to the plan's link by a
            command; ``expired``, reset by itself.
        nodes: whose links.
        up: what the nodes send through now; None where the plan's links differ or were not changed.
        down: what they receive through.
        planned: when it was to happen, in seconds since 1970.
        actual: when the last of the links had changed.
        failure: what went wrong; empty for nothing.
    """

    action: Action
    nodes: tuple[str, ...]
    up: Shape | None
    down: Shape | None
    planned: float
    actual: float
    failure: str = ""


SHAPE = TypeAdapter(Shape | None)
LINK = TypeAdapter(LinkSpec)
CHANGE = TypeAdapter(LinkChange)
CHANGES = TypeAdapter(tuple[LinkChange, ...])

Relink = Callable[[str, LinkSpec], None]
"""Gives a running node a link of another shape."""


@dataclass
class LinkChanges:
    """Changes links, remembers the plan's, and brings those back when their time has come.

    Attributes:
        wall: seconds since 1970.
        steady: monotonic seconds, by which changes end.
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
        up: Shape | None,
        down: Shape | None,
        seconds: float | None,
        planned: float | None = None,
        relink: Relink,
    ) -> LinkChange:
        """Change one direction of links, or both: a shape that is None stays.

        Args:
            links: of the nodes concerned, as they are now.
            seconds: for how long; None until it is reset. It takes the place of an earlier time.
            planned: when a recording has this change, in seconds since 1970; None for others.
            relink: does it.

        Raises:
            TestbedError: a link could not be changed; those before it have been.
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
        """Give nodes the plan's links again; those that have them already keep them."""
        return self._reset("reset", names, self.wall(), relink)

    def due_in_seconds(self) -> float | None:
        """How long nothing has to be done; None for nothing is planned."""
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - self.steady())

    def expire(self, *, relink: Relink) -> None:
        """End every change whose time has come; what fails is entered and tried no more."""
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
            except (OSError, TestbedError) as error:  # a node that has ended, mostly
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
