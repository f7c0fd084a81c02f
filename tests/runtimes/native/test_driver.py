"""What a native node is, sees and may do, from inside and from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.errors import HostError, NodeError
from testbed.host.hierarchies import usable
from testbed.host.users import find_ranges
from testbed.network.interfaces import Neighbour
from testbed.runtimes.agent.launch import Exit, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.native.driver import NativeDriver
from testbed.runtimes.native.lifeline import read_record
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import LinkSpec
from testbed.values.units import Size

pytestmark = pytest.mark.namespaces
MODES = pytest.mark.parametrize("mode", ["warm", "cold"])
EXPECTED: Mapping[int, Mapping[tuple[str, str], str]] = {
    1: {
        ("cpu", "cpu.shares"): "3072",
        ("cpu", "cpu.cfs_quota_us"): "25000",
        ("memory", "memory.limit_in_bytes"): str(64 * 2**20),
        ("pids", "pids.max"): "512",
        ("freezer", "freezer.state"): "THAWED",
    },
    2: {
        ("cpu", "cpu.weight"): "300",
        ("cpu", "cpu.max"): "25000 100000",
        ("memory", "memory.max"): str(64 * 2**20),
        ("pids", "pids.max"): "512",
        ("freezer", "cgroup.freeze"): "0",
    },
}


@pytest.fixture(scope="module")
def driver() -> NativeDriver:
    return NativeDriver()


def test_a_node_is_alone_in_its_own_namespaces(seen: dict[str, Any], users: Any) -> None:
    assert seen["pid"] == 1
    assert seen["processes"] == [1]
    assert seen["interfaces"] == ["lo"]
    for kind, inode in seen["namespaces"].items():
        here = os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115 - not a path
        assert (inode == here) == (kind == "user" and not users.namespace), kind


def test_the_root_of_a_node_is_read_only(seen: dict[str, Any]) -> None:
    assert set(seen["writable"]) == {"/tmp", "/dev/shm"}
    last = {line.split()[1]: line.split()[3].split(",") for line in seen["mounts"]}
    writable = {point for point, options in last.items() if "ro" not in options}
    assert writable == {"/tmp", "/dev/shm", "/proc"}


def needed_below(top: Path) -> list[str]:
    """The listing of a folder that nodes have a private copy of: only the interpreter's part."""
    needed = (sys.prefix, sys.base_prefix, testbed.__file__, *sys.path)
    below = [Path(path) for path in needed if top in Path(path).parents]
    return sorted({path.relative_to(top).parts[0] for path in below})


