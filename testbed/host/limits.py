"""What a node may use, as the files of its control groups say it. Pure.

Version 1 keeps each controller (cpu, cpuset, memory, freezer, pids) in a hierarchy of its own,
version 2 has one hierarchy for all; the same limit has another file and another scale in each.
"""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass
from typing import Literal

from testbed.errors import HostError
from testbed.host.users import Users
from testbed.topology import NodeSpec
from testbed.values.cpu_sets import CpuSet
from testbed.values.units import Size

Version = Literal[1, 2]

PERIOD_MICROSECONDS = 100_000
MIN_QUOTA_MICROSECONDS = 1_000
SHARES_OF_WEIGHT_ONE = 1024
"""What every group has by default in version 1; in version 2 it is 100."""

SERVICE_WEIGHT = 10
"""The most that any node has: what all workers wait for. Without control groups it is not nice."""

PIDS_LIMIT = 512
"""Threads and processes of one node: gRPC starts some ten, a server of 1,000 workers no more; a
broker's Java some hundred. As many as one that forks for ever adds to the host's load."""

MEMORY_SHARE = 2
"""A node without a limit of memory may have one part in so many of the host's."""

ROOTS_PIDS_LIMIT = 4 * PIDS_LIMIT
"""Of one uid of root's nodes, which those of other runs have too; the control groups, which root
always has, are closer."""

SHARED_PIDS_LIMIT = 64
"""For every node of a run whose nodes all have one uid: they are counted together."""


LEAST_FILES = 64
"""Files that a run opens at once, simulated as well."""

FILES_PER_NODE = 3
"""That the agent has open for a node. Measured: of a larger run 7 nodes come up with 64 files, 18
with 96, 29 with 128 and 53 with 200."""

LEAST_ADDRESS_BYTES = 6 * 2**30
"""torch alone maps some four gigabytes that it never touches."""


@dataclass(frozen=True)
class Limits:
    """What a node may use.

    Attributes:
        cpu_weight: share of a busy CPU relative to the other nodes.
        cpu: how many CPUs; like ``memory`` and ``cpuset`` not limited if None.
        pids: processes and threads.
    """

    cpu_weight: int = 1
    cpu: float | None = None
    memory: Size | None = None
    pids: int = PIDS_LIMIT
    cpuset: CpuSet | None = None

    @classmethod
    def of(cls, node: NodeSpec) -> Limits:
        """The limits of a node of the plan, where it says nothing of memory those of this host."""
        memory = most_memory() if node.memory is None else node.memory
        return cls(cpu_weight=node.cpu_weight, cpu=node.cpu, memory=memory, cpuset=node.cpuset)

    @property
    def controllers(self) -> tuple[str, ...]:
        """The controllers that these limits need; freezer and pids are always wanted."""
        asked = {"memory": self.memory, "cpuset": self.cpuset}
        wanted = (name for name, limit in asked.items() if limit is not None)
        return ("cpu", "freezer", "pids", *wanted)


@dataclass(frozen=True)
class Setting:
    """What is to stand in a file of a control group; left out if ``optional`` and not there."""

    file: str
    value: str
    optional: bool = False


def settings(limits: Limits, controller: str, version: Version) -> tuple[Setting, ...]:
    """What the files of one controller must say, in the order in which they are written.

    Raises:
        HostError: no kernel can hold the limit.
    """
    match controller:
        case "cpu":
            return (_weight(limits.cpu_weight, version), *_quota(limits.cpu, version))
        case "cpuset" if limits.cpuset is not None:
            return (Setting("cpuset.cpus", limits.cpuset),)
        case "memory":
            return _memory(limits.memory, version)
        case "pids":
            return (Setting("pids.max", str(limits.pids)),)
    return ()


def most_memory() -> Size:
    """What a node may have that has no limit of its own: no node alone fills this host."""
    return Size(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY_SHARE)


def require_files(nodes: int, *, most: int | None = None) -> int:
    """How many files a native run may open: the hard limit, to which the agent raises its own.

    Args:
        nodes: of the run.
        most: the limit; None for that of this process.

    Raises:
        HostError: they are too few.
    """
    if most is None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = LEAST_FILES + FILES_PER_NODE * nodes
    if most != resource.RLIM_INFINITY and most < wanted:
        raise HostError(
            f"`ulimit -Hn` is {most:,}, and a run of {nodes:,} nodes needs {wanted:,} open files.",
            hint=f"Raise it, as root or in /etc/security/limits.conf: ulimit -n {wanted}",
        )
    return most


def most_processes(users: Users, *, nodes: int) -> int:
    """Processes and threads that one uid of a run of so many nodes may have.

    This limit holds without control groups too. The kernel counts per user namespace.
    """
    match users.kind:
        case "root":
            return ROOTS_PIDS_LIMIT
        case "range":
            return PIDS_LIMIT
        case "one":
            return 2 * PIDS_LIMIT + SHARED_PIDS_LIMIT * nodes


def nice_of(weight: int) -> int:
    """How nice a process must be for this weight, where no control group can give it.

    The kernel gives a process 1.25 times the CPU of one that is one step nicer.
    """
    return max(0, round(math.log(SERVICE_WEIGHT / weight, 1.25)))


def _weight(weight: int, version: Version) -> Setting:
    if version == 1:
        return Setting("cpu.shares", str(SHARES_OF_WEIGHT_ONE * weight))
    return Setting("cpu.weight", str(100 * weight))


def _quota(cpu: float | None, version: Version) -> tuple[Setting, ...]:
    if cpu is None:
        return ()
    quota = round(cpu * PERIOD_MICROSECONDS)
    if quota < MIN_QUOTA_MICROSECONDS:
        least = MIN_QUOTA_MICROSECONDS / PERIOD_MICROSECONDS
        raise HostError(f"a limit of {cpu:g} CPUs is below the {least:g} that the kernel can hold.")
    if version == 1:
        return (
            Setting("cpu.cfs_period_us", str(PERIOD_MICROSECONDS)),
            Setting("cpu.cfs_quota_us", str(quota)),
        )
    return (Setting("cpu.max", f"{quota} {PERIOD_MICROSECONDS}"),)


def _memory(memory: Size | None, version: Version) -> tuple[Setting, ...]:
    if memory is None:
        return ()
    page = os.sysconf("SC_PAGE_SIZE")
    limit = str(int(memory) // page * page)
    # Swap counts as well, or a node would only become slow where it should run out of memory. The
    # files are missing where the kernel does not count swap; without swap that changes nothing.
    if version == 1:
        return (
            Setting("memory.limit_in_bytes", limit),
            Setting("memory.memsw.limit_in_bytes", limit, optional=True),
        )
    return (Setting("memory.max", limit), Setting("memory.swap.max", "0", optional=True))
