"""LXC containers: what LXC's own tools show, limits, and that nothing is left after any kill."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.host.cgroups import RunGroups
from testbed.host.hierarchies import find_hierarchies
from testbed.host.process import Process
from testbed.run.follow import running_nodes
from testbed.runtimes.base import container_name
from testbed.runtimes.lxc.driver import LxcDriver
from testbed.runtimes.lxc.groups import find_records, find_trees, lxc_folder
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.cpu_sets import CpuSet
from testbed.values.units import Size

pytestmark = pytest.mark.root

VICTIM = Path(__file__).parents[1] / "victim.py"
ROUNDS = 20
LIMITS = {
    1: {
        "memory.limit_in_bytes": "209715200",
        "cpu.cfs_quota_us": "50000",
        "cpu.shares": "2048",
        "pids.max": "512",
    },
    2: {
        "memory.max": "209715200",
        "cpu.max": "50000 100000",
        "cpu.weight": "200",
        "pids.max": "512",
    },
}
"""Half a CPU of twice the weight, 200 MiB and the processes of every node, by version."""

Eventually = Callable[[Callable[[], Any]], Any]


@pytest.fixture(scope="module")
def driver(lxc: LxcDriver) -> LxcDriver:
    return lxc


@pytest.fixture
def shown(live: Any) -> Callable[..., str]:
    """What a tool of LXC prints about a node."""

    def ask(tool: str, node: str, *words: str) -> str:
        name = container_name(live.folder.name, node)
        return subprocess.run(
            [tool, "--name", name, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    return ask


def left_of(run: str) -> list[Path]:
    """The control groups and containers of a run, and the processes in them."""
    groups = [tree.root / "testbed.lxc" / run for tree in find_trees()]
    return [
        *(group for group in groups if group.exists()),
        *(record.place for record in find_records() if record.run == run),
    ]


def monitors_of(run: str) -> dict[str, Process]:
    """The processes with which LXC watches the containers of a run."""
    tree = next(tree for tree in find_trees() if "pids" in tree.controllers)
    files = (tree.root / "testbed.lxc" / run).glob("*.monitor/cgroup.procs")
    pids = {file.parent.stem: file.read_text().split() for file in files}
    return {node: Process.of(int(found[0])) for node, found in pids.items() if found}


def test_the_tools_of_lxc_show_a_node(live: Any, shown: Any) -> None:
    live.launch("w1", "entries:wait")
    first = int(shown("lxc-info", "w1", "--pid", "--no-humanize"))
    assert shown("lxc-info", "w1", "--state", "--no-humanize") == "RUNNING"
    assert Path(f"/proc/{first}").stat().st_uid == 21001
    shown("lxc-freeze", "w1")
    assert live.client.frozen() == ["w1"]
    shown("lxc-unfreeze", "w1")
    assert live.client.frozen() == []
    assert shown("lxc-attach", "w1", "--", "hostname") == "w1"
    assert shown("lxc-attach", "w1", "--", "ls", "/sys/class/net") == "lo"
    assert f"{lxc_folder()}/testbed-{live.folder.name}-w1" in (
        str(record.place) for record in find_records()
    )


def test_a_node_has_its_limits(live: Any, shown: Any, no_cpuset: str) -> None:
    memory, cpus = Size(200 * 2**20), None if no_cpuset else CpuSet("0")
    node = live.node("w2", cpu=0.5, memory=memory, cpu_weight=2, cpuset=cpus)
    live.launch(node, "entries:wait")
    tree = next(tree for tree in find_trees() if "memory" in tree.controllers)
    wanted = LIMITS[tree.version]
    assert {name: shown("lxc-cgroup", "w2", name) for name in wanted} == wanted
    assert no_cpuset or shown("lxc-cgroup", "w2", "cpuset.cpus") == "0"


def test_a_node_sees_the_programs_of_the_host_read_only(
    live: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    live.launch("w3", "entries:wait")
    script = (
        "ls -d /home /var /root 2> /dev/null; ls /run; touch /tmp/x /dev/shm/x; "
        'for file in /usr/x /etc/x /x /run/x; do ! touch "$file" 2> /dev/null || echo "$file"; done'
    )
    live.exec("w3", "sh", "-c", script)
    seen = capfd.readouterr().out.split()
    # Where the interpreter is in /root, the way to it is there, and nothing else in it.
    assert [name for name in seen if name != "/root"] == ["testbed"]
    assert not live.exec("w3", "test", "-w", "/tmp")
    assert live.exec("w3", "test", "-e", str(live.folder.path)) == 1


def test_a_container_that_is_stopped_ends_its_node(live: Any, shown: Any) -> None:
    live.launch("w4", "entries:wait")
    shown("lxc-stop", "w4", "--kill")
    assert live.wait_for_exit("w4").container_ended


def test_a_name_in_use_is_refused(live: Any) -> None:
    theirs = lxc_folder() / container_name(live.folder.name, "w5")
    theirs.mkdir()
    try:
        with pytest.raises(HostError, match=f"{theirs} exists, and is no container of"):
            live.launch("w5", "entries:wait")
    finally:
        theirs.rmdir()


def test_each_runtime_finds_its_own_runs(driver: LxcDriver, live: Any) -> None:
    theirs = RunGroups(f"native-{os.getpid()}", find_hierarchies())
    theirs.create()
    try:
        assert live.folder.name in driver.find()
        assert theirs.run not in driver.find()
        found = NativeDriver().find()
        assert theirs.run in found
        assert live.folder.name not in found
    finally:
        theirs.remove(deadline=time.monotonic() + 5)


def test_a_run_without_controller_agent_and_folder_is_found_and_ended(
    driver: LxcDriver, controller: Any, tmp_path: Path
) -> None:
    name = f"orphan-{os.getpid()}"
    folder, killed = RunFolder(tmp_path / name), controller(name)
    assert killed.stdout.readline() == b"up\n"
    agent = Process.parse((folder.control / "agent.pid").read_text())
    assert agent is not None
    agent.send(signal.SIGSTOP)  # so that it does not end the run when its controller ends
    killed.kill()
    agent.kill()
    shutil.rmtree(folder.path)
    assert folder in driver.find_orphans()
    driver.stop(folder)
    assert left_of(name) == []
    assert folder not in driver.find_orphans()


def test_killing_monitors_leaves_nothing(start_run: Any, eventually: Eventually) -> None:
    with start_run() as run:
        roles = [Process.of(run.launch(name, "entries:wait")) for name in ("w0", "w1", "w2")]
        found = monitors_of(run.folder.name)
        monitors = [found["w0"], found["w1"]]
        for monitor in monitors:
            monitor.kill()
        eventually(lambda: not any(monitor.alive() for monitor in monitors))
        assert all(role.alive() for role in roles)
        run.client.signal("w0", signal.SIGKILL)  # and its container ends without a monitor
        run.wait_for_exit("w0")
        run.driver.discard(run.folder, ["w0"])
        assert run.launch("w0", "entries:wait")
    assert left_of(run.folder.name) == []
    assert not any(role.alive() for role in roles)


@pytest.fixture
def controller(driver: LxcDriver, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Starts a run of four nodes in a separate controller, to be killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(VICTIM), "lxc", str(tmp_path), name]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def test_killing_the_controller_leaves_nothing(
    controller: Any, tmp_path: Path, eventually: Eventually
) -> None:
    name = f"victim-{os.getpid()}"
    folder, killed = RunFolder(tmp_path / name), controller(name)
    assert killed.stdout.readline() == b"up\n"
    processes = [Process.of(node.pid) for node in running_nodes(folder).values() if node.pid]
    monitors = list(monitors_of(name).values())
    assert len(monitors) == 4
    monitors[0].kill()
    killed.kill()
    eventually(lambda: not folder.alive())
    assert left_of(name) == []  # although nothing was asked to remove it
    assert not any(one.alive() for one in (*processes, *monitors))


@pytest.mark.nightly
def test_killing_controller_and_monitors_at_random_moments_leaves_nothing(
    driver: LxcDriver, controller: Any, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {ROUNDS} rounds")
    rng = random.Random(seed)
    for number in range(ROUNDS):
        name = f"victim-{os.getpid()}-{number}"
        killed = controller(name)
        time.sleep(rng.uniform(0.5, 5.0))
        with suppress(OSError):  # one has just ended
            for monitor in monitors_of(name).values():
                if rng.random() < 0.5:
                    monitor.kill()
        killed.kill()
        killed.wait()
        driver.stop(RunFolder(tmp_path / name))
        assert left_of(name) == [], f"round {number}"
        assert name not in driver.find()
