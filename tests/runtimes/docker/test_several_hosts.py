"""A run over two engines: nothing of one host's disk is seen by the other."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from swarm_engines import SECONDS, Engines

from testbed.network.capture import HEADER
from testbed.reports.frames import Run
from testbed.runtimes.agent.relay import LEASE_SECONDS
from testbed.runtimes.docker.containers import AGENT, ROLE
from testbed.runtimes.docker.copies import DATA, copy_image, has_image
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.docker.swarm import ENGINE_LABEL
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, FaultApplied, LinkChanged, LinksRead, RateMeasured
from testbed.telemetry.events import read_events
from testbed.telemetry.folder import RunFolder

pytestmark = [pytest.mark.docker, pytest.mark.root]


def test_a_run_over_two_hosts_leaves_nothing(engines: Engines) -> None:
    shown = engines("plan", "apart.yaml")
    assert "ps, evaluator, 1 of class fast" in shown
    assert "1 of class fast, 2 of class slow" in shown
    up = engines.start("up", "apart.yaml", "--name", "r")
    said, errors = up.communicate(timeout=SECONDS)
    assert up.returncode in (0, 6), said + errors  # not valid if other tests keep the host busy
    folder = RunFolder(engines.folder / "runs" / "r")
    plan = json.loads(folder.plan.read_text())
    assert {node["name"]: node["host"] for node in plan["nodes"]} == {
        **dict.fromkeys(("ps", "evaluator", "w0"), plan["hosts"][0]["name"]),
        **dict.fromkeys(("w1", "w2", "w3"), plan["hosts"][1]["name"]),
    }
    events = read_events(folder.events)
    assert only(events, RateMeasured)  # of class slow, across the hosts
    (read,) = only(events, LinksRead)
    assert (read.checked, read.differences) == (5, ())
    assert folder.log("probe0").read_text()  # came over the stream
    slowed = [one for one in only(events, FaultApplied) if one.kind == "slow"]
    assert [(one.begins, one.nodes) for one in slowed] == [(True, ("w3",)), (False, ("w3",))]
    run = Run(folder.path)
    first, *_, last = run.hosts.to_dict(
        "records"
    )  # all have one clock: the engines share a machine
    for row in (first, last):
        assert abs(row["clock_offset_seconds"]) <= row["clock_error_seconds"]
        assert row["host_available_bytes"] > 0
    assert run.summary["hosts"][plan["hosts"][1]["name"]]["workers"] == 3
    assert [engines.left("r", number) for number in (0, 1)] == [([], []), ([], [])]
    copies = engines.clients[1].volumes(filters={"label": DATA})["Volumes"]
    assert copies
    said = engines("image", "prune", "--hosts")
    for kept in copies:  # other tests may have left some of other data sets
        assert f"removed the copy of {kept['Labels'][DATA]} of " in said
    assert not engines.clients[1].volumes(filters={"label": DATA})["Volumes"]


def test_a_controller_that_dies_leaves_nothing_running(
    engines: Engines,
    eventually: Callable[[Callable[[], Any]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = engines.train("long.yaml", "k")
    there, _ = engines.left("k", 1)
    assert len(there) == 4  # the agent and three workers
    monkeypatch.setenv("DOCKER_HOST", engines.addresses[1])
    assert DockerDriver().find() == ()  # `down` on that host would not touch them
    sources = [
        mount["Source"] for one in there for mount in one["Mounts"] if mount["Type"] == "bind"
    ]
    assert all(source.startswith(("/var/lib/docker/volumes", "/sys")) for source in sources)
    assert engines("exec", "k", "w3", "--", "hostname").strip() == "w3"
    assert "changed 2 links" in engines("net", "set", "k", "class=slow", "--up", "5mbit")
    assert "rate 5mbit" in engines("net", "show", "k")
    assert "2 links" in engines("net", "reset", "k", "class=slow")
    assert "slow" in engines("net", "probe", "k")
    events = RunFolder(engines.folder / "runs" / "k").events

    def recorded() -> list[LinkChanged]:
        return [one for one in only(read_events(events), LinkChanged) if one.action == "recorded"]

    eventually(lambda: {node for one in recorded() for node in one.nodes} == {"w2", "w3"})
    assert all(-0.01 < one.actual - one.planned < 600 for one in recorded())  # by one clock
    assert " frames, " in engines("net", "capture", "k", "w3", "--seconds", "1", "--to", "w3.pcap")
    captured = (engines.folder / "w3.pcap").read_bytes()
    assert captured.startswith(HEADER)
    assert len(captured) > 10_000
    controller.kill()
    controller.communicate()
    second = json.loads((engines.folder / "runs/k/plan.json").read_text())["hosts"][1]["name"]
    for number in (0, 1):
        eventually(lambda n=number: all(o["State"] == "exited" for o in engines.left("k", n)[0]))
    assert f"k: stopped; removed what it had on {second}\n" in engines("down", "k")
    assert [engines.left("k", number) for number in (0, 1)] == [([], []), ([], [])]
    assert "nothing to remove" in engines("down", "k")


@pytest.mark.nightly
@pytest.mark.parametrize("moment", range(10))
def test_a_controller_killed_at_any_moment_leaves_nothing_running_after_its_lease(
    engines: Engines, moment: int
) -> None:
    seconds = random.Random(moment).uniform(0.5, 12.0)  # from before the agents to the training
    run = f"m{moment}"
    controller = engines.start("up", "long.yaml", "--name", run)
    time.sleep(seconds)
    controller.kill()
    controller.communicate()
    deadline = time.monotonic() + LEASE_SECONDS
    while running := engines.running(run):
        assert time.monotonic() < deadline, (seconds, running)
        time.sleep(0.1)
    if RunFolder(engines.folder / "runs" / run).run_file.exists():  # else nothing was started
        engines("down", run)
    assert [engines.left(run, number) for number in (0, 1)] == [([], []), ([], [])]


@pytest.mark.nightly
def test_a_lost_host_loses_its_workers_and_the_others_go_on(engines: Engines) -> None:
    controller = engines.train(
        "apart.yaml", "l", "--set", "stop.updates=1500", "--set", "faults=[]"
    )
    client = engines.clients[1]
    (agent,) = (one for one in engines.left("l", 1)[0] if one["Labels"][ROLE] == AGENT)
    pid = client.inspect_container(agent["Id"])["State"]["Pid"]
    command = f"kill -9 $(cat /proc/{pid}/task/{pid}/children)"
    client.exec_start(client.exec_create(agent["Id"], ["sh", "-c", command])["Id"])
    killed = time.time()
    said, _ = controller.communicate(timeout=SECONDS)
    assert controller.returncode == 6, said  # not valid: nodes were lost
    folder = RunFolder(engines.folder / "runs" / "l")
    events = read_events(folder.events)
    lost = [one for one in events if isinstance(one.event, Exited) and one.event.how]
    assert lost[0].time - killed < 5
    ended = {one.event.node: one.event.how for one in lost}
    name = json.loads(folder.plan.read_text())["hosts"][1]["name"]
    assert ended.keys() == {"w1", "w2", "w3"}
    assert all(f"its host {name} is lost" in how for how in ended.values())
    assert folder.log(f"agent@{name}").exists()  # its host can be reached
    run = Run(folder.path)
    assert len(run.updates) == 1500
    assert set(run.updates["worker"].iloc[-100:]) == {0}
    assert [engines.left("l", number) for number in (0, 1)] == [([], []), ([], [])]


def test_a_drained_host_ends_a_run_that_is_to_fail_with_it(engines: Engines) -> None:
    on_lost = "runtime.docker.hosts.swarm.on_lost=fail"
    controller = engines.train("long.yaml", "f", "--set", on_lost)
    name = engines.drain()
    said, errors = controller.communicate(timeout=SECONDS)
    assert controller.returncode == 5, said
    assert f"host {name} is lost: the Swarm drains it" in errors
    assert [engines.left("f", number) for number in (0, 1)] == [([], []), ([], [])]


@pytest.mark.nightly
def test_a_power_cut_of_a_host_before_the_training_ends_the_run(engines: Engines) -> None:
    tool = os.environ["SWARM_HOSTS"]
    settings = ("--set", "workers.count=12", "--set", "faults=[]")
    controller = engines.start("up", "apart.yaml", "--name", "c", *settings)
    # the agent, and some of eight workers
    engines.wait(controller, lambda: len(engines.left("c", 1)[0]) > 2)
    name = json.loads((engines.folder / "runs/c/plan.json").read_text())["hosts"][1]["name"]
    subprocess.run((tool, "crash", name), check=True)
    try:
        _, errors = controller.communicate(timeout=SECONDS)
        found = Run(engines.folder / "runs/c")
        assert (found.state.state, len(found.updates)) == ("failed", 0)
        assert f"host {name} is lost" in errors
        assert "testbed down c" in errors
        assert engines.left("c", 0) == ([], [])
    finally:
        subprocess.run((tool, "up", "2"), check=True, capture_output=True)
    engines("down", "c")
    assert engines.left("c", 1) == ([], [])


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_power_cut_of_a_host(way: str, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("tcp_address") if way == "tcp" else ""
    engines, tool = request.getfixturevalue("engines"), os.environ["SWARM_HOSTS"]
    if address:
        engines.relabel(**{ENGINE_LABEL: address, "rack": "a"})
    # No fault freezes a worker: what is frozen by control groups of version 1 cannot be killed.
    controller = engines.train(
        "apart.yaml", "p", "--set", "stop.updates=1000", "--set", "faults=[]"
    )
    name = json.loads((engines.folder / "runs/p/plan.json").read_text())["hosts"][1]["name"]
    subprocess.run((tool, "crash", name), check=True)
    try:
        _, errors = controller.communicate(timeout=SECONDS)
        assert controller.returncode == 3  # not everything could be removed
        assert f"host {name}" in errors
        assert "Then: testbed down p" in errors
        run = Run(engines.folder / "runs/p")
        assert (len(run.updates), run.state.state) == (1000, "finished")
        assert f"host {name}" in engines("down", "p", status=3)  # named, and repeated below
    finally:
        subprocess.run((tool, "up", "2"), check=True, capture_output=True)
    assert engines.left("p", 0) == ([], [])
    assert engines.left("p", 1)[0]  # stopped
    assert f"p: stopped; removed what it had on {name}\n" in engines("down", "p")
    assert [engines.left("p", number) for number in (0, 1)] == [([], []), ([], [])]


@pytest.fixture
def ssh_address(ssh: Any, swarm: list[str]) -> Iterator[str]:
    """The address of the second engine by ssh, whose server is on that host."""
    assert swarm
    pid = Path("/tmp/swarm-2/pid").read_text().strip()
    inside = ("nsenter", "-t", pid, "-n", "-p", "-m", "-u", "sh", "-c", 'mkdir -p /run/sshd; "$@"')
    with ssh.serve("10.88.0.2", inside=(*inside, "sh")) as port:
        yield f"ssh://root@10.88.0.2:{port}"


@pytest.fixture
def tcp_address(
    certificates: Path, swarm: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of the second engine by TLS; it is started again for that."""
    tool, settings = os.environ["SWARM_HOSTS"], Path("/tmp/swarm-2/etc/daemon.json")
    files = {"tlscacert": "ca.pem", "tlscert": "cert.pem", "tlskey": "key.pem"}
    hosts = ["unix:///var/run/docker.sock", "tcp://10.88.0.2:2376"]
    paths = {name: str(certificates / file) for name, file in files.items()}
    settings.write_text(json.dumps({"hosts": hosts, "tlsverify": True, **paths}))
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    assert swarm
    for command in (("crash", "swarm-2"), ("up", "2")):
        subprocess.run((tool, *command), check=True, capture_output=True)
    yield hosts[1]
    settings.unlink()


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["ssh", "tcp"])
def test_a_run_over_a_host_that_is_reached_as_by_dockers_client(
    way: str,
    request: pytest.FixtureRequest,
    eventually: Callable[[Callable[[], Any]], Any],
) -> None:
    address = request.getfixturevalue(f"{way}_address")
    engines = request.getfixturevalue("engines")
    engines.relabel(**{ENGINE_LABEL: address, "rack": "a"})
    assert "expected" not in engines("hosts")
    controller = engines.train("long.yaml", "s")
    assert len(engines.left("s", 1)[0]) == 4
    assert engines("exec", "s", "w3", "--", "sh", "-c", "cat; hostname").strip() == "w3"
    assert "2 links" in engines("net", "set", "s", "class=slow", "--up", "5mbit")
    controller.kill()
    controller.communicate()
    eventually(lambda: all(one["State"] == "exited" for one in engines.left("s", 1)[0]))
    engines("down", "s")
    assert [engines.left("s", number) for number in (0, 1)] == [([], []), ([], [])]


def test_an_image_is_copied_once_and_compared(engines: Engines) -> None:
    here, there = engines.clients
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    here.import_image_from_data(content.getvalue(), repository="testbed-tiny", tag="1")
    said: list[str] = []
    try:
        identity = here.inspect_image("testbed-tiny:1")["Id"]
        for _ in range(2):
            copy_image(here, there, identity, phase=said.append, to="b")
        assert has_image(there, identity)
        assert said == ["copying the image testbed-tiny:1 (0 MB) to b"]
    finally:
        for client in (here, there):
            if client.images("testbed-tiny"):
                client.remove_image("testbed-tiny:1")
