"""The hosts of a Swarm: as its manager lists them, and as their engines answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.runtimes.docker.swarm import (
    ADDRESS_LABEL,
    CONTAINERD,
    ENGINE_LABEL,
    DrainedHosts,
    SwarmHost,
    absence,
    differences,
    drained,
    find_hosts,
    from_swarm,
    nodes_of,
    told_apart,
)

NODE: dict[str, Any] = {
    "ID": "tgap3c",
    "Spec": {
        "Labels": {"rack": "a", ENGINE_LABEL: "unix:///run/pi-2.sock"},
        "Availability": "active",
    },
    "Description": {
        "Hostname": "pi-2",
        "Platform": {"Architecture": "aarch64", "OS": "linux"},
        "Resources": {"NanoCPUs": 4_000_000_000, "MemoryBytes": 8_000_000_000},
        "Engine": {"EngineVersion": "20.10.24"},
    },
    "Status": {"State": "ready", "Addr": "10.0.0.2"},
}


def test_a_host_as_the_swarm_lists_it() -> None:
    assert from_swarm(NODE, here="kb0cqv") == SwarmHost(
        name="pi-2",
        identity="tgap3c",
        address="10.0.0.2",
        engine="unix:///run/pi-2.sock",
        labels={"rack": "a"},
        cpus=4,
        memory_bytes=8_000_000_000,
        architecture="aarch64",
        version="20.10.24",
        availability="active",
        state="ready",
    )


def test_a_manager_has_the_address_at_which_it_manages() -> None:
    manager = {**NODE, "ManagerStatus": {"Addr": "10.0.0.1:2377"}}
    manager["Status"] = {"State": "ready", "Addr": "0.0.0.0"}
    found = from_swarm(manager, here="tgap3c")
    assert (found.address, found.here) == ("10.0.0.1", True)


def test_a_host_that_has_joined_but_not_reported_yet_is_left_out() -> None:
    joining = {**NODE, "Description": {"Platform": {}, "Resources": {}, "Engine": {}}}
    joining["Status"] = {"State": "unknown", "Addr": "10.0.0.3"}
    host = from_swarm(joining, here="")
    assert (host.name, host.cpus, host.memory_bytes, host.version) == ("tgap3c", 0, 0, "")
    assert from_swarm({**joining, "Description": {}}, here="") == host
    assert absence(host).startswith("the Swarm says that it is unknown")
    assert drained([host]) == {}


@pytest.mark.parametrize(
    ("changes", "lack", "cure"),
    [
        (
            {"architecture": "x86_64"},
            "its architecture is x86_64, that of pi-2 aarch64",
            "leave it out, docker node update --availability drain tgap3c",
        ),
        (
            {"address": "fe80::2"},
            "its address fe80::2 is not IPv4",
            f"{ADDRESS_LABEL}=ADDRESS tgap3c",
        ),
        (
            {"address": "pi-2.lan"},
            "its address pi-2.lan is not IPv4",
            f"{ADDRESS_LABEL}=ADDRESS tgap3c",
        ),
        ({"version": "28.1.0"}, "its engine is 28.1.0", "install the same"),
        (
            {"image_store": "containerd"},
            "its engine keeps images in containerd's store, that of pi-2 in docker's",
            '{"features": {"containerd-snapshotter": false}} in its /etc/docker/daemon.json',
        ),
        (
            {"image_store": "docker"},
            "its engine keeps images in docker's store, that of pi-2 in containerd's",
            '{"features": {"containerd-snapshotter": true}} in its /etc/docker/daemon.json',
        ),
    ],
)
def test_what_the_swarm_says_against_a_host(changes: dict[str, Any], lack: str, cure: str) -> None:
    host = from_swarm(NODE, here="")
    assert list(differences(host, host)) == []
    if store := changes.get("image_store"):
        host = replace(host, image_store={"containerd": "docker", "docker": "containerd"}[store])
        assert list(differences(replace(host, image_store=""), host)) == []  # it was not asked
    (found,) = differences(replace(host, **changes), host)
    assert found.startswith(lack)
    assert cure in found


@pytest.mark.parametrize(
    ("changes", "why", "cure"),
    [
        ({"state": "down"}, "the Swarm says that it is down", "docker node rm tgap3c"),
        ({"availability": "drain"}, "its availability is drain", "--availability active tgap3c"),
        ({"availability": "pause"}, "its availability is pause", "--availability active tgap3c"),
    ],
)
def test_why_runs_leave_a_host_out(changes: dict[str, Any], why: str, cure: str) -> None:
    host = from_swarm(NODE, here="")
    assert absence(host) == ""
    found = absence(replace(host, **changes))
    assert found.startswith(why)
    assert cure in found


def test_two_hosts_of_one_name_are_refused_but_not_one_that_has_joined_again() -> None:
    host = from_swarm(NODE, here="")
    gone = replace(host, identity="old", state="down", availability="drain", left_out="it is down")
    assert [one.lacks for one in told_apart([host, gone])] == [(), ()]
    assert (drained([host, gone]), drained([gone])) == ({}, {"pi-2": "the Swarm drains it"})
    first, second = told_apart([host, replace(host, identity="other", address="10.0.0.3")])
    assert first.lacks == (
        "the host at 10.0.0.2 has the name of that at 10.0.0.3: hostnamectl set-hostname NAME on "
        "one of them, and restart its engine",
    )
    assert second.lacks[0].startswith("the host at 10.0.0.3 has the name of that at 10.0.0.2:")
    assert (first.drain, second.drain) == (
        "docker node update --availability drain tgap3c",  # the name is that of both
        "docker node update --availability drain other",
    )


@pytest.mark.parametrize(
    ("swarm", "refusal", "cure"),
    [
        ({}, "not a node of a Docker Swarm", "docker swarm init"),
        ({"LocalNodeState": "inactive"}, "its engine says inactive", "docker swarm join"),
        ({"LocalNodeState": "locked"}, "its engine says locked", "docker swarm unlock"),
        (
            {"LocalNodeState": "active", "RemoteManagers": [{"Addr": "10.0.0.1:2377"}]},
            "whose managers are 10.0.0.1:2377",
            "docker node promote pi-2",
        ),
    ],
)
def test_hosts_are_listed_by_a_manager_only(swarm: dict[str, Any], refusal: str, cure: str) -> None:
    with pytest.raises(HostError, match=refusal) as refused:
        nodes_of(None, {"Name": "pi-2", "Swarm": swarm})  # type: ignore[arg-type]  # not asked
    assert cure in refused.value.hint


@contextmanager
def labelled(engine: str, **changes: Any) -> Iterator[None]:
    """Update the spec of the Swarm's second node for the body."""
    from docker import APIClient

    with APIClient(base_url=engine) as client:
        node = next(one for one in client.nodes() if not one.get("ManagerStatus"))
        before = node["Spec"]
        client.update_node(node["ID"], node["Version"]["Index"], {**before, **changes})
        try:
            yield
        finally:
            version = client.inspect_node(node["ID"])["Version"]["Index"]
            client.update_node(node["ID"], version, before)


