"""The limits of a node, as files of its control groups. Does not access the file system.

In version 1 of control groups, each controller (cpu, cpuset, memory, freezer, pids) has its own
hierarchy; in version 2, all share one. The file and the unit of a limit depend on the version.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from testbed.errors import HostError
from testbed.host.users import Users
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import NodeSpec
from testbed.values.units import Size

Version = Literal[1, 2]

PERIOD_MICROSECONDS = 100_000
MIN_QUOTA_MICROSECONDS = 1_000
SHARES_OF_WEIGHT_ONE = 1024
"""The default of every group in version 1; in version 2 it is 100."""

RUNS_SHARE = 0.5
"""All runs together, relative to one program outside. With equal shares, 1,000 workers that wake
all the time leave a tenth of a CPU to a command: `testbed down` alone then needs five seconds."""

SERVICE_WEIGHT = 10
"""The highest of any node: for what all workers wait for. Without control groups its nice is 0."""

PIDS_LIMIT = 512
"""Threads and processes of one node: gRPC starts about ten, even for a server of 1,000 workers; a
broker's Java about a hundred. Also the most that a fork bomb adds to the host's load."""

MEMORY_SHARE = 2
"""A node without a memory limit may use the host's memory divided by this."""

ROOTS_PIDS_LIMIT = 4 * PIDS_LIMIT
"""Of a uid of root's nodes, which nodes of other runs share; the control groups, which root
always has, have lower limits."""

SHARED_PIDS_LIMIT = 64
"""Per node of a run whose nodes share a uid: they are counted together."""


MIN_FILES = 64
"""Files that every run opens at the same time, including simulated ones."""

FILES_PER_NODE = 3
"""Open files of the agent for a node. Measured: of a larger run 7 nodes start with 64 files, 18
with 96, 29 with 128 and 53 with 200."""

MIN_ADDRESS_BYTES = 6 * 2**30
"""torch alone maps about four gigabytes that it never touches."""


LIMIT_FILES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.weight", "cpu.max"),
    "cpuset": ("cpuset.cpus",),
    "memory": (
        *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        *("memory.max", "memory.swap.max"),
    ),
    "pids": ("pids.max",),
}
"""The files of a control group that limit it, in either version, by controller."""


@dataclass(frozen=True)
class Limits:
    """The resources a node may use.

    Attributes:
        cpu_weight: share of a busy CPU relative to the other nodes.
        cpu: number of CPUs; like ``memory`` and ``cpuset`` not limited if None.
        pids: processes and threads.
    """

    cpu_weight: int = 1
    cpu: float | None = None
    memory: Size | None = None
    pids: int = PIDS_LIMIT
    cpuset: CpuSet | None = None

    @classmethod
    def of(cls, node: NodeSpec) -> Limits:
        """Return the limits of a node of the plan; its memory defaults to this host's share."""
        memory = max_memory() if node.memory is None else node.memory
        return cls(cpu_weight=node.cpu_weight, cpu=node.cpu, memory=memory, cpuset=node.cpuset)

    @property
    def controllers(self) -> tuple[str, ...]:
        """The controllers that these limits need, and those that a node without limits needs."""
        asked = {"memory": self.memory, "cpuset": self.cpuset}
        wanted = (name for name, limit in asked.items() if limit is not None)
        return ("cpu", "cpuacct", "freezer", "pids", *wanted)


@dataclass(frozen=True)
class Setting:
    """The content of a file of a control group; skipped if ``optional`` and missing."""

    file: str
    value: str
    optional: bool = False


def settings(limits: Limits, controller: str, version: Version) -> tuple[Setting, ...]:
    """Return the contents of one controller's files, in the order in which they are written.

    Raises:
        HostError: no kernel can enforce the limit.
    """
    match controller:
        case "cpu":
            return (share(limits.cpu_weight, version), *quota(limits.cpu, version))
        case "cpuset" if limits.cpuset is not None:
            return (Setting("cpuset.cpus", limits.cpuset),)
        case "memory":
            return _memory(limits.memory, version)
        case "pids":
            return (Setting("pids.max", str(limits.pids)),)
    return ()


def max_memory() -> Size:
    """Return the memory of a node without a limit: no node alone fills this host."""
    return Size(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY_SHARE)


def require_files(nodes: int, *, most: int | None = None) -> int:
    """Return how many files a native run may open: the hard limit, which the agent sets.

    Args:
        nodes: of the run.
        most: the limit; None for that of this process.

    Raises:
        HostError: the limit is too low.
    """
    if most is None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = MIN_FILES + FILES_PER_NODE * nodes
    if most != resource.RLIM_INFINITY and most < wanted:
        raise HostError(
            f"`ulimit -Hn` is {most:,}, but a run of {nodes:,} nodes needs {wanted:,} open files.",
            hint=f"Raise it, as root or in /etc/security/limits.conf: ulimit -n {wanted}",
        )
    return most


def max_processes(users: Users, *, nodes: int) -> int:
    """Return the maximum number of processes and threads of one uid of a run of that many nodes.

    This limit also applies without control groups. The kernel counts per user namespace.
    """
    match users.kind:
        case "root":
            return ROOTS_PIDS_LIMIT
        case "range":
            return PIDS_LIMIT
        case "one":
            return 2 * PIDS_LIMIT + SHARED_PIDS_LIMIT * nodes


def nice_of(weight: int) -> int:
    """Return the nice value for this weight, for use without control groups.

    The kernel gives a process 1.25 times the CPU of one with a nice value one higher.
    """
    return max(0, round(math.log(SERVICE_WEIGHT / weight, 1.25)))


def share(weight: float, version: Version) -> Setting:
    """Return the content of the file with a group's share of a busy CPU; a new group has 1."""
    if version == 1:
        return Setting("cpu.shares", str(round(SHARES_OF_WEIGHT_ONE * weight)))
    return Setting("cpu.weight", str(round(100 * weight)))


def quota(cpu: float | None, version: Version) -> tuple[Setting, ...]:
    """Return the contents of the files that limit the number of CPUs; none for None.

    Raises:
        HostError: the limit is too small for any kernel.
    """
    if cpu is None:
        return ()
    micros = round(cpu * PERIOD_MICROSECONDS)
    if micros < MIN_QUOTA_MICROSECONDS:
        least = MIN_QUOTA_MICROSECONDS / PERIOD_MICROSECONDS
        raise HostError(f"a limit of {cpu:g} CPUs is too small, expected at least {least:g}.")
    if version == 1:
        return (
            Setting("cpu.cfs_period_us", str(PERIOD_MICROSECONDS)),
            Setting("cpu.cfs_quota_us", str(micros)),
        )
    return (Setting("cpu.max", f"{micros} {PERIOD_MICROSECONDS}"),)


def _memory(memory: Size | None, version: Version) -> tuple[Setting, ...]:
    if memory is None:
        return ()
    page = os.sysconf("SC_PAGE_SIZE")
    limit = str(int(memory) // page * page)
    # Limit swap as well, or a node would only become slow where it should run out of memory. The
    # files are missing if the kernel does not count swap; without swap that makes no difference.
    if version == 1:
        return (
            Setting("memory.limit_in_bytes", limit),
            Setting("memory.memsw.limit_in_bytes", limit, optional=True),
        )
    return (Setting("memory.max", limit), Setting("memory.swap.max", "0", optional=True))
