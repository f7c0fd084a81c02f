"""NodeRestarter nodes that were killed, as long as the run makes progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.errors import NodeError
from testbed.values.topology import NodeSpec

MOST_IN_VAIN = 3
"""Maximum number of restarts of a parameter server from the same checkpoint."""

MOST_RESTARTS = 3
WITHIN_SECONDS = 60.0
"""Any other node is restarted at most MOST_RESTARTS times within this window."""


@dataclass
class ServerRestarter:
    """NodeRestarter the parameter server of one run.

    Attributes:
        run: its name.
        launch: starts a node under its previous name, address and link; returns its pid.
    """

    run: str
    launch: Callable[[NodeSpec], int | None]
    _from: int = -1  # the version of the checkpoint that it was last started from
    _times: int = 0  # how often it was started from there

    def check(self, how: str, *, saved: int, log: str) -> None:
        """Count a restart after it died; ``saved`` is the version of its newest checkpoint.

        Raises:
            NodeError: it was restarted from there too often; says how it died, with its log.
        """
        if saved != self._from:
            self._from, self._times = saved, 0
        if self._times == MOST_IN_VAIN:
            raise NodeError(
                f"{how}, for the {MOST_IN_VAIN + 1}th time since its checkpoint at update "
                f"{saved:,}: it makes no progress{log}",
                hint="More memory (`ps.memory`) or more frequent checkpoints "
                f"(`checkpoint.every`) may help. Full log: testbed logs {self.run} ps",
            )
        self._times += 1


@dataclass
class NodeRestarter:
    """NodeRestarter other nodes of one run that were killed.

    Attributes:
        run: its name.
        launch: starts a node under its previous name, address and link; returns its pid.
        clock: monotonic seconds.
    """

    run: str
    launch: Callable[[NodeSpec], int | None]
    clock: Callable[[], float]
    _moments: dict[str, list[float]] = field(default_factory=dict)

    def check(self, node: str, how: str, *, log: str) -> None:
        """Count a restart after a node was killed.

        Raises:
            NodeError: it was killed too often recently; says how, with its log.
        """
        now = self.clock()
        lately = [at for at in self._moments.get(node, []) if now - at < WITHIN_SECONDS]
        if len(lately) == MOST_RESTARTS:
            times = f"for the {MOST_RESTARTS + 1}th time within {WITHIN_SECONDS:g} s"
            hint = f"Full log: testbed logs {self.run} {node}"
            raise NodeError(f"{how}, {times}: it is not restarted{log}", hint=hint)
        self._moments[node] = [*lately, now]
