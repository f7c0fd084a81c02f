"""Nodes that were killed are started again, as long as that gets the run any further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.errors import NodeError
from testbed.topology import NodeSpec

MOST_IN_VAIN = 3
"""So often a parameter server is started again from one and the same checkpoint."""

MOST_RESTARTS = 3
WITHIN_SECONDS = 60.0
"""So often in this time any other node is started again."""


@dataclass
class Revival:
    """Starts the parameter server of one run again.

    Attributes:
        run: its name.
        launch: starts a node under the name, address and link that it had; returns its pid.
    """

    run: str
    launch: Callable[[NodeSpec], int | None]
    _from: int = -1  # the version of the checkpoint that it was last started from
    _times: int = 0  # how often it was started from there

    def check(self, how: str, *, saved: int, log: str) -> None:
        """It has died; ``saved`` is the version of its newest checkpoint.

        Raises:
            NodeError: it was started from there often enough; says how it died, with its log.
        """
        if saved != self._from:
            self._from, self._times = saved, 0
        if self._times == MOST_IN_VAIN:
            raise NodeError(
                f"{how}, for the {MOST_IN_VAIN + 1}th time since its checkpoint at update "
                f"{saved:,}: it gets no further{log}",
                hint=f"More memory (`ps.memory`), or checkpoints that are made more often "
                f"(`checkpoint.every`), may help. The whole log: testbed logs {self.run} ps",
            )
        self._times += 1


@dataclass
class Restarts:
    """Starts other nodes of one run again that were killed.

    Attributes:
        run: its name.
        launch: starts a node under the name, address and link that it had; returns its pid.
        clock: monotonic seconds.
    """

    run: str
    launch: Callable[[NodeSpec], int | None]
    clock: Callable[[], float]
    _moments: dict[str, list[float]] = field(default_factory=dict)

    def check(self, node: str, how: str, *, log: str) -> None:
        """A node was killed.

        Raises:
            NodeError: so it was lately, again and again; says how, with its log.
        """
        now = self.clock()
        lately = [at for at in self._moments.get(node, []) if now - at < WITHIN_SECONDS]
        if len(lately) == MOST_RESTARTS:
            times = f"for the {MOST_RESTARTS + 1}th time within {WITHIN_SECONDS:g} s"
            hint = f"The whole log: testbed logs {self.run} {node}"
            raise NodeError(f"{how}, {times}: it is not started again{log}", hint=hint)
        self._moments[node] = [*lately, now]
