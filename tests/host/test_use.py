"""Resource usage of a container, from control groups: version 1, version 2, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.host.group import ContainerGroups, Group
from testbed.host.limits import Version
from testbed.values.usage import ContainerUse

FILES: dict[Version, dict[str, str]] = {
    1: {"cpuacct.usage": "2500000000\n", "memory.usage_in_bytes": "8192\n"},
    2: {"cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "memory.current": "8192\n"},
}


def in_group(folder: Path, version: Version) -> ContainerGroups:
    return ContainerGroups(((Group(folder, version), frozenset(("cpu", "cpuacct", "memory"))),))


@pytest.mark.parametrize("version", FILES)
def test_cpu_time_and_memory(tmp_path: Path, version: Version) -> None:
    for name, text in FILES[version].items():
        (tmp_path / name).write_text(text)
    assert in_group(tmp_path, version).use() == ContainerUse(2.5, 8192)


LIMITS: dict[Version, dict[str, str]] = {
    1: {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "8192"},
    2: {"cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max"},
}


@pytest.mark.parametrize("version", LIMITS)
def test_the_limits_of_a_container(tmp_path: Path, version: Version) -> None:
    for name, text in LIMITS[version].items():
        (tmp_path / name).write_text(f"{text}\n")
    assert in_group(tmp_path, version).limits() == LIMITS[version]
    assert in_group(tmp_path / "gone", version).limits() == {}


@pytest.mark.parametrize("version", FILES)
def test_a_group_that_does_not_count(tmp_path: Path, version: Version) -> None:
    assert in_group(tmp_path / "gone", version).use() == ContainerUse(None, None)
    assert ContainerGroups().use() == ContainerUse(None, None)
