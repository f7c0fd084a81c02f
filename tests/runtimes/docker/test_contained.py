"""A role in a container with options of its own, and runs that end without a controller."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from polling import wait_until

from testbed.errors import NodeError
from testbed.host.sockets import short_path
from testbed.network.interfaces import Neighbour
from testbed.runtimes.agent.launch import Exit, Mount
from testbed.runtimes.agent.settings import LIFELINE_SOCKET
from testbed.runtimes.base import ContainerSpec, Start, container_name
from testbed.runtimes.docker.abilities import limits_in
from testbed.runtimes.docker.containers import agent_container, node_container
from testbed.runtimes.docker.engine import describe
from testbed.runtimes.docker.lifecycle import make, make_all
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Direction, LinkSpec, NetworkSpec, NodeSpec, Plan
from testbed.values.units import Rate, Size

pytestmark = [pytest.mark.docker, pytest.mark.root]
MODES = pytest.mark.parametrize("mode", ["warm", "cold"])
ENTRIES = Path(__file__).parents[1]
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
OWNER = 22000
FUSE = os.makedev(10, 229)
Eventually = Callable[[Callable[[], Any]], Any]


def link(last: int, **shapes: Any) -> tuple[LinkSpec, Neighbour]:
    """A link with address 10.77.0.<last>, and the node as its neighbours see it."""
    address, mac = f"10.77.0.{last}", f"02:00:0a:4d:00:{last:02x}"
    return LinkSpec(address, mac, **{"up": Direction(), "down": Direction(), **shapes}), Neighbour(
        address, mac
    )


def groups_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cgroup").read_text().splitlines()


def namespaces_of(pid: int) -> dict[str, str]:
    kinds = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
    return {kind: str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in kinds}


@pytest.fixture
def contain(live: Any, engine: Any, image: str) -> Callable[..., int]:
    """Creates a container for a node with options that no plan has; returns its first process."""

    def create(node: NodeSpec, host: dict[str, Any] | None = None, **options: Any) -> int:
        mount = Mount(ENTRIES, Path("/run/testbed/entries"))
        spec = ContainerSpec(node, (mount,), live.folder.log(node.name))
        spec.log.touch()
        limits = limits_in(describe())
        made = node_container(spec, live.plan, live.folder, image=image, limits=limits)
        body = {**made.body, **options, "HostConfig": {**made.body["HostConfig"], **(host or {})}}
        return make_all(engine, [replace(made, body=body)])[node.name]

    return create


def container_of(run: Any, node: str) -> str:
    return container_name(run.folder.name, node)


@MODES
def test_a_role_uses_the_gpus_of_its_container(
    live: Any, contain: Any, tmp_path: Path, mode: str
) -> None:
    """As an engine provides a GPU: variables in the container, and a device that it may open."""
    device = tmp_path / "nvidia0"
    os.mknod(device, stat.S_IFCHR | 0o666, FUSE)  # a device that containers lack by default
    device.chmod(0o666)
    given = {"NVIDIA_VISIBLE_DEVICES": "0", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    inside = {"PathOnHost": str(device), "PathInContainer": "/dev/nvidia0"}
    devices = {"Devices": [{**inside, "CgroupPermissions": "rw"}]}
    variables = [f"{name}={value}" for name, value in given.items()]
    number = {"warm": 40, "cold": 42}[mode]
    node, other = live.node(f"w{number}", gpus=1), live.node(f"w{number + 1}")
    containers = {one.name: contain(one, devices, Env=variables) for one in (node, other)}
    options = {"mode": mode, "container": containers[node.name]}
    status, output = live.run(node, "entries:look_for_gpus", **options)
    assert status == 0, output
    assert json.loads(output) == {"CUDA_VISIBLE_DEVICES": None, **given, "device": "opened"}
    # In a node without GPUs torch sees none, even if the engine gives them to all containers.
    options["container"] = containers[other.name]
    _, output = live.run(other, "entries:look_for_gpus", **options)
    seen = json.loads(output)
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert (seen["NVIDIA_VISIBLE_DEVICES"], seen["device"]) == (None, "opened")


def test_a_role_sees_its_container(seen: dict[str, Any]) -> None:
    assert seen["processes"][0] == 1  # tini
    assert seen["pid"] > 1
    assert seen["interfaces"] == ["lo"]
    mounts = {line.split()[1]: line.split()[3].split(",")[0] for line in seen["mounts"]}
    assert mounts["/"] == "ro"
    assert mounts["/tmp"] == "rw"


@MODES
def test_a_role_is_in_all_namespaces_and_groups_of_its_container(
    live: Any, contain: Any, engine: Any, mode: str
) -> None:
    name = {"warm": "w11", "cold": "w12"}[mode]
    node = live.node(name, memory=Size.parse("512MiB"), cpu=1.0)
    first = contain(node, {"OomScoreAdj": 300})
    role = live.launch(name, "entries:wait", mode=mode, container=first)
    live.wait_for_output(name, "waiting")
    assert namespaces_of(role) == namespaces_of(first)
    assert groups_of(role) == groups_of(first) != groups_of(os.getpid())
    assert Path(f"/proc/{role}/oom_score_adj").read_text() == "300\n"
    comm = {"warm": name, "cold": "python"}[mode]
    assert Path(f"/proc/{role}/comm").read_text() == f"{comm}\n"
    assert live.client.private_bytes([name])[name] > 100_000
    titles = engine.top(container_of(live, name), ps_args="-eo pid,comm")["Processes"]
    assert [str(role), comm] in titles
    live.client.signal(name, signal.SIGKILL)
    assert live.wait_for_exit(name) == Exit(name, -signal.SIGKILL)


def test_a_lazy_import_finds_packages_of_the_image(live: Any) -> None:
    status, output = live.run("w15", "entries:import_late", mounts=(Mount(ENTRIES, ENTRIES),))
    assert status == 0, output


def test_a_role_out_of_memory_is_reported(live: Any) -> None:
    node = live.node("w16", memory=Size.parse("64MiB"))
    live.launch(node, "entries:allocate", arguments={"bytes": str(256 * 2**20)})
    assert live.wait_for_exit("w16") == Exit("w16", -signal.SIGKILL, out_of_memory=True)


def test_links_carry_traffic_and_count_it(live: Any) -> None:
    (server, its), (worker, mine) = link(1), link(2, up=Direction(rate=Rate.parse("100mbit")))
    live.launch(
        live.node("ps", link=server),
        "entries:serve",
        arguments={"address": its.address},
        neighbours=(mine,),
    )
    live.wait_for_output("ps", "listening")
    live.launch(
        live.node("w1", link=worker),
        "entries:call",
        arguments={"address": its.address, "bytes": "200000"},
        neighbours=(its,),
    )
    live.wait_for_output("w1", "waiting")
    with live.client.capture("w1") as frames:  # the agent has no more capabilities than this needs
        assert frames.getsockname()[:2] == ("w1", 3)
    with pytest.raises(NodeError, match=r"none of w9 is running and has a link\."):
        live.client.capture("w9")
    traffic = live.client.count()
    assert traffic.tcp_received_bytes == 200_000
    assert traffic.wire_rx_bytes > 200_000
    assert traffic.sockets == 1
    found = {one["node"]: one for one in live.client.links()}
    assert found["ps"]["differences"] == found["w1"]["differences"] == []
    for name in ("ps", "w1"):
        live.client.signal(name, signal.SIGTERM)
        live.wait_for_exit(name)


def test_a_role_can_follow_another_in_its_container(live: Any) -> None:
    first = live.contain(live.node("w22"), ())
    for status in ("3", "4", "5"):  # before the container ends after its role
        arguments = {"status": status}
        live.launch("w22", "entries:finish", arguments=arguments, container=first)
        assert live.wait_for_exit("w22").status == int(status)


def test_a_link_outlives_its_role_and_is_reused(live: Any, contain: Any, engine: Any) -> None:
    node = live.node("w18", link=link(18, up=Direction(rate=Rate.parse("10mbit")))[0])
    first = contain(node, Entrypoint=["sh", "-c", STUBBORN], Cmd=[])
    live.launch(node, "entries:finish", arguments={"status": "0"}, container=first)
    live.wait_for_exit("w18")
    faster = replace(node, link=replace(node.link, up=Direction(rate=Rate.parse("20mbit"))))
    live.launch(faster, "testbed.runtimes.agent.probe:main", container=first)
    live.wait_for_output("w18", "}")
    assert json.loads(live.output("w18").splitlines()[-1])["interfaces"] == ["eth0", "lo"]
    engine.remove_container(container_of(live, "w18"), force=True)


def test_a_pid_outside_the_nodes_containers_is_never_entered(live: Any) -> None:
    with pytest.raises(NodeError, match=r"w19: .*names no container"):
        live.launch("w19", "entries:wait", container=None)
    for pid in (1, os.getpid(), live.contain(live.node("w20"), ())):
        with pytest.raises(NodeError, match=rf"w19: its container has ended: process {pid} "):
            live.launch("w19", "entries:wait", container=pid)
    with pytest.raises(NodeError, match=r"w19: its container has ended: there is no process"):
        live.launch("w19", "entries:wait", container=4_000_000)
    assert "w19" not in live.client.running()


def test_a_container_paused_by_the_engine_is_frozen(live: Any, engine: Any) -> None:
    first = live.contain(live.node("w21"), ())
    container = container_of(live, "w21")
    engine.pause(container)
    with pytest.raises(NodeError, match="w21: its container is paused"):
        live.launch("w21", "entries:wait", container=first)
    engine.unpause(container)
    live.launch("w21", "entries:end_on_request", container=first)
    live.wait_for_output("w21", "waiting")
    assert live.client.frozen() == []
    engine.pause(container)
    assert live.client.frozen() == ["w21"]
    live.client.signal("w21", signal.SIGTERM)
    assert "w21" in live.client.running()
    engine.unpause(container)
    assert live.wait_for_exit("w21").status == 7


def test_a_container_frozen_by_the_agent_can_be_removed(live: Any, engine: Any) -> None:
    live.launch("w29", "entries:wait")
    live.client.freeze("w29")
    assert live.client.frozen() == ["w29"]
    container = container_of(live, "w29")
    state = engine.inspect_container(container)["State"]
    assert state["Status"] == "running"  # the engine is unaware of it
    engine.remove_container(container, force=True)
    assert live.wait_for_exit("w29").status == -signal.SIGKILL


def test_an_unattended_run_ends_with_its_parameter_server(
    driver: Any, start_run: Any, engine: Any, eventually: Eventually
) -> None:
    with start_run() as run:
        names = [container_of(run, node) for node in ("agent", "ps", "w1")]
        run.launch("w1", "entries:wait")
        run.launch("ps", "entries:wait")
        run.lifeline.on_hangup("finish")
        run.lifeline.close()  # the server gets SIGHUP, and this one dies from it
        for name in names:
            eventually(lambda name=name: not engine.inspect_container(name)["State"]["Running"])
        assert not run.folder.alive()


def test_without_a_commit_nothing_is_launched(engine: Any, image: str, tmp_path: Path) -> None:
    name = f"alone-{os.getpid()}"
    folder = RunFolder.create(
        tmp_path, name, scenario="test", text="name: test\n", classes=(), now=0.0
    )
    plan = Plan(name, (), NetworkSpec(), "warm", {})
    agent = agent_container(plan, folder, Start(), image=image, limits=limits_in(describe()))
    made: list[str] = []
    try:
        make(engine, agent, made)
        place = folder.control / LIFELINE_SOCKET
        wait_until(place.exists)
        with socket.socket(socket.AF_UNIX) as peer, short_path(place) as address:
            peer.connect(address)
        assert engine.wait(*made)["StatusCode"] == 1
        assert list(folder.control.iterdir()) == []
    finally:
        engine.remove_container(*made, force=True)


def test_a_run_folder_of_another_user_keeps_its_owner(
    driver: Any, start_run: Any, engine: Any, eventually: Eventually
) -> None:
    with start_run(owner=OWNER) as run:
        agent = run.folder.agent_socket.stat()
        assert (agent.st_uid, agent.st_mode & 0o777) == (OWNER, 0o600)
        writable = run.folder.path / "ps"
        mount = Mount(writable, Path("/run/testbed/ps"), writable=True)
        node = run.node("w1", link=link(2)[0])
        run.launch(node, "entries:wait", mounts=(mount,))
        status = writable.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o070) == (OWNER, node.uid, 0o070)
        assert run.client.private_bytes(["w1"])["w1"] > 0
        run.client.signal("w1", signal.SIGTERM)
        assert run.wait_for_exit("w1").status == 128 + signal.SIGTERM
        name = container_of(run, "w1")
        eventually(lambda: not engine.inspect_container(name)["State"]["Running"])
