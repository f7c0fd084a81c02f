"""Which engines can host runs, and the errors where one cannot be used."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any, ClassVar

import pytest

from testbed.errors import HostError, NodeError
from testbed.runtimes.docker.abilities import EngineLimits, check_abilities, limits_in
from testbed.runtimes.docker.engine import (
    PROBE_SECONDS,
    answering,
    connect,
    describe,
    engine_faults,
    explain,
    find_delegated_to,
    refuse,
    refused,
    start_or_install,
    within,
)
from testbed.values.topology import NodeSpec
from testbed.values.units import Size

NODE = NodeSpec("w3", "worker", 3, "slow", None, None, None, 1, 20003)
ABLE = {"CpuCfsQuota": True, "MemoryLimit": True, "CPUSet": True, "Runtimes": {"runc": {}}}


LIMITS = {"MemoryLimit": True, "PidsLimit": True, "CPUShares": True}
ROOTLESS = {"BuildahVersion": "1.28", "Rootless": True, "CgroupVersion": "2", **LIMITS}


OF_DOCKER = {"SecurityOptions": ["name=rootless"], "CgroupVersion": "2", **LIMITS}


def test_a_rootless_engine_with_delegated_control_groups_is_accepted() -> None:
    refuse(ROOTLESS)
    refuse({**OF_DOCKER, "ServerVersion": "28.2.2"})


def test_a_rootless_docker_has_the_limits_that_are_delegated_to_its_user(tmp_path: Path) -> None:
    """Its own answer is about the user's slice, of which systemd has delegated a part."""
    folder = tmp_path / "user.slice/user-1000.slice/user@1000.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("memory pids\n")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 24 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    delegated = find_delegated_to(1000, mounts)
    assert delegated == {"memory", "pids"}
    with pytest.raises(HostError, match=r"rootless Docker .* control groups of cpu"):
        refuse(within(OF_DOCKER, delegated))
    refuse(within(OF_DOCKER, frozenset({"cpu", "memory", "pids"})))
    assert find_delegated_to(1001, mounts) is None
    assert within(OF_DOCKER, None) == OF_DOCKER


def test_crun_is_refused_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    places = "testbed.runtimes.docker.engine.has_controllers_in_both"
    info = {"DefaultRuntime": "/usr/bin/crun"}
    monkeypatch.setattr(places, lambda: False)
    refuse(info)
    monkeypatch.setattr(places, lambda: True)
    refuse({"DefaultRuntime": "runc"})
    with pytest.raises(HostError, match=r"crun, which rejects .*apt-get install runc"):
        refuse(info)


