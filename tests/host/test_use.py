"""Resource usage of a container, from control groups: version 1, version 2, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.host.group import Group, usage_of
from testbed.host.limits import Version
from testbed.values.usage import ContainerUse

FILES: dict[Version, dict[str, str]] = {
    1: {"cpuacct.usage": "2500000000\n", "memory.usage_in_bytes": "8192\n"},
    2: {"cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "memory.current": "8192\n"},
}


@pytest.mark.parametrize("version", FILES)
def test_cpu_time_and_memory(tmp_path: Path, version: Version) -> None:
    for name, text in FILES[version].items():
        (tmp_path / name).write_text(text)
    group = Group(tmp_path, version)
    assert usage_of([group], [group]) == ContainerUse(2.5, 8192)


@pytest.mark.parametrize("version", FILES)
def test_a_group_without_counters(tmp_path: Path, version: Version) -> None:
    group = Group(tmp_path / "gone", version)
    assert usage_of([group], [group]) == usage_of([], []) == ContainerUse(None, None)