@pytest.mark.docker
@pytest.mark.root
def test_two_engines(swarm: list[str], tmp_path: Path) -> None:
    here, other = swarm
    with labelled(here, Labels={ENGINE_LABEL: other, "rack": "a"}):
        first, second = find_hosts(here)
        assert (first.here, second.here) == (True, False)
        assert second.labels == {"rack": "a"}
        assert second.lacks == first.lacks  # both have the image, or lack it
    with labelled(here, Labels={ENGINE_LABEL: other}, Availability="drain"):
        second = find_hosts(here)[1]
        assert second.lacks == ()
        assert "its availability is drain" in second.left_out
    with labelled(here, Labels={ENGINE_LABEL: here}):
        (lack,) = find_hosts(here)[1].lacks
        assert "is the engine of swarm-1: docker node update --label-add" in lack
    with labelled(here, Labels={ENGINE_LABEL: f"unix://{tmp_path}/none"}):
        assert "No Docker engine answers at" in find_hosts(here)[1].lacks[0]
    assert "its engine's address is unknown" in find_hosts(here)[1].lacks[0]
    with pytest.raises(HostError, match="is a worker of its Docker Swarm"):
        find_hosts(other)


@contextmanager
def front(engine: str, path: Path, change: Callable[[Any], None], *, at: str) -> Iterator[str]:
    """The address of an engine whose answers at a path are changed; the rest is its own."""

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = HTTPConnection("engine")
            asked.sock = socket.socket(socket.AF_UNIX)
            asked.sock.connect(engine.removeprefix("unix://"))
            asked.request("GET", self.path)
            answer = asked.getresponse()
            content = answer.read()
            asked.close()
            if self.path.endswith(at):
                answered = json.loads(content)
                change(answered)
                content = json.dumps(answered).encode()
            self.send_response(answer.status)
            for name in ("Content-Type", "Api-Version", "Server"):
                self.send_header(name, answer.headers.get(name, ""))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingUnixStreamServer(str(path), Front) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()


@pytest.mark.docker
@pytest.mark.root
@pytest.mark.parametrize(
    ("changes", "lack"),
    [
        ({"Architecture": "other"}, "its architecture is other, that of swarm-1"),
        ({"ServerVersion": "other"}, "its engine is other, that of swarm-1"),
        ({"DriverStatus": [CONTAINERD]}, "its engine keeps images in containerd's store, that of"),
        ({"Swarm": {"NodeID": ""}}, "is not in a Swarm: if it is that of swarm-2, docker swarm"),
    ],
)
def test_an_engine_of_another_kind_than_the_swarm_says(
    swarm: list[str], tmp_path: Path, changes: dict[str, Any], lack: str
) -> None:
    here, other = swarm
    with (
        front(other, tmp_path / "front", lambda info: info.update(changes), at="/info") as address,
        labelled(here, Labels={ENGINE_LABEL: address}),
    ):
        assert lack in find_hosts(here)[1].lacks[0]


@pytest.mark.docker
@pytest.mark.root
def test_an_engine_that_joins_a_swarm_is_seen_by_the_same_process(
    swarm: list[str], tmp_path: Path
) -> None:
    joined = threading.Event()

    def change(info: Any) -> None:
        if not joined.is_set():
            info["Swarm"] = {"LocalNodeState": "inactive"}

    with front(swarm[0], tmp_path / "front", change, at="/info") as address:
        with pytest.raises(HostError, match="docker swarm init"):
            find_hosts(address)
        joined.set()
        assert [host.name for host in find_hosts(address)] == ["swarm-1", "swarm-2"]


@pytest.mark.docker
@pytest.mark.root
def test_a_manager_that_is_slow_to_answer_is_not_waited_for(
    swarm: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[[Callable[[], Any]], Any],
) -> None:
    here, answered = swarm[0], threading.Event()
    found = DrainedHosts()
    with (
        front(here, tmp_path / "front", lambda _: answered.wait(), at="/nodes") as address,
        labelled(here, Availability="drain"),
    ):
        monkeypatch.setenv("DOCKER_HOST", address)
        assert [found(), found()] == [{}, {}]
        answered.set()
        assert eventually(found) == {"swarm-2": "the Swarm drains it"}