def test_podman_gets_no_higher_limits_than_this_process_has() -> None:
    assert limits_in({"ServerVersion": "20.10"}) == EngineLimits()
    limits = limits_in({"BuildahVersion": "1.28"})
    files, processes = limits.host["Ulimits"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    expected = 2**20 if hard == resource.RLIM_INFINITY else min(hard, 2**20)
    assert files == {"Name": "nofile", "Soft": expected, "Hard": expected}
    assert processes["Hard"] <= int(Path("/proc/sys/kernel/pid_max").read_text())
    assert not limits.inodes


class Answers(BaseHTTPRequestHandler):
    """Those of an engine, on a socket without addresses; counts what it is asked."""

    asked: ClassVar[list[str]] = []
    content: ClassVar[Mapping[str, Any]] = {}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = json.dumps(
            next(v for k, v in self.content.items() if self.path.endswith(k))
        ).encode()
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "a socket"


@contextmanager
def answers(content: Mapping[str, Any], path: Path) -> Iterator[None]:
    """An engine with these answers at a socket."""
    Answers.content, Answers.asked = content, []
    with UnixStreamServer(str(path), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_errors_name_the_product_that_answers_also_when_it_no_longer_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    assert answering() == "Docker"  # none has answered yet
    with answers({"/_ping": "OK", "/info": {"BuildahVersion": "1.28"}}, tmp_path / "socket"):
        connect().close()
    (tmp_path / "socket").unlink()
    told = "connection to the Podman engine was lost while looking: gone. Is .* podman version"
    with pytest.raises(HostError, match=told), engine_faults("looking"):
        raise OSError("gone")
    assert str(refused("building", "no space left on device")).startswith(
        "The Podman engine failed building: no space left on device. `podman system df`"
    )
    error = explain("w3", 500, "something new", product=answering())
    assert str(error) == "w3: the Podman engine refused: something new."


def test_an_engine_is_asked_once_what_it_is(tmp_path: Path) -> None:
    own = {"host": {"cgroupControllers": ["memory", "pids"]}}
    told = {"BuildahVersion": "1.28", "CgroupVersion": "2", "CpuCfsQuota": False}
    with answers({"/_ping": "OK", "/libpod/info": own, "/info": told}, tmp_path / "socket"):
        for _ in range(3):
            connect(f"unix://{tmp_path}/socket").close()
        info = describe(f"unix://{tmp_path}/socket")
    assert (info["MemoryLimit"], info["CpuCfsQuota"], info["PidsLimit"]) == (True, False, True)
    asked = [path.rpartition("/")[2] for path in Answers.asked]
    assert asked.count("info") == 2  # Docker's, and Podman's own
    assert "version" not in asked


def test_an_ordinary_engine_is_accepted() -> None:
    refuse({"SecurityOptions": ["name=seccomp,profile=default"], "OperatingSystem": "Debian"})
    refuse({"SecurityOptions": None})


@pytest.mark.parametrize(
    ("info", "why", "cure"),
    [
        ({"SecurityOptions": ["name=rootless"]}, "rootless Docker .* version 2", "DOCKER_HOST"),
        ({**ROOTLESS, "CgroupVersion": "1"}, "rootless Podman .* version 2", "native"),
        ({**ROOTLESS, "CgroupDriver": "none"}, "rootless Podman .* version 2", "native"),
        ({**OF_DOCKER, "ServerVersion": "20.10.24"}, "rootless Docker .* 20.10.24", "Update it"),
        ({**ROOTLESS, "CPUShares": False}, "rootless Podman .* groups of cpu", "Delegate=cpu"),
        ({"SecurityOptions": ["name=userns"]}, "remaps users", "userns-remap"),
        ({"OperatingSystem": "Docker Desktop"}, "Docker Desktop", "Install Docker Engine"),
        ({"OSType": "windows"}, "windows containers", "native"),
    ],
)
def test_an_unreachable_engine_is_refused_in_one_line(
    info: dict[str, Any], why: str, cure: str
) -> None:
    with pytest.raises(HostError) as refusal:
        refuse(info)
    assert re.search(why, refusal.value.message)
    assert cure in refusal.value.hint
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:2375", "ssh://me@host", "npipe:////./pipe/x"])
def test_a_remote_engine_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(HostError, match=rf"DOCKER_HOST is {address}.*unset DOCKER_HOST"):
        connect()


def test_a_missing_engine_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"No Docker engine answers at ") as absent:
        connect(f"unix://{tmp_path}/docker.sock")
    assert start_or_install() in absent.value.hint


def test_the_error_says_start_an_installed_engine_and_install_a_missing_one(tmp_path: Path) -> None:
    assert "sudo apt-get install docker.io" in start_or_install(str(tmp_path))
    (tmp_path / "dockerd").touch(0o755)
    assert start_or_install(str(tmp_path)) == "Start it (sudo systemctl start docker)"


def test_an_engine_that_ended_without_removing_its_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "docker.sock"))
    with pytest.raises(HostError, match=r"Connection refused"):
        connect(f"unix://{tmp_path}/docker.sock")


def test_an_engine_that_hangs_times_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "docker.sock"))
        silent.listen()  # accepts calls and never answers
        with pytest.raises(HostError, match=r"The Docker engine did not answer in time"):
            connect(f"unix://{tmp_path}/docker.sock", patience_seconds=0.2)
    assert PROBE_SECONDS <= 10


def test_an_engine_may_be_silent_for_as_long_as_the_client_of_a_call_allows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "docker.sock"
    with answers({"/_ping": "OK", "/info": {}}, path):
        engine = connect(f"unix://{path}", call_seconds=0.2)
    path.unlink()
    with engine, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with (
            pytest.raises(HostError, match=r"did not answer in time while copying"),
            engine_faults("copying"),
        ):
            engine.images()


