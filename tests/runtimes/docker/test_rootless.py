"""An ordinary user's own engine, where control groups are delegated to the user, and where not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from accounts import Account
from version_2 import delegated_part, version_2

from testbed.host.hierarchies import find_mounted
from testbed.host.process import Process
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.lifecycle import find_containers
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import BroughtUp, FaultApplied, Launched
from testbed.telemetry.events import read_events
from testbed.telemetry.folder import RunFolder

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.nightly]

TOOLS = {
    "Podman": ("podman", "runc"),
    "Docker": ("/usr/share/docker.io/contrib/dockerd-rootless.sh", "dockerd", "rootlesskit"),
}
PATH = "PATH=/usr/bin:/bin:/usr/sbin:/sbin"
NO_NETWORK = ("NET=host", "PORT_DRIVER=none", "DISABLE_HOST_LOOPBACK=false")

IMAGE = Path(sys.prefix) / "image.tar"
DISK_BYTES = 8 << 30
SETTINGS = "containers.conf"
SET = """\
[containers]
cgroupns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
SCENARIO = """\
name: delegated
seed: 1
runtime: docker
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 3
  think: {mean: 100ms}
  classes:
    fast: {share: 0.67}
    slow: {share: 0.33, cpu: 0.5, memory: 256MiB}
stop: {updates: 60}
evaluate: {every: 30, images: 100}
faults:
  - freeze: {workers: [w0], at: {version: 10}, for: 500ms}
  - kill: {workers: [w1], at: {version: 20}}
"""
LIMITS = {"cpu.max": "50000 100000", "memory.max": str(256 << 20), "pids.max": "512"}


def service(product: str, socket: Path) -> list[str]:
    """The command that starts the engine; its folder is that of its socket."""
    if product == "Podman":
        options = ("--runtime=runc", "--cgroup-manager=cgroupfs")
        return ["podman", *options, "system", "service", "--time=0", f"unix://{socket}"]
    settings = (f"DOCKERD_ROOTLESS_ROOTLESSKIT_{one}" for one in NO_NETWORK)
    options = ("--iptables=false", "--bridge=none", f"--host=unix://{socket}")
    return ["env", PATH, *settings, TOOLS[product][0], *options]


@pytest.mark.parametrize("product", TOOLS)
def test_it_is_refused_at_once_by_name(product: str, new_account: Any, eventually: Any) -> None:
    if lacking := [tool for tool in TOOLS[product] if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(lacking)}, to start an engine")
    if all(tree.version == 2 for tree in find_mounted()):
        pytest.skip("needs control groups version 1, which no user can have delegated")
    with new_account(ranges=True) as user:
        socket = user.home / "engine.sock"
        own = ("env", f"XDG_RUNTIME_DIR={user.home}", f"DOCKER_HOST=unix://{socket}")
        command = ["unshare", "--net", *user.command(*own, *service(product, socket))]
        with subprocess.Popen(command, cwd=user.home, process_group=0) as engine:
            eventually(socket.exists)
            done = user.run(
                *own, user.python, "-m", "testbed", "up", "quickstart", "--runtime=docker"
            )
            os.killpg(engine.pid, signal.SIGKILL)
        if product == "Podman":
            Process.of(int((user.home / "libpod/tmp/pause.pid").read_text())).kill()
        assert done.returncode == 3, done.stderr
        said = f"This rootless {product} engine cannot limit its containers: it has no control"
        assert said in done.stderr
        assert not (user.home / "runs").exists()
        users = ["ps", "-U", user.name]
        eventually(lambda: subprocess.run(users, capture_output=True, check=False).returncode)


@contextmanager
def disk_at(folder: Path, user: str) -> Iterator[None]:
    """A user's file system in a file of this project.

    It holds the image, for which the files of an emulated kernel may be too little memory.
    """
    folder.mkdir()
    with tempfile.NamedTemporaryFile(dir=IMAGE.parent) as file:
        file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", file.name], check=True)
        subprocess.run(["modprobe", "loop"], check=False)  # built into some kernels
        subprocess.run(["mount", "-o", "loop", file.name, folder], check=True)
        try:
            shutil.chown(folder, user, user)
            yield
        finally:
            subprocess.run(["umount", folder], check=True)


