"""Runs over two engines whose parameter server is on the second."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from swarm_engines import SECONDS, Engines

from testbed.models.metrics import ACCURACY
from testbed.network.capture import HEADER
from testbed.reports.frames import Run
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, LinkChanged, LinksRead, RateMeasured
from testbed.telemetry.events import follow_ps_events, read_events
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Done, Finished, Left, Restored, Saved

pytestmark = [pytest.mark.docker, pytest.mark.root]

PLACED = ("--set", "runtime.docker.hosts.swarm.placement={ps: rack=a, fast: rack=a}")
NO_FAULTS = ("--set", "faults=[]")


def folder_of(engines: Engines, run: str) -> RunFolder:
    return RunFolder(engines.folder / "runs" / run)


def check_nothing_left(engines: Engines, run: str) -> None:
    assert [engines.left(run, number) for number in (0, 1)] == [([], []), ([], [])]


def test_a_run_whose_server_is_on_another_host(engines: Engines) -> None:
    up = engines.start("up", "apart.yaml", "--name", "s", *PLACED, "--set", "stop.updates=500")
    said, errors = up.communicate(timeout=SECONDS)
    assert up.returncode in (0, 6), said + errors  # not valid if other tests keep the host busy
    folder = folder_of(engines, "s")
    plan = json.loads(folder.plan.read_text())
    here, there = (host["name"] for host in plan["hosts"])
    hosts = {node["name"]: node["host"] for node in plan["nodes"]}
    assert {name for name, host in hosts.items() if host == there} >= {"ps", "evaluator"}
    assert hosts["w2"] == here
    events = read_events(folder.events)
    (read,) = only(events, LinksRead)
    assert (read.checked, read.differences) == (5, ())
    assert only(events, RateMeasured)
    (finished,) = only(events, Finished)
    own = follow_ps_events(folder.ps_events).read()
    assert only(own, Finished) == [finished]
    assert only(own, Done)[0].evaluated
    times = [one.time for one in own]
    assert events[0].time < times[0] < times[-1] < events[-1].time  # by one clock
    run = Run(folder.path)
    assert len(run.updates) == 500
    assert run.evaluations[ACCURACY].iloc[-1] > 0.5
    assert run.summary["ingress"]["payload_bytes"] > 0
    assert run.summary["ingress"]["wire_bytes"] > run.summary["ingress"]["tcp_bytes"]
    for model in ("best", "final"):
        assert (folder.model / f"{model}.safetensors").stat().st_size > 0
    assert not folder.ps_socket.exists()
    check_nothing_left(engines, "s")


@pytest.mark.nightly
def test_what_is_done_to_a_run_reaches_a_server_on_another_host(
    engines: Engines, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    controller = engines.train("long.yaml", "k", *PLACED)
    folder = folder_of(engines, "k")
    assert engines("exec", "k", "ps", "--", "hostname").strip() == "ps"
    assert "changed 1 link" in engines("net", "set", "k", "ps", "--up", "50mbit")
    assert "rate 50mbit" in engines("net", "show", "k", "ps")
    assert "1 link" in engines("net", "reset", "k", "ps")
    assert "slow" in engines("net", "probe", "k")
    assert " frames, " in engines("net", "capture", "k", "ps", "--seconds", "1", "--to", "ps.pcap")
    assert (engines.folder / "ps.pcap").read_bytes().startswith(HEADER)
    assert {one.nodes for one in only(read_events(folder.events), LinkChanged)} >= {("ps",)}
    for worker in ("w1", "w2"):  # of either host
        engines("exec", "k", worker, "--", "sh", "-c", "kill -9 -1")

    def left() -> set[str]:
        return {one.node for one in only(read_events(folder.events), Left) if one.reason}

    eventually(lambda: left() >= {"w1", "w2"})  # the controller has told the server
    controller.kill()
    controller.communicate()
    for number in (0, 1):
        eventually(lambda n=number: all(o["State"] == "exited" for o in engines.left("k", n)[0]))
    engines("down", "k")
    assert (folder.model / "best.safetensors").exists()
    assert len(Run(folder.path).updates) > 0
    check_nothing_left(engines, "k")


@pytest.mark.nightly
@pytest.mark.parametrize("killed", ["process", "container"])
def test_a_server_that_is_killed_on_another_host_resumes_there(
    killed: str, engines: Engines, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    settings = ("--set", "checkpoint.every=100", "--set", "stop.updates=1500")
    controller = engines.train("apart.yaml", "c", *PLACED, *NO_FAULTS, *settings)
    folder = folder_of(engines, "c")
    eventually(lambda: only(read_events(folder.events), Saved))
    if killed == "process":
        engines("exec", "c", "ps", "--", "sh", "-c", "kill -9 -1")
    else:
        engines.clients[1].kill("testbed-c-ps")
    said, errors = controller.communicate(timeout=SECONDS)
    assert controller.returncode == 6, said + errors  # an outage is not part of the scenario
    events = read_events(folder.events)
    (restored,) = only(events, Restored)
    assert next(one.restarted for one in only(events, Exited) if one.node == "ps")
    updates = Run(folder.path).updates
    assert updates["version_applied"].tolist() == list(range(1500))
    assert 0 < restored.version < 1500
    assert not folder.checkpoint.exists()
    check_nothing_left(engines, "c")


@pytest.mark.nightly
def test_a_run_fails_with_the_host_of_its_server(engines: Engines) -> None:
    controller = engines.train("long.yaml", "l", *PLACED, *NO_FAULTS)
    name = engines.drain()
    said, errors = controller.communicate(timeout=SECONDS)
    assert controller.returncode == 5, said
    assert f"host {name} is lost: the Swarm drains it. It had the parameter server." in errors
    folder = folder_of(engines, "l")
    assert folder.state().state == "failed"
    assert len(Run(folder.path).updates) > 0
    check_nothing_left(engines, "l")


@pytest.mark.nightly
def test_a_power_cut_of_the_host_of_the_server_ends_the_run(engines: Engines) -> None:
    tool = os.environ["SWARM_HOSTS"]
    controller = engines.train("long.yaml", "o", *PLACED, *NO_FAULTS)
    folder = folder_of(engines, "o")
    name = json.loads(folder.plan.read_text())["hosts"][1]["name"]
    subprocess.run((tool, "crash", name), check=True)
    try:
        _, errors = controller.communicate(timeout=SECONDS)
        assert controller.returncode == 3  # not everything could be removed
        assert "It had the parameter server" in errors
        assert f"remain on this host: host {name}" in errors
        assert "Then: testbed down o" in errors
        assert folder.state().state == "failed"
        assert f"host {name} is lost: the stream to its agent has ended" in folder.state().reason
        assert engines.left("o", 0) == ([], [])
    finally:
        subprocess.run((tool, "up", "2"), check=True, capture_output=True)
    engines("down", "o")
    check_nothing_left(engines, "o")


@pytest.mark.nightly
def test_a_server_that_is_kept_is_removed_later(engines: Engines) -> None:
    settings = ("--keep", "--set", "stop.updates=100")
    up = engines.start("up", "apart.yaml", "--name", "e", *PLACED, *NO_FAULTS, *settings)
    said, errors = up.communicate(timeout=SECONDS)
    assert up.returncode in (0, 6), said + errors
    assert (folder_of(engines, "e").model / "final.safetensors").exists()
    assert engines.left("e", 1)[0]
    engines("down", "e")
    check_nothing_left(engines, "e")
