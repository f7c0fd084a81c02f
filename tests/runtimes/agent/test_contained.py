"""An agent in a container of a real engine, and roles in containers created by the engine."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NodeError
from testbed.host.environment import BASE
from testbed.host.process import Process
from testbed.network.interfaces import Neighbour
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import Exit, Mount
from testbed.values.topology import Direction, LinkSpec
from testbed.values.units import Rate

pytestmark = [pytest.mark.docker, pytest.mark.root]
MODES = pytest.mark.parametrize("mode", ["warm", "cold"])
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
OWNER = 22000
FUSE = os.makedev(10, 229)


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


def test_a_role_has_its_own_uid_and_no_privileges(seen: dict[str, Any]) -> None:
    uid = str(21000 + int(seen["hostname"][1:]))
    assert seen["status"]["Uid"] == seen["status"]["Gid"] == [uid] * 4
    assert seen["status"]["Groups"] == []
    assert seen["status"]["NoNewPrivs"] == ["1"]
    assert set(seen["capabilities"].values()) == {0}


def test_a_role_cannot_create_a_namespace(seen: dict[str, Any]) -> None:
    assert set(seen["new namespaces"].values()) == {"PermissionError"}
    assert seen["status"]["Seccomp"] == ["2"]


@MODES
def test_a_role_cannot_regain_privileges(live: Any, mode: str) -> None:
    status, output = live.run({"warm": "w9", "cold": "w10"}[mode], "entries:try_to_rise", mode=mode)
    assert status == 0, output
    found = json.loads(output)
    del found["limit"]
    assert found.pop("new privileges") == "EINVAL"  # it can only be set
    assert found.pop("after grep") == found.pop("after python") == ["0000000000000000"]
    for path in [path for path in found if path.startswith("/proc/sys")]:
        assert found.pop(path).startswith("reads "), path
    assert set(found.values()) <= {"EPERM", "EINVAL"}, found


def test_a_role_inherits_only_intended_descriptors_and_variables(seen: dict[str, Any]) -> None:
    log = seen["descriptors"]["1"]
    assert log.startswith("pipe:")
    assert seen["descriptors"] == {"0": "/dev/null", "1": log, "2": log}
    paths = {"PYTHONPATH": seen["environment"]["PYTHONPATH"]}
    assert seen["environment"] == {**BASE, **paths, "EXTRA": "1"}
    assert seen["arguments"] == {"token": "secret"}
    assert seen["limits"] == {
        "RLIMIT_CORE": [0, 0],
        "RLIMIT_NOFILE": [4096, 4096],
        "RLIMIT_NPROC": [2048, 2048],
        "RLIMIT_STACK": [8388608, 8388608],
    }
    assert seen["threads"] == 1


@MODES
def test_a_role_uses_the_gpus_of_its_container(live: Any, tmp_path: Path, mode: str) -> None:
    """As an engine provides a GPU: variables in the container, and a device that it may open."""
    device = tmp_path / "nvidia0"
    os.mknod(device, stat.S_IFCHR | 0o666, FUSE)  # a device that containers lack by default
    device.chmod(0o666)
    given = {"NVIDIA_VISIBLE_DEVICES": "0", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    gifts: dict[str, Any] = {"environment": given, "devices": [f"{device}:/dev/nvidia0:rw"]}
    number = {"warm": 40, "cold": 42}[mode]
    node, other = live.node(f"w{number}", gpus=1), live.node(f"w{number + 1}")
    containers = {one.name: live.contain(one, **gifts) for one in (node, other)}
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
def test_a_role_is_in_all_namespaces_and_groups_of_its_container(live: Any, mode: str) -> None:
    name = {"warm": "w11", "cold": "w12"}[mode]
    first = live.contain(live.node(name), oom_score_adj=300, mem_limit="512m", nano_cpus=10**9)
    role = live.launch(name, "entries:wait", mode=mode, container=first)
    live.wait_for_output(name, "waiting")
    assert namespaces_of(role) == namespaces_of(first)
    assert groups_of(role) == groups_of(first) != groups_of(os.getpid())
    assert Path(f"/proc/{role}/oom_score_adj").read_text() == "300\n"
    comm = {"warm": name, "cold": "python"}[mode]
    assert Path(f"/proc/{role}/comm").read_text() == f"{comm}\n"
    assert live.client.private_bytes([name])[name] > 100_000
    titles = live.containers[name].top(ps_args="-eo pid,comm")["Processes"]
    assert [str(role), comm] in titles
    live.client.signal(name, signal.SIGKILL)
    assert live.wait_for_exit(name) == Exit(name, -signal.SIGKILL)


@MODES
def test_the_end_of_a_role_is_reported_and_ends_its_container(
    live: Any, eventually: Callable[..., Any], mode: str
) -> None:
    name = {"warm": "w13", "cold": "w14"}[mode]
    assert live.run(name, "entries:finish", arguments={"status": "3"}, mode=mode) == (
        3,
        "finishing\n",
    )
    eventually(lambda: live.state(name)["Status"] == "exited")
    assert live.containers[name].logs() == b"finishing\n"
    with pytest.raises(NodeError, match=f"{name}: its container has ended"):
        live.launch(name, "entries:wait", container=os.getpid())


def test_a_lazy_import_finds_packages_of_the_image(live: Any) -> None:
    status, output = live.run("w15", "entries:import_late")
    assert status == 0, output


def test_a_role_out_of_memory_is_reported(live: Any) -> None:
    node = live.node("w16")
    first = live.contain(node, mem_limit="64m", memswap_limit="64m")
    arguments = {"bytes": str(256 * 2**20)}
    live.launch(node, "entries:allocate", arguments=arguments, container=first)
    assert live.wait_for_exit("w16") == Exit("w16", -signal.SIGKILL, out_of_memory=True)


@pytest.mark.parametrize("verb", ["remove", "stop", "kill"])
def test_stopping_a_container_ends_its_role(live: Any, verb: str) -> None:
    name = {"remove": "w17", "stop": "w23", "kill": "w24"}[verb]
    role = live.launch(name, "entries:wait")
    live.wait_for_output(name, "waiting")
    getattr(live.containers[name], verb)(**{"force": True} if verb == "remove" else {})
    assert live.wait_for_exit(name) == Exit(name, -signal.SIGKILL, container_ended=True)
    assert not Path(f"/proc/{role}").exists()
    assert name not in live.client.running()


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
    first = live.contain(live.node("w22"))
    for status in ("3", "4", "5"):  # before the container ends after its role
        arguments = {"status": status}
        live.launch("w22", "entries:finish", arguments=arguments, container=first)
        assert live.wait_for_exit("w22").status == int(status)


def test_a_link_outlives_its_role_and_is_reused(live: Any) -> None:
    node = live.node("w18", link=link(18, up=Direction(rate=Rate.parse("10mbit")))[0])
    first = live.contain(node, entrypoint=["sh", "-c", STUBBORN])
    live.launch(node, "entries:finish", arguments={"status": "0"}, container=first)
    live.wait_for_exit("w18")
    faster = replace(node, link=replace(node.link, up=Direction(rate=Rate.parse("20mbit"))))
    live.launch(faster, "testbed.runtimes.agent.probe:main", container=first)
    live.wait_for_output("w18", "}")
    assert json.loads(live.output("w18").splitlines()[-1])["interfaces"] == ["eth0", "lo"]
    live.containers["w18"].remove(force=True)


def test_a_pid_outside_the_nodes_containers_is_never_entered(live: Any) -> None:
    with pytest.raises(NodeError, match=r"w19: .*names no container"):
        live.launch("w19", "entries:wait", container=None)
    for pid in (1, os.getpid(), live.contain(live.node("w20"))):
        with pytest.raises(NodeError, match=rf"w19: its container has ended: process {pid} "):
            live.launch("w19", "entries:wait", container=pid)
    with pytest.raises(NodeError, match=r"w19: its container has ended: there is no process"):
        live.launch("w19", "entries:wait", container=4_000_000)
    assert "w19" not in live.client.running()


def test_a_container_paused_by_the_engine_is_frozen(live: Any) -> None:
    first = live.contain(live.node("w21"))
    container = live.containers["w21"]
    container.pause()
    with pytest.raises(NodeError, match="w21: its container is paused"):
        live.launch("w21", "entries:wait", container=first)
    container.unpause()
    live.launch("w21", "entries:end_on_request", container=first)
    live.wait_for_output("w21", "waiting")
    assert live.client.frozen() == []
    container.pause()
    assert live.client.frozen() == ["w21"]
    live.client.signal("w21", signal.SIGTERM)
    assert "w21" in live.client.running()
    container.unpause()
    assert live.wait_for_exit("w21").status == 7


def test_a_container_frozen_by_the_agent_can_be_removed(live: Any) -> None:
    live.launch("w29", "entries:wait")
    live.client.freeze("w29")
    assert live.client.frozen() == ["w29"]
    assert live.state("w29")["Status"] == "running"  # the engine is unaware of it
    live.containers["w29"].remove(force=True)
    assert live.wait_for_exit("w29").status == -signal.SIGKILL


def test_the_end_of_the_controller_ends_everything(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run() as run:
        run.commit()
        run.launch("w1", "entries:wait")
        role = Process.of(run.launch("w2", "entries:end_on_request"))
        run.containers["w2"].pause()
        assert run.locked()
        run.hang_up()
        eventually(lambda: run.agent.reload() or run.agent.status == "exited")
        assert run.agent.attrs["State"]["ExitCode"] == 0
        for name in ("w1", "w2"):
            eventually(lambda name=name: run.state(name)["Status"] == "exited")
        assert not role.alive()
        assert not run.locked()


def test_an_unattended_run_ends_with_its_parameter_server(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run() as run:
        run.commit()
        run.launch("w1", "entries:wait")
        run.launch("ps", "entries:wait")
        run.lifeline.sendall(b"finish\n")
        run.hang_up()  # the server gets SIGHUP, and this one dies from it
        eventually(lambda: run.agent.reload() or run.agent.status == "exited")
        for name in ("ps", "w1"):
            eventually(lambda name=name: run.state(name)["Status"] == "exited")
        assert not run.locked()


def test_a_kept_run_stays_active_until_it_is_stopped(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run() as run:
        run.commit()
        role = Process.of(run.launch("w1", "entries:wait"))
        run.lifeline.sendall(b"kept\n")
        run.hang_up()
        run.client = AgentClient.connect(run.folder.control / "agent.sock", deadline=0)
        assert run.client.running() == ["w1"]
        assert role.alive()
        assert run.locked()


def test_the_end_of_the_agent_ends_every_role(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run() as run:
        run.commit()
        roles = [Process.of(run.launch(f"w{i}", "entries:wait")) for i in (1, 2)]
        cold = Process.of(run.launch("w3", "entries:wait", mode="cold"))
        run.wait_for_output("w3", "waiting")
        run.agent.kill()
        eventually(lambda: not any(role.alive() for role in (*roles, cold)))
        eventually(lambda: not run.locked())


def test_a_stopped_agent_leaves_nothing_running(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run() as run:
        run.commit()
        run.launch("w1", "entries:wait")
        run.agent.stop(timeout=180)
        run.agent.reload()
        assert run.agent.attrs["State"]["ExitCode"] == 0
        eventually(lambda: run.state("w1")["Status"] == "exited")


def test_without_a_commit_nothing_is_launched(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run() as run:
        run.connect().close()
        eventually(lambda: run.agent.reload() or run.agent.status == "exited")
        assert run.agent.attrs["State"]["ExitCode"] == 1
        assert [path.name for path in run.folder.control.iterdir()] == []


def test_a_template_that_fails_is_reported(contained_run: Callable[..., Any]) -> None:
    with (
        contained_run(preload=("entries_that_are_missing",)) as run,
        pytest.raises(NodeError, match="No module named 'entries_that_are_missing'"),
    ):
        run.commit()


def test_a_run_folder_of_another_user_keeps_its_owner(
    contained_run: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with contained_run(owner=OWNER) as run:
        run.commit()
        agent = run.folder.control / "agent.sock"
        assert (agent.stat().st_uid, agent.stat().st_mode & 0o777) == (OWNER, 0o600)
        writable = run.folder.path / "ps"
        mount = Mount(writable, Path("/run/testbed/ps"), writable=True)
        node = run.node("w1", link=link(2)[0])
        run.launch(node, "entries:wait", mounts=(mount,))
        status = writable.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o070) == (OWNER, node.uid, 0o070)
        assert run.client.private_bytes(["w1"])["w1"] > 0
        run.client.signal("w1", signal.SIGTERM)
        assert run.wait_for_exit("w1").status == 128 + signal.SIGTERM
        eventually(lambda: run.state("w1")["Status"] == "exited")