@dataclass(frozen=True)
class Podman:
    """A user's Podman, in a control group of the user.

    Attributes:
        user: whose it is.
        part: the control group, below which the engine and its containers have theirs.
    """

    user: Account
    part: Path

    @property
    def disk(self) -> Path:
        """Holds all files of the engine."""
        return self.user.home / "disk"

    @property
    def socket(self) -> Path:
        return self.disk / "engine.sock"

    def command(self, *words: str) -> list[str]:
        """A command of the user."""
        folders = (f"{name}={self.disk}" for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "TMPDIR"))
        own = (f"CONTAINERS_CONF={self.disk / SETTINGS}", f"DOCKER_HOST=unix://{self.socket}")
        return self.user.command("env", *folders, *own, "STORAGE_DRIVER=overlay", *words)

    def inside(self, *words: str) -> list[str]:
        """The same in the engine's control group.

        At every `info`, Podman asks dpkg for the packages of its tools, which in an emulated
        kernel takes ten seconds if it has many: here it has none.
        """
        enter = f"echo 0 > {self.part}/engine/cgroup.procs; mount -t tmpfs none /var/lib/dpkg"
        shell = ("unshare", "--mount", "sh", "-c", f'{enter}; exec "$@"', "sh")
        return [*shell, *self.command(*words)]

    def testbed(self, *words: str) -> list[str]:
        return self.command(self.user.python, "-m", "testbed", *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.testbed(*words), cwd=self.user.home, capture_output=True, text=True, check=False
        )

    def folder(self, run: str) -> RunFolder:
        return RunFolder(self.user.home / "runs" / run)

    def states(self) -> set[str]:
        """Those of all containers."""
        with connect(f"unix://{self.socket}") as client:
            return {one.state for one in find_containers(client)}

    def limits(self, run: str, node: str) -> dict[str, str]:
        """What limits a node's process."""
        launched = only(read_events(self.folder(run).events), Launched)
        (pid,) = (event.pid for event in launched if event.node == node)
        (group,) = Path(f"/proc/{pid}/cgroup").read_text().split()
        folder = self.part.parent / group.removeprefix("0::/")
        return {name: (folder / name).read_text().strip() for name in LIMITS}

    def groups(self) -> list[str]:
        return [path.name for path in self.part.iterdir() if path.is_dir()]


@contextmanager
def podman_of(user: Account, part: Path, eventually: Any) -> Iterator[Podman]:
    """A running one that has the image."""
    engine = Podman(user, part)
    (engine.disk / SETTINGS).write_text(SET)
    controllers = (part / "cgroup.controllers").read_text().split()
    (part / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in controllers))
    (part / "engine").mkdir()
    with subprocess.Popen(engine.inside(*service("Podman", engine.socket)), cwd=user.home):
        try:
            eventually(engine.socket.exists)
            with IMAGE.open("rb") as file:
                load = engine.inside("podman", "load", "--quiet")
                subprocess.run(load, cwd=user.home, stdin=file, check=True)
            yield engine
        finally:
            (part / "cgroup.kill").write_text("1")
    eventually(lambda: "populated 0" in (part / "cgroup.events").read_text())
    (part / "engine").rmdir()


@pytest.mark.netem
def test_it_trains_where_control_groups_are_delegated(new_account: Any, eventually: Any) -> None:
    tools = (*TOOLS["Podman"], "modprobe", "mkfs.ext4")
    if lacking := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(lacking)}")
    if not IMAGE.exists():
        pytest.skip(f"needs the image in {IMAGE}: make image-file")
    with (
        version_2() as root,
        new_account(ranges=True) as user,
        disk_at(user.home / "disk", user.name),
        delegated_part(root, user.name) as part,
        podman_of(user, part, eventually) as engine,
    ):
        (user.home / "delegated.yaml").write_text(SCENARIO)
        done = engine.run("up", "delegated.yaml", "--name=whole", "--keep")
        assert done.returncode in (0, 6), done  # a busy host may make the run invalid
        assert "60 updates applied" in done.stdout
        faults = only(read_events(engine.folder("whole").events), FaultApplied)
        assert {fault.kind for fault in faults} == {"freeze", "kill"}
        assert engine.run("exec", "whole", "w0", "--", "sh", "-c", "exit 7").returncode == 7
        assert engine.run("down", "whole").returncode == 0
        assert (engine.states(), engine.groups()) == (set(), ["engine"])

        up = engine.testbed("up", "delegated.yaml", "--name=killed", "--set=stop.updates=100000")
        with subprocess.Popen(up, cwd=user.home, stdout=subprocess.DEVNULL) as controller:
            try:
                events = engine.folder("killed").events
                eventually(lambda: events.exists() and only(read_events(events), BroughtUp))
                assert engine.limits("killed", "w2") == LIMITS
            finally:
                controller.kill()
        eventually(lambda: engine.states() == {"exited"})
        assert engine.run("down", "killed").returncode == 0
        assert (engine.states(), engine.groups()) == (set(), ["engine"])