@MODES
def test_a_node_sees_only_its_mounts_and_nothing_of_other_nodes(
    live: Any, users: Any, tmp_path: Path, mode: str
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder in (shared, own):
        folder.mkdir()
        folder.chmod(0o777)
    (shared / "data").write_text("12345")
    live.folder.log("w20").write_text("of another node")
    place = Path("/run/testbed")
    paths = [
        *(place, place / "scenario.yaml", place / "shared", place / "shared/data", place / "own"),
        *(live.folder.path, live.folder.log("w20"), Path("/tmp"), tmp_path),
    ]
    name = {"warm": "w21", "cold": "w22"}[mode]
    status, output = live.run(
        name,
        "entries:try_files",
        mode=mode,
        arguments={"paths": ":".join(map(str, paths))},
        mounts=(
            Mount(live.folder.scenario, place / "scenario.yaml"),
            Mount(shared, place / "shared"),
            Mount(own, place / "own", writable=True),
        ),
    )
    assert status == 0, output
    found = json.loads(output)
    assert found == {
        "/run/testbed": "lists ['own', 'scenario.yaml', 'shared'] OSError",
        "/run/testbed/scenario.yaml": "reads 11 OSError",
        "/run/testbed/shared": "lists ['data'] OSError",
        "/run/testbed/shared/data": "reads 5 OSError",
        "/run/testbed/own": "lists [] writes",
        str(live.folder.path): "FileNotFoundError",
        str(live.folder.log("w20")): "FileNotFoundError",
        "/tmp": f"lists {needed_below(Path('/tmp'))} writes",
        str(tmp_path): "FileNotFoundError",
    }
    uid = 21000 + int(name[1:])
    if users.namespace:
        ranges = find_ranges()
        uid = os.geteuid() if ranges is None else ranges[0].start + uid - 1
    assert (own / "new").stat().st_uid == uid
    (own / "new").unlink()  # the folder's owner can remove a node's files


def test_the_number_of_scratch_files_is_limited(live: Any) -> None:
    status, output = live.run("w25", "entries:fill_scratch")
    made, error = output.split(maxsplit=1)
    assert (status, error.strip()) == (0, "No space left on device")
    assert 16_000 < int(made) < 16 * 1024  # the folder and the interpreter's files count too


@MODES
def test_a_node_sees_no_private_files_of_the_user(live: Any, users: Any, mode: str) -> None:
    home = Path.home()
    secret = home / f"secret-{os.getpid()}-{mode}"
    secret.write_text("of the user")
    secret.chmod(0o600)
    try:
        name = {"warm": "w23", "cold": "w24"}[mode]
        paths = {"paths": f"{home}:{secret}"}
        status, output = live.run(name, "entries:try_files", mode=mode, arguments=paths)
    finally:
        secret.unlink()
    assert status == 0, output
    found = json.loads(output)
    assert found[str(secret)] in ("FileNotFoundError", "PermissionError")
    assert secret.name not in found[str(home)]
    assert "writes" not in found[str(home)]
    if users.kind == "one":  # with the user's own uid, the home must not exist
        assert found[str(secret)] == "FileNotFoundError"


def test_the_run_folder_is_hidden_in_any_location(driver: Any, live_in: Any, users: Any) -> None:
    with live_in(Path("/var/tmp")) as run:
        status, output = run.run(
            "w0", "entries:try_files", arguments={"paths": str(run.folder.path)}
        )
        assert status == 0
        # With the user's uid, the folder of all runs is.
        found = "FileNotFoundError" if users.kind == "one" else "lists [] OSError"
        assert json.loads(output) == {str(run.folder.path): found}


@MODES
def test_a_node_can_import_later_from_closed_or_covered_folders(
    driver: Any, live_in: Any, tmp_path: Path, mode: str
) -> None:
    # Below /tmp, which is private to a node, and in a folder that is closed to other users.
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "lib").mkdir()
    for module in ("entries.py", "late.py"):
        shutil.copy(Path(__file__).parents[1] / module, home / "lib" / module)
    (tmp_path / "link").symlink_to("home/lib")
    paths = f"{Path(__file__).parents[3]}:{tmp_path / 'link'}"
    with live_in(tmp_path, environment={"PYTHONPATH": paths}) as run:
        status, output = run.run("w0", "entries:import_late", mode=mode)
    assert (status, output) == (0, "xmlrpc.client hello from beside the roles\n")


def test_programs_and_threads_work_inside(live: Any) -> None:
    status, output = live.run("w30", "entries:start_programs")
    assert status == 0, output
    assert output == "b'from a child\\n'\nunshare 1\n"


def test_a_node_opens_a_device_that_is_mounted_at_its_own_path(live: Any) -> None:
    """As those of its GPUs are: read-only, which does not apply to writing to a device."""
    device = Path("/dev/null")
    shown = {"mounts": (Mount(device, device),), "arguments": {"device": str(device)}}
    status, output = live.run("w70", "entries:look_for_gpus", **shown)
    assert status == 0, output
    assert json.loads(output)["device"] == "opened"


def test_a_mount_outside_its_folder_is_refused(live: Any) -> None:
    for target in ("/etc", "/run/testbed", "/run/testbed/../x", "relative"):
        with pytest.raises(NodeError, match="w31: mount at"):
            live.launch("w31", "entries:wait", mounts=(Mount(Path("/usr"), Path(target)),))
    with pytest.raises(NodeError, match="w31: mount at /etc"):
        live.launch("w31", "entries:wait", mounts=(Mount(Path("/etc"), Path("/etc"), True),))
    nested = tuple(Mount(Path("/etc"), Path(f"/run/testbed/{name}")) for name in ("a", "a/b"))
    with pytest.raises(NodeError, match="w31: mount at /run/testbed/a/b is inside another mount"):
        live.launch("w31", "entries:wait", mounts=nested)