@pytest.mark.root
def test_a_user_outside_the_docker_group_gets_an_error_that_says_so(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from testbed.errors import HostError\n"
        "from testbed.runtimes.docker.engine import connect\n"
        "import docker\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: connect(sys.argv[1])\n"
        "except HostError as error: print(error)\n"
    )
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "docker.sock"))
        (tmp_path / "docker.sock").chmod(0o660)
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(folder.stat().st_mode | 0o001)
        closed.listen()
        command = [sys.executable, "-c", program, f"unix://{tmp_path}/docker.sock"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "permission denied" in said
    assert "usermod -aG docker" in said
    assert "runtime: native" in said


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[str]:
    """The address of a server that accepts connections and closes them at once."""
    address = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(address)
        listener.listen()
        ending = threading.Event()

        def hang_up() -> None:
            while not ending.is_set():
                listener.accept()[0].close()

        pool.submit(hang_up)
        yield f"unix://{address}"
        ending.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(address)


def test_something_else_at_the_socket_is_an_error(deaf: str) -> None:
    with pytest.raises(HostError, match="the Docker engine was lost while connecting"):
        connect(deaf)


@pytest.mark.docker
def test_the_engine_of_this_machine_is_accepted() -> None:
    with connect() as engine:
        assert engine.ping()


@pytest.mark.parametrize(
    ("status", "reason", "kind", "message"),
    [
        (
            500,
            "mkdir /var/lib/docker/overlay2/1: no space left on device",
            HostError,
            "w3: the Docker engine has no space left on its disk .*image prune",
        ),
        (404, "No such image: edge-testbed:1", HostError, "w3: .*testbed image build"),
        (
            500,
            "runc: rootless needs no limits when no permission is granted for cgroups: mkdir",
            HostError,
            "w3: this rootless Docker engine was started in .* Start it in a delegated one",
        ),
        (404, "No such container: abc", NodeError, "w3: its container was removed"),
        (
            400,
            'invalid mount config for type "bind": bind source path does not exist: /no/where',
            NodeError,
            "^w3: No such file or directory: /no/where$",
        ),
        (
            400,
            "Requested CPUs are not available - requested 7, available: 0-1",
            HostError,
            "w3: cpuset 7 has CPUs that this host does not have; it has 0-1. Choose from 0-1",
        ),
        (
            500,
            'could not select device driver "" with capabilities: [[gpu]]',
            HostError,
            "w3: .*cannot give GPUs.*remove gpus",
        ),
        (500, "something new.\n", NodeError, "^w3: the Docker engine refused: something new.$"),
    ],
)
def test_a_refused_limit_names_the_node_and_how_to_fix_it(
    status: int, reason: str, kind: type[Exception], message: str
) -> None:
    error = explain("w3", status, reason)
    assert type(error) is kind
    with pytest.raises(kind, match=message):
        raise error


def test_limits_enforced_by_the_kernel_are_accepted(limited: Callable[..., NodeSpec]) -> None:
    check_abilities([NODE, limited(cpu=0.5), limited(memory=Size.parse("64MiB"))], ABLE)


@pytest.fixture
def limited() -> Callable[..., NodeSpec]:
    from dataclasses import replace

    def limit(**changes: Any) -> NodeSpec:
        return replace(NODE, **changes)

    return limit


@pytest.mark.parametrize(
    ("changes", "lacking", "message"),
    [
        ({"cpu": 0.5}, "CpuCfsQuota", r"w3 \(class slow\): cpu 0.5 is a limit.*docker info"),
        ({"memory": Size.parse("64MiB")}, "MemoryLimit", r"w3 .*memory 64MiB is a limit"),
        ({"cpu": 0.001}, "", "0.001 CPUs is too small, expected at least 0.01"),
        ({"gpus": 1}, "", r"w3 \(class slow\): gpus 1, .*no runtime nvidia.*container toolkit"),
    ],
)
def test_limits_beyond_the_engine_are_refused(
    limited: Callable[..., NodeSpec], changes: dict[str, Any], lacking: str, message: str
) -> None:
    with pytest.raises(HostError, match=message):
        check_abilities([limited(**changes)], {**ABLE, lacking: False})


def test_gpus_are_accepted_with_a_gpu_runtime(limited: Callable[..., NodeSpec]) -> None:
    check_abilities([limited(gpus=2)], {**ABLE, "Runtimes": {"runc": {}, "nvidia": {}}})


@pytest.mark.root
def test_absent_cpus_are_refused(limited: Callable[..., NodeSpec]) -> None:
    from testbed.values.cpu_sets import CpuSet

    absent = CpuSet(str((os.cpu_count() or 1) + 1000))
    with pytest.raises(
        HostError, match=rf"w3 .*cpuset {absent} contains CPUs that this host does not have"
    ):
        check_abilities([limited(cpuset=absent)], ABLE)
