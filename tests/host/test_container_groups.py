"""Where a container's control groups are, on hosts of either version."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host.group import ContainerGroups

VERSION_1 = """\
24 23 0:20 / {0}/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
25 23 0:21 / {0}/memory rw,nosuid - cgroup cgroup rw,memory
26 23 0:22 / {0}/freezer rw,nosuid - cgroup cgroup rw,freezer
27 23 0:23 / {0}/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd
28 23 0:24 / {0}/unified rw,nosuid - cgroup2 cgroup2 rw
29 23 0:25 / /proc rw - proc proc rw
"""
VERSION_2 = "24 23 0:20 / {0} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "proc/7").mkdir(parents=True)
    return tmp_path


def groups(host: Path, mounts: str, places: str) -> ContainerGroups:
    (host / "mountinfo").write_text(mounts.format(host))
    (host / "proc/7/cgroup").write_text(places)
    return ContainerGroups.of(7, mounts=host / "mountinfo", proc=host / "proc")


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_version_1_has_a_group_in_every_hierarchy(host: Path) -> None:
    found = groups(
        host,
        VERSION_1,
        "12:cpu,cpuacct:/docker/x\n11:memory:/docker/x\n10:freezer:/docker/x\n"
        "9:misc:/\n1:name=systemd:/docker/x\n0::/\n",
    )
    names = ("cpu,cpuacct", "memory", "freezer", "systemd")
    assert found.entrances() == tuple(host / name / "docker/x/cgroup.procs" for name in names)
    put(host / "memory/docker/x", memory__oom_control="oom_kill_disable 0\noom_kill 2\n")
    assert found.oom_kills() == 2
    for state, frozen in (("THAWED\n", False), ("FREEZING\n", True), ("FROZEN\n", True)):
        put(host / "freezer/docker/x", freezer__state=state)
        assert found.frozen() == frozen
    found.thaw()
    assert (host / "freezer/docker/x/freezer.state").read_text() == "THAWED"


def test_version_1_freezes_where_both_versions_are_mounted(host: Path) -> None:
    found = groups(host, VERSION_1, "10:freezer:/docker/x\n0::/docker/x\n")
    put(host / "freezer/docker/x", freezer__state="FROZEN\n")
    put(host / "unified/docker/x", cgroup__freeze="0\n", cgroup__events="populated 1\nfrozen 0\n")
    assert found.frozen()
    found.freeze()
    found.thaw()
    assert (host / "freezer/docker/x/freezer.state").read_text() == "THAWED"
    assert (host / "unified/docker/x/cgroup.freeze").read_text() == "0\n"


def test_version_2_has_one_group(host: Path) -> None:
    found = groups(host, VERSION_2, "0::/system.slice/docker-x.scope\n")
    folder = host / "system.slice/docker-x.scope"
    assert found.entrances() == (folder / "cgroup.procs",)
    assert (found.oom_kills(), found.frozen()) == (0, False)
    put(folder, memory__events="low 0\noom 3\noom_kill 1\n", cgroup__freeze="1\n")
    assert (found.oom_kills(), found.frozen()) == (1, True)
    found.thaw()
    assert (folder / "cgroup.freeze").read_text() == "0"
    put(folder, cgroup__events="populated 1\nfrozen 1\n")
    found.freeze()
    assert (folder / "cgroup.freeze").read_text() == "1"


def test_a_mounted_subtree_is_found_below_its_mount_point(host: Path) -> None:
    mounts = "24 23 0:20 /outer {0}/cg rw - cgroup2 cgroup2 rw\n"
    found = groups(host, mounts, "0::/outer/docker/x\n")
    assert found.entrances() == (host / "cg/docker/x/cgroup.procs",)
    with pytest.raises(HostError, match="the control group /other/x of version 2 is not mounted"):
        groups(host, mounts, "0::/other/x\n")


def test_an_agent_in_another_cgroup_namespace_is_told_what_to_set(host: Path) -> None:
    with pytest.raises(HostError, match=r"namespace of its own.*cgroupns = \"host\""):
        groups(host, VERSION_2, "0::/../libpod-x\n")


def test_an_unreachable_group_is_named(host: Path) -> None:
    with pytest.raises(HostError, match="the control group /docker/x of blkio is not mounted"):
        groups(host, VERSION_1, "3:blkio:/docker/x\n")
