"""Records of a run's nodes, for processes outside, where no control group names the nodes.

The agent writes a file for every node that it launches: its role's pid in the run's pid namespace,
and its start time. From outside, a role is a child of the agent's first process and has
that pid one namespace further in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import NodeError
from testbed.host.process import Process, every_pid, namespace_pids, parent_of
from testbed.host.stopping import continue_all, is_stopped, stop_all
from testbed.telemetry.files import write_atomically
from testbed.telemetry.folder import RunFolder

NODES = "nodes"


@dataclass(frozen=True)
class NodeRecords:
    """Records of the nodes that a run has launched, in a folder of its ``control/``."""

    folder: RunFolder

    def create(self) -> None:
        """Create the folder for the records."""
        self._place.mkdir(exist_ok=True)

    def add(self, node: str, role: Process) -> None:
        """Record a node until the host goes down; ``role`` as its pid namespace has it."""
        write_atomically(self._place / node, f"{role}\n", lasting=False)

    def remove(self, node: str) -> None:
        """Remove the record of a node, if it exists."""
        (self._place / node).unlink(missing_ok=True)

    def nodes(self) -> list[str]:
        """Return the names of all launched nodes."""
        return sorted(path.name for path in self._records())

    def clear(self) -> None:
        """Remove all records."""
        for path in self._records():
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it never existed, or the run folder was deleted
            self._place.rmdir()

    def of(self, agent: Process | None) -> RecordedNodes:
        """Return the current nodes of the run of this agent; None if the agent has ended."""
        if agent is None or not agent.alive():
            return RecordedNodes(self.folder.name, dict.fromkeys(self.nodes()))
        roles = dict(_children(agent.pid))
        recorded = {path.name: Process.parse(path.read_text()) for path in self._records()}
        return RecordedNodes(
            self.folder.name,
            {name: None if role is None else roles.get(role) for name, role in recorded.items()},
        )

    @property
    def _place(self) -> Path:
        return self.folder.control / NODES

    def _records(self) -> list[Path]:
        if not self._place.is_dir():
            return []
        return sorted(path for path in self._place.iterdir() if not path.name.startswith("."))


@dataclass(frozen=True)
class RecordedNodes:
    """A run's nodes as the host has them now: the pids of their roles; None if ended.

    It has the interface of RunGroups, based on processes instead of control groups.
    """

    run: str
    pids: dict[str, int | None]

    def nodes(self) -> list[str]:
        """Return the names of all launched nodes."""
        return sorted(self.pids)

    def first(self, node: str) -> int | None:
        return self.pids.get(node)

    def is_frozen(self, node: str) -> bool:
        pid = self.pids.get(node)
        return pid is not None and is_stopped(pid)

    def freeze(self, node: str) -> None:
        stop_all(self._running(node))

    def thaw(self, node: str) -> None:
        continue_all(self._running(node))

    def entrances(self, node: str) -> list[Path]:
        """Return an empty list: there is no control group to enter."""
        return []

    def _running(self, node: str) -> int:
        pid = self.pids.get(node)
        if pid is None:
            raise NodeError(
                f"{self.run} has no node {node} that runs.",
                hint=f"`testbed ps {self.run}` lists its nodes.",
            )
        return pid


def _children(agent: int) -> Iterator[tuple[Process, int]]:
    """Yield every role below the agent: as the agent's pid namespace has it, and its pid here."""
    for pid in every_pid():
        with suppress(OSError):  # it has just ended
            if parent_of(pid) != agent:
                continue
            *_, inside, innermost = namespace_pids(pid)
            if innermost == 1:
                yield Process(inside, Process.of(pid).started), pid
