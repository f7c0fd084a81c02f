"""The requests to the agent and its replies: frozen data, sent as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from testbed.errors import NodeError
from testbed.network.interfaces import Neighbour
from testbed.values.topology import LaunchMode, NetworkSpec, NodeSpec

MOUNT_ROOT = Path("/run/testbed")

HOSTS = Path("/etc/hosts")
"""The only file outside MOUNT_ROOT that a mount may replace."""


@dataclass(frozen=True)
class Mount:
    """A host path shown in a node as ``target``: below /run/testbed, /etc/hosts, or ``source``."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class LaunchSpec:
    """One node to launch.

    Attributes:
        entry: what it executes, as ``module:function``; empty if the node has a command.
        arguments: what the function is called with.
        log: file that its output is appended to.
        mounts: host paths it sees, in addition to a read-only root; no target is inside another.
        mode: forked from the template, or a fresh interpreter.
        neighbours: the nodes it will talk to.
        environment: added to the agent's own.
        home: the folder in the node in which its command starts, and which it may fill; None for /.
        container: pid of the first process of the role's container, in the agent's pid namespace;
            None if the agent creates the container.
        held: whether its role waits for admission before it calls others; see ``admission.py``.
    """

    node: NodeSpec
    network: NetworkSpec
    entry: str
    arguments: Mapping[str, str]
    log: Path
    mounts: tuple[Mount, ...] = ()
    mode: LaunchMode = "warm"
    neighbours: tuple[Neighbour, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None
    container: int | None = None
    held: bool = False

    def check(self) -> None:
        """Reject mounts that would show or change more of the host than requested.

        Raises:
            NodeError: a target is not below /run/testbed, or is inside another target. Exempt are
                folders that are shown read-only at their own path.
        """
        targets = [
            mount.target
            for mount in self.mounts
            if mount.writable or mount.target not in (HOSTS, mount.source)
        ]
        for target in targets:
            above = {*target.parents}
            if ".." in target.parts or MOUNT_ROOT not in above:
                raise NodeError(
                    f"{self.node.name}: mount at {target}, expected below {MOUNT_ROOT}."
                )
            if not above.isdisjoint(targets) or targets.count(target) > 1:
                raise NodeError(f"{self.node.name}: mount at {target} is inside another mount.")


@dataclass(frozen=True)
class Exit:
    """A node that has ended.

    Attributes:
        status: what its role returned; negative for the signal that ended it.
        out_of_memory: whether the kernel OOM-killed in it because its memory limit was reached.
        container_ended: whether a container that the agent did not create ended first, and so
            ended its role: it was stopped, killed or removed from outside.
        lost: why its host is lost, so that nothing is known of the node any more; usually empty.
    """

    node: str
    status: int
    out_of_memory: bool = False
    container_ended: bool = False
    lost: str = ""


@dataclass(frozen=True)
class NodeState:
    """A running node.

    Attributes:
        pid: of its role; for a client in its own pid namespace, None if the role has just ended.
        frozen: whether it is frozen, or stopped by a signal, by any process.
        entrances: files into which a process writes 0 to join its control groups.
    """

    node: str
    pid: int | None
    frozen: bool
    entrances: tuple[Path, ...] = ()

    @property
    def condition(self) -> str:
        """The state as ``testbed ps`` shows it."""
        return "frozen" if self.frozen else "running"


NODES = TypeAdapter(list[NodeState])
LAUNCH = TypeAdapter(LaunchSpec)
EXITS = TypeAdapter(list[Exit])