def test_control_groups_hold_the_limits_and_the_process(live: Any, trees: Any) -> None:
    node = live.node("w40", cpu=0.25, memory=Size.parse("64MiB"), cpu_weight=3)
    pid = live.launch(node, "entries:wait")
    homes = {name: tree for tree in trees for name in tree.controllers}
    version = homes["cpu"].version
    for (controller, file), value in EXPECTED[version].items():
        group = homes[controller].root / "testbed" / live.folder.name / "w40"
        assert (group / file).read_text().strip() == value
        assert (group / "cgroup.procs").read_text().split() == [str(pid)]
    agent = homes["cpu"].root / "testbed" / live.folder.name / "agent"
    file, value = {1: ("cpu.shares", "102400"), 2: ("cpu.weight", "10000")}[version]
    assert (agent / file).read_text().strip() == value
    record = read_record(live.folder)
    assert record is not None
    assert str(record.pid) in (agent / "cgroup.procs").read_text().split()


@MODES
def test_a_node_runs_only_on_its_cpus_where_control_groups_bind_it(
    live: Any, trees: Any, no_cpuset: str, mode: str
) -> None:
    if no_cpuset:
        pytest.skip(no_cpuset)
    home = next((tree for tree in trees if "cpuset" in tree.controllers), None)
    if home is None:
        pytest.skip("needs the controller cpuset; this user's control groups are without it")
    last = max(usable(trees).numbers)
    name = {"warm": "w44", "cold": "w45"}[mode]
    pid = live.launch(live.node(name, cpuset=CpuSet.of([last])), "entries:wait", mode=mode)
    group = home.root / "testbed" / live.folder.name / name
    assert (group / "cpuset.cpus").read_text().strip() == str(last)
    assert (group / "cgroup.procs").read_text().split() == [str(pid)]
    assert os.sched_getaffinity(pid) == {last}
    with pytest.raises(HostError, match=rf"w46 .*this host does not have \({last + 1}\)"):
        live.launch(live.node("w46", cpuset=CpuSet.of([last, last + 1])), "entries:wait")


def test_only_the_node_out_of_memory_ends_and_is_reported(live: Any, trees: Any) -> None:
    live.launch("w41", "entries:wait")
    node = live.node("w42", memory=Size.parse("48MiB"))
    live.launch(node, "entries:allocate", arguments={"bytes": str(200 * 2**20)})
    assert live.wait_for_exit("w42") == Exit("w42", -9, out_of_memory=True)
    assert "w41" in live.client.running()
    # A kill by another process is reported differently, also in the same control group.
    live.launch(node, "entries:wait")
    live.client.signal("w42", signal.SIGKILL)
    assert live.wait_for_exit("w42") == Exit("w42", -9)


def test_a_limit_that_no_kernel_enforces_is_refused(live: Any, trees: Any) -> None:
    with pytest.raises(HostError, match=r"w43: a limit of 0\.001 CPUs is too small"):
        live.launch(live.node("w43", cpu=0.001), "entries:wait")


def test_a_template_with_threads_is_refused_with_how_to_fix_it(start_run: Any) -> None:
    refused = pytest.raises(
        NodeError, match=r"w0: the template has 2 threads.*called .*launch: cold"
    )
    with start_run(template=Template(preload=("threaded",))) as run, refused:
        run.launch("w0", "entries:wait")


def test_linked_nodes_reach_each_other_and_their_bytes_are_counted(
    live: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    links = {
        name: LinkSpec(f"10.77.0.{last}", f"02:00:0a:4d:00:{last:02x}")
        for name, last in (("ps", 1), ("w50", 2))
    }
    as_seen = {name: Neighbour(link.address, link.mac) for name, link in links.items()}
    live.launch(
        live.node("ps", link=links["ps"], uid=22000),
        "entries:serve",
        arguments={"address": "10.77.0.1"},
        neighbours=(as_seen["w50"],),
    )
    live.wait_for_output("ps", "listening")
    live.launch(
        live.node("w50", link=links["w50"]),
        "entries:call",
        arguments={"address": "10.77.0.1", "bytes": "300000"},
        neighbours=(as_seen["ps"],),
    )
    live.wait_for_output("w50", "got 300000")
    eventually(lambda: live.client.count().tcp_acked_bytes == 300_000)
    traffic = live.client.count()
    assert traffic.tcp_received_bytes == 300_000
    assert traffic.wire_rx_bytes > 300_000
    assert traffic.sockets >= 1
    assert [link["node"] for link in live.client.links()] == ["ps", "w50"]


def test_a_socket_path_may_exceed_the_length_of_an_address(
    driver: Any, live_in: Any, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with live_in(deep) as run:
        assert len(str(run.folder.control / "agent.sock")) > 107
        assert run.client.running() == []
