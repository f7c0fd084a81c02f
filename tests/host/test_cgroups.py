"""Control groups of a host and of a run, in folders that imitate them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.host.cgroups import RunGroups, find_runs
from testbed.host.hierarchies import (
    OUTSIDE,
    Hierarchy,
    find_delegated,
    find_hierarchies,
    find_mounted,
)
from testbed.host.limits import Limits
from testbed.host.process import name_of
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import NodeSpec
from testbed.values.units import Size


def mounts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text("".join(f"30 20 0:1 / {line}\n" for line in lines))
    return path


def test_version_1_has_a_hierarchy_per_controller(tmp_path: Path) -> None:
    found = find_hierarchies(
        mounts(
            tmp_path,
            "/proc rw - proc proc rw",
            "/sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755",
            "/sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
            "/sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
            "/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            "/sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer",
            "/sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
            "/sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd",
        )
    )
    assert {(tree.root.name, tree.version, tuple(sorted(tree.controllers))) for tree in found} == {
        ("cpu,cpuacct", 1, ("cpu", "cpuacct")),
        ("cpuset", 1, ("cpuset",)),
        ("memory", 1, ("memory",)),
        ("freezer", 1, ("freezer",)),
        ("pids", 1, ("pids",)),
    }


def test_version_2_has_one_and_a_freezer_always(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tree,) = find_hierarchies(mounts(tmp_path, f"{tmp_path} rw - cgroup2 none rw,nsdelegate"))
    assert tree == Hierarchy(tmp_path, 2, frozenset(("cpu", "cpuset", "memory", "pids", "freezer")))


def test_a_controller_is_used_where_version_1_has_it(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    found = find_hierarchies(
        mounts(
            tmp_path,
            f"{tmp_path} rw - cgroup2 none rw",
            "/sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer",
        )
    )
    assert {(tree.version, tree.controllers) for tree in found} == {
        (1, frozenset(("freezer",))),
        (2, frozenset(("cpu", "memory", "pids"))),
    }


def test_a_missing_controller_is_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    with pytest.raises(HostError, match="no control groups for memory, pids"):
        find_hierarchies(mounts(tmp_path, f"{tmp_path} rw - cgroup2 none rw"))


def version_2(tmp_path: Path) -> RunGroups:
    (tmp_path / "cgroup.subtree_control").touch()
    names = frozenset(("cpu", "memory", "pids", "freezer"))
    return RunGroups("run", (Hierarchy(tmp_path, 2, names),))


def test_a_nodes_limits_are_written_and_its_group_delegated(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.create()
    groups.add("w0", Limits(cpu_weight=2, cpu=1.5, memory=Size.parse("1MiB")))
    folder = tmp_path / "testbed/run"
    assert (folder / "w0/cpu.weight").read_text() == "200"
    assert (folder / "w0/cpu.max").read_text() == "150000 100000"
    assert (folder / "w0/memory.max").read_text() == "1048576"
    assert not (folder / "w0/memory.swap.max").exists()
    for level in (tmp_path, folder.parent, folder):
        assert (level / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert groups.entrances("w0") == [folder / "w0/cgroup.procs"]
    assert groups.entrances("w1") == []
    assert find_runs(groups.hierarchies) == ["run"]


def test_a_limit_that_is_not_applied_is_an_error(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.create()
    folder = tmp_path / "testbed/run/w0"
    folder.mkdir()
    (folder / "cpu.weight").symlink_to("/dev/null")  # accepts every write and stores nothing
    with pytest.raises(HostError, match=r"w0: .*cpu.weight is  after 100 was written"):
        groups.add("w0", Limits())


def test_the_group_of_a_run_is_not_shared(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.create()
    with pytest.raises(HostError, match=r"testbed/run exists: .*`testbed down run`"):
        groups.create()


def test_freezing_waits_for_the_kernel(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.create()
    groups.add("w0", Limits())
    folder = tmp_path / "testbed/run/w0"
    (folder / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    groups.node("w0").freeze()
    assert (folder / "cgroup.freeze").read_text() == "1"
    assert groups.node("w0").frozen()
    groups.thaw_all()
    assert not groups.node("w0").frozen()
    with pytest.raises(FileNotFoundError):
        groups.node("w1").freeze()


def test_removal_names_the_remaining_processes(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.create()
    folder = tmp_path / "testbed/run/w0"
    folder.mkdir()
    with subprocess.Popen(["true"]) as ended:
        pids = [os.getpid(), ended.pid]
    (folder / "cgroup.procs").write_text("{}\n{}\n".format(*pids))  # one with files stays
    assert groups.processes("w0") == pids
    assert groups.members() == {*pids}
    named = rf"{pids[0]} \({re.escape(name_of(pids[0]))}\), {pids[1]} \(ended\)"
    with pytest.raises(HostError, match=rf"w0 cannot be removed: .* \(processes: {named}\)"):
        groups.remove(deadline=time.monotonic())


def test_groups_below_a_node_are_removed_with_it(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    for made in ("w0/user/run.scope", "w0/init", "w1"):
        (tmp_path / "testbed/run" / made).mkdir(parents=True)
    groups.remove_node("w0", deadline=time.monotonic())
    assert [group.name for group in (tmp_path / "testbed/run").iterdir()] == ["w1"]
    groups.remove(deadline=time.monotonic())
    assert not (tmp_path / "testbed").exists()


def test_removing_a_missing_group_is_idempotent(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.remove(deadline=time.monotonic())
    groups.remove_node("w0", deadline=time.monotonic())
    assert not groups.node("w0").frozen()


@pytest.mark.parametrize("inside", ["user/run.scope", f"user/run.scope/{OUTSIDE}"])
def test_a_delegated_group_is_found_from_the_group_of_the_process(
    tmp_path: Path, inside: str
) -> None:
    part = tmp_path / "tree/user/run.scope"
    (part / OUTSIDE).mkdir(parents=True)
    (part / "cgroup.controllers").write_text("cpu pids\n")
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (part / name).touch()
    own = tmp_path / "own"
    own.write_text(f"4:memory:/other\n0::/{inside}\n")
    mounted = mounts(tmp_path, f"{tmp_path}/tree rw - cgroup2 none rw")
    names = frozenset(("cpu", "pids", "freezer"))
    assert find_delegated(mounted, own) == (Hierarchy(part, 2, names),)


def test_a_group_of_another_user_is_not_delegated(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    own = tmp_path / "own"
    mounted = mounts(tmp_path, f"{tmp_path}/tree rw - cgroup2 none rw")
    for lines in ("0::/\n", "0::/elsewhere\n", "1:cpu:/\n", ""):
        own.write_text(lines)
        assert find_delegated(mounted, own) == ()
    assert find_delegated(mounts(tmp_path, "/proc rw - proc proc rw"), own) == ()


def test_limits_that_cannot_be_enforced_are_refused_with_a_hint() -> None:
    def node(**limits: Any) -> NodeSpec:
        wanted = {"cpu": None, "memory": None, **limits}
        return NodeSpec("w3", "worker", 3, "slow", None, cpu_weight=1, uid=0, **wanted)

    without = RunGroups("run", ())
    without.check([node()])
    cure = "as root or, .* `systemd-run --user --scope -p Delegate=yes`"
    with pytest.raises(HostError, match=rf"w3 \(class slow\): cpu 0.5 cannot be enforced.*{cure}"):
        without.check([node(cpu=0.5)])
    some = RunGroups("run", (Hierarchy(Path("/"), 2, frozenset(("cpu", "freezer"))),))
    some.check([node(cpu=0.5)])
    with pytest.raises(HostError, match="memory 64MiB cannot be enforced"):
        some.check([node(memory=Size.parse("64MiB"))])


def test_a_cpuset_is_refused_without_its_controller_or_cpu(tmp_path: Path) -> None:
    node = NodeSpec("w3", "worker", 3, "slow", None, None, None, 1, 0, CpuSet("0,3-4"))
    with pytest.raises(HostError, match=r"w3 \(class slow\): cpuset 0,3-4 cannot be .* as root or"):
        RunGroups("run", ()).check([node])
    without = RunGroups("run", (Hierarchy(tmp_path, 2, frozenset(("cpu", "freezer"))),))
    with pytest.raises(
        HostError, match=r"do not have the controller cpuset\. .* Delegate=cpu cpuset"
    ):
        without.check([node])
    for version, file in ((1, "cpuset.effective_cpus"), (2, "cpuset.cpus.effective")):
        some = RunGroups("run", (Hierarchy(tmp_path, version, frozenset(("cpuset",))),))
        with pytest.raises(HostError, match="cannot be read"):
            some.check([node])
        (tmp_path / file).write_text("0-3\n")
        with pytest.raises(HostError, match=r"this host does not have \(4\), expected CPUs of 0-3"):
            some.check([node])
        (tmp_path / file).write_text("0-7\n")
        some.check([node])


def test_a_cpuset_of_version_1_is_filled_along_its_path(tmp_path: Path) -> None:
    (tmp_path / "cpuset.mems").write_text("0\n")
    (tmp_path / "cpuset.cpus").write_text("0-3\n")
    groups = RunGroups("run", (Hierarchy(tmp_path, 1, frozenset(("cpuset",))),))
    groups.create()
    groups.add("w0", Limits(cpuset=CpuSet("1-2")))
    groups.add("w1", Limits())
    top = tmp_path / "testbed/run"
    for folder, cpus in ((top.parent, "0-3\n"), (top, "0-3\n"), (top / "w0", "1-2")):
        assert (folder / "cpuset.mems").read_text() == "0\n"
        assert (folder / "cpuset.cpus").read_text() == cpus
    assert not (top / "w1").exists()


def test_a_cpuset_of_version_2_is_written_alone(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").touch()
    groups = RunGroups("run", (Hierarchy(tmp_path, 2, frozenset(("cpuset",))),))
    groups.create()
    groups.add("w0", Limits(cpuset=CpuSet("1-2")))
    top = tmp_path / "testbed/run"
    assert (top / "cgroup.subtree_control").read_text() == "+cpuset"
    assert [path.name for path in (top / "w0").iterdir()] == ["cpuset.cpus"]
    assert (top / "w0/cpuset.cpus").read_text() == "1-2"


@pytest.mark.root
def test_a_run_that_ends_leaves_the_parent_group_to_one_that_starts() -> None:
    mounted = next((one.point for one in find_mounted() if one.version == 2), None)
    if mounted is None:
        pytest.skip("needs control groups of version 2")
    part = mounted / f"testbed-test-{os.getpid()}"
    outside, entrance = part / OUTSIDE, part / "cgroup.procs"
    ends, starts = (
        RunGroups(name, (Hierarchy(part, 2, frozenset(("freezer",))),)) for name in "ab"
    )
    outside.mkdir(parents=True)  # the first run has moved the processes
    with subprocess.Popen(["sleep", "60"]) as shell:
        try:
            (outside / "cgroup.procs").write_text(str(shell.pid))
            with starts.empty_parent_group():
                ends.restore_parent_group()
                assert entrance.read_text() == ""
            ends.restore_parent_group()
            assert entrance.read_text() == f"{shell.pid}\n"
        finally:
            shell.kill()
            shell.wait()
            for folder in (outside, part):
                with suppress(FileNotFoundError):
                    folder.rmdir()


@pytest.mark.root
def test_a_real_time_scheduler_is_reported_as_the_reason(tmp_path: Path) -> None:
    (tree,) = (one for one in find_hierarchies() if "cpu" in one.controllers)
    if not (tree.root / "cpu.rt_runtime_us").exists():
        pytest.skip("groups of this kernel have no budgets for real time")
    group = tree.root / f"testbed-test-{os.getpid()}"
    group.mkdir()
    try:
        done = subprocess.run(
            ["chrt", "--rr", "1", sys.executable, "-c", ENTER, group / "cgroup.procs"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        group.rmdir()
    assert f"{group} accepts no real-time process" in done.stderr
    assert "started under SCHED_RR" in done.stderr


ENTER = """
import pathlib, sys
from testbed.host.group import enter
enter(pathlib.Path(sys.argv[1]))
"""
