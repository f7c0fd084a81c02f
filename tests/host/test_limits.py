"""Limits as stored in the files of control groups version 1 and 2."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host.limits import Limits, Setting, max_processes, nice_of, settings
from testbed.host.users import Users
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import NodeSpec
from testbed.values.units import Size

LIMITS = Limits(cpu_weight=10, cpu=0.5, memory=Size(1e8), pids=77, cpuset=CpuSet("0-1"))
MEMORY = str(int(1e8) // mmap.PAGESIZE * mmap.PAGESIZE)


def test_version_1() -> None:
    assert settings(LIMITS, "cpu", 1) == (
        Setting("cpu.shares", "10240"),
        Setting("cpu.cfs_period_us", "100000"),
        Setting("cpu.cfs_quota_us", "50000"),
    )
    assert settings(LIMITS, "memory", 1) == (
        Setting("memory.limit_in_bytes", MEMORY),
        Setting("memory.memsw.limit_in_bytes", MEMORY, optional=True),
    )
    assert settings(LIMITS, "cpuset", 1) == (Setting("cpuset.cpus", "0-1"),)
    assert settings(LIMITS, "pids", 1) == (Setting("pids.max", "77"),)
    assert settings(LIMITS, "freezer", 1) == ()


def test_version_2() -> None:
    assert settings(LIMITS, "cpu", 2) == (
        Setting("cpu.weight", "1000"),
        Setting("cpu.max", "50000 100000"),
    )
    assert settings(LIMITS, "memory", 2) == (
        Setting("memory.max", MEMORY),
        Setting("memory.swap.max", "0", optional=True),
    )
    assert settings(LIMITS, "cpuset", 2) == (Setting("cpuset.cpus", "0-1"),)


def test_unset_limits_are_not_written() -> None:
    free = Limits()
    assert settings(free, "cpu", 1) == (Setting("cpu.shares", "1024"),)
    assert settings(free, "memory", 1) == settings(free, "cpuset", 2) == ()
    assert free.controllers == ("cpu", "cpuacct", "freezer", "pids")
    assert LIMITS.controllers == ("cpu", "cpuacct", "freezer", "pids", "memory", "cpuset")


def test_a_limit_below_the_kernels_is_an_error() -> None:
    assert settings(Limits(cpu=0.01), "cpu", 1)[-1] == Setting("cpu.cfs_quota_us", "1000")
    with pytest.raises(HostError, match=r"0\.009 CPUs is too small, expected at least 0\.01"):
        settings(Limits(cpu=0.009), "cpu", 2)


def test_a_weight_can_be_set_by_the_nice_value() -> None:
    # 1.25 ** 10 is 9.3, 1.25 ** 7 is 4.8: a tenth and a fifth of the CPU, as close as possible.
    assert [nice_of(weight) for weight in (10, 2, 1)] == [0, 7, 10]


def test_a_node_without_a_memory_limit_gets_half_of_the_hosts_memory() -> None:
    node = NodeSpec("w0", "worker", 0, "", None, None, None, 1, 20001)
    lines = Path("/proc/meminfo").read_text().splitlines()
    total_bytes = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemTotal"))
    assert Limits.of(node).memory == Size(total_bytes // 2)
    assert "memory" in Limits.of(node).controllers
    assert Limits.of(replace(node, memory=Size(1e8))).memory == Size(1e8)


def test_processes_of_a_uid() -> None:
    assert max_processes(Users("root"), nodes=12) == 2048
    assert max_processes(Users("range"), nodes=12) == 512
    # All nodes together: 2 x 512 + 12 x 64.
    assert max_processes(Users("one"), nodes=12) == 1792
