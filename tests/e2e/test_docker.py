"""Runs in Docker containers from the command line, and what users do to those containers."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.runtimes.docker.image import check_image
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, RuntimeChosen
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Left

pytestmark = [pytest.mark.docker, pytest.mark.slow]

REMOTE = "tcp://127.0.0.1:1"
ENGINE = "/var/run/docker.sock"
PAUSED_SECONDS = 3.0
NODES = ["evaluator", "ps", "w0", "w1", "w2"]
FOREVER = ("--set", "stop.updates=100000000", "--set", "workers.think.mean=20ms")
UNLINKED = ("--set", "workers.classes.fast={share: 0.67}")
"""Links are measured first, which takes longer than all the rest of the bring-up."""

SCENARIO = """\
name: docked
seed: 1
runtime: docker
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 3
  classes:
    fast: {share: 0.67, link: {up: {rate: 50mbit}}}
    slow: {share: 0.33, cpu: 0.5, memory: 256MiB}
stop: {updates: 150}
evaluate: {every: 50, images: 100}
"""


@dataclass
class Dock:
    """The commands of a bed, and the engine that hosts its runs."""

    bed: Any
    engine: Any
    image: str

    def up(self, *options: str) -> Any:
        return self.bed.up(*options, file="docked.yaml")

    def up_and_training(self, *options: str) -> Any:
        up = self.up(*FOREVER, *options)
        up.wait_for_updates(20)
        return up

    def containers(self, run: str) -> dict[str, str]:
        """The state of every container of a run, by name without the common prefix."""
        found = self.engine.containers(all=True, filters={"label": [f"org.edge-testbed.run={run}"]})
        names = {one["Names"][0].removeprefix(f"/testbed-{run}-"): one["State"] for one in found}
        return dict(sorted(names.items()))

    def container(self, up: Any, node: str) -> str:
        return f"testbed-{up.name}-{node}"


@pytest.fixture
def dock(bed: Any, engine: Any) -> Iterator[Dock]:
    bed.scenario("docked.yaml", SCENARIO)
    dock = Dock(bed, engine, check_image(engine))
    yield dock
    for up in bed.started:
        if up.process.poll() is None:
            up.process.kill()
        up.process.communicate()  # which closes its streams too
        if dock.containers(up.name) and up.folder.path.exists():
            assert bed.run("down", str(up.folder.path)).status == 0


def test_a_whole_run(dock: Dock) -> None:
    """With the runtime that auto selects where an engine answers."""
    up = dock.up("--runtime", "auto")
    up.wait_for(lambda: len(dock.containers(up.name)) == len(NODES) + 1)
    done = up.end()
    assert done.status in (0, 6), done.err  # a busy host spoils the measured rates
    assert done.err.startswith("runtime docker: its engine answers")
    (said,) = only(read_events(up.folder.events), RuntimeChosen)
    assert (said.name, dock.image in said.why) == ("docker", True)
    lines = [line.strip() for line in done.out.splitlines()]
    assert "creating 5 containers" in lines
    assert "all containers are removed" in lines
    assert dock.containers(up.name) == {}
    assert dock.bed.remains(up.name) == []
    summary = json.loads(up.folder.summary.read_text())
    assert summary["updates"]["total"] == 150
    assert summary["ingress"]["tcp_bytes"] > summary["ingress"]["payload_bytes"] > 0
    assert summary["memory"]["worker_private_bytes_median"] > 0
    assert "runtime:\n  name: docker\n" in up.folder.scenario.read_text()
    assert json.loads(up.folder.environment.read_text())["runtime"] == "docker"


def assert_limited(dock: Dock, up: Any) -> None:
    """Containers match the scenario, and have no privileges."""
    told = dock.engine.inspect_container(dock.container(up, "w2"))
    asked = told["HostConfig"]
    assert (asked["NetworkMode"], asked["ReadonlyRootfs"]) == ("none", True)
    assert (asked["CapDrop"], asked["Privileged"]) == (["ALL"], False)
    assert asked["RestartPolicy"]["Name"] in ("", "no")
    assert (asked["Memory"], asked["CpuQuota"] / asked["CpuPeriod"]) == (2**28, 0.5)
    labels = told["Config"]["Labels"]
    given = {name: labels[f"org.edge-testbed.{name}"] for name in ("run", "role", "index", "class")}
    assert given == {"run": up.name, "role": "worker", "index": "2", "class": "slow"}
    assert told["Config"]["User"] == "20012:20012"


def test_commands_and_the_engine_show_a_running_run(dock: Dock) -> None:
    up = dock.up_and_training()
    assert sorted(dock.containers(up.name)) == sorted(["agent", *NODES])
    assert_limited(dock, up)
    assert {row["condition"] for row in dock.bed.nodes(up.name).values()} == {"running"}
    entered = dock.bed.run("exec", up.name, "w1", "--", "sh", "-c", "id -u; hostname; exit 7")
    assert (entered.out, entered.status) == ("20011\nw1\n", 7)
    shown = dock.bed.run("net", "show", up.name, "--json").json
    assert {row["node"] for row in shown} == {"ps", "w0", "w1", "w2"}
    assert all(not row["differences"] for row in shown)
    (measured,) = dock.bed.run("net", "probe", up.name, "--json").json
    assert measured["class"] == "fast"
    assert sorted(dock.containers(up.name)) == sorted(["agent", *NODES])  # probes are gone
    changed = dock.bed.run("net", "set", up.name, "--class", "fast", "--up", "1mbit")
    assert "changed 2 links" in changed.out
    assert "reset 2 links" in dock.bed.run("net", "reset", up.name).out
    assert dock.bed.run("wait", up.name, "--timeout", "0.5").status == 124
    assert dock.bed.run("down", up.name).out == f"{up.name}: stopped\n"
    assert dock.containers(up.name) == {}
    assert up.end().status == 130
    assert dock.bed.run("down", up.name).out == f"{up.name}: nothing to remove\n"


def test_paused_nodes_are_reported_as_frozen_and_do_not_block_down(dock: Dock) -> None:
    up = dock.up_and_training(*UNLINKED)
    dock.engine.pause(dock.container(up, "w1"))
    assert dock.bed.nodes(up.name)["w1"]["condition"] == "frozen"
    refused = dock.bed.run("exec", up.name, "w1", "--", "true")
    assert (refused.status, "w1 is frozen" in refused.err) == (5, True)
    dock.engine.unpause(dock.container(up, "w1"))
    assert dock.bed.nodes(up.name)["w1"]["condition"] == "running"
    dock.engine.pause(dock.container(up, "ps"))
    time.sleep(PAUSED_SECONDS)  # under test: it is paused for this long
    dock.engine.unpause(dock.container(up, "ps"))
    up.wait_for(lambda: "gap" in up.events())
    reasons = dock.bed.run("report", up.name, "--json").json["verdict"]["reasons"]
    assert any(one.startswith("The parameter server did not execute for ") for one in reasons), (
        reasons
    )
    dock.engine.pause(dock.container(up, "w1"))
    assert dock.bed.run("down", up.name).status == 0
    assert dock.containers(up.name) == {}


def test_workers_with_removed_containers_are_lost_and_the_others_continue(dock: Dock) -> None:
    """One is removed, and another is stopped, which takes a second."""
    up = dock.up_and_training(*UNLINKED)
    dock.engine.remove_container(dock.container(up, "w0"), force=True)
    dock.engine.stop(dock.container(up, "w2"), timeout=1)
    gone, why = ("w0", "w2"), "its container was stopped or removed"
    up.wait_for(lambda: up.events().count("exited") == len(gone))
    lost = only(read_events(up.folder.events), Exited)
    assert [(one.node, one.status, one.planned) for one in lost] == [
        (node, -signal.SIGKILL, False) for node in gone
    ]
    up.wait_for(lambda: up.events().count("left") == len(gone))
    left = only(read_events(up.folder.events), Left)
    assert left == [Left(node, f"{node}: {why}") for node in gone]
    states = {name: row["condition"] for name, row in dock.bed.nodes(up.name).items()}
    assert states == {name: "ended" if name in gone else "running" for name in states}
    assert dock.bed.run("down", up.name).status == 0
    said = up.end()
    assert all(f"{node}: {why}; the other nodes continue" in said.out + said.err for node in gone)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            "agent",
            "the agent has ended before it answered exits: its container was stopped, killed or",
        ),
        ("ps", "ps: its container was stopped or removed"),
    ],
)
def test_without_its_agent_or_server_a_run_ends_with_the_reason(
    dock: Dock, node: str, reason: str
) -> None:
    up = dock.up_and_training(*UNLINKED)
    dock.engine.kill(dock.container(up, node))
    done = up.end()
    assert done.status == 5
    assert reason in done.err
    assert dock.containers(up.name) == {}
    state = up.folder.state()
    assert (state.state, reason in state.reason) == ("failed", True)
    assert up.folder.log("ps").exists()


def test_a_run_whose_controller_was_killed_is_ended_by_down(dock: Dock) -> None:
    up = dock.up_and_training(*UNLINKED)
    up.process.kill()
    up.process.communicate()
    assert dock.bed.run("down", "--all").status == 0
    assert dock.containers(up.name) == {}
    assert up.folder.state().state == "interrupted"


def test_a_detached_run_that_is_kept(dock: Dock) -> None:
    name = dock.bed.new_name()
    begun = dock.bed.start("up", "docked.yaml", "--name", name, "--detach", "--keep")
    assert begun.end().status == 0
    assert dock.bed.run("wait", name).status in (0, 6)
    assert dock.containers(name)["w0"] == "running"
    kept = {row["run"]: row["state"] for row in dock.bed.run("ps", "--json").json}
    assert kept[name] == "finished, containers kept"
    assert dock.bed.run("exec", name, "w0", "--", "hostname").out == "w0\n"
    assert dock.bed.run("down", name).status == 0
    assert dock.containers(name) == {}


def test_a_name_in_use_in_the_engine_is_refused(dock: Dock) -> None:
    name = dock.bed.new_name()
    other = dock.engine.create_container(dock.image, name=f"testbed-{name}-w1")["Id"]
    try:
        done = dock.bed.start("up", "docked.yaml", "--name", name).end()
        assert done.status in (3, 5)
        assert f"testbed-{name}-w1" in done.err
        assert dock.containers(name) == {}
        assert dock.engine.inspect_container(other)["State"]["Status"] == "created"
    finally:
        dock.engine.remove_container(other, force=True)


@pytest.mark.root
def test_auto_selects_native_for_a_remote_engine_and_says_why(bed: Any) -> None:
    bed.scenario("docked.yaml", SCENARIO)
    words = ("up", "docked.yaml", "--runtime", "auto", "--name", bed.new_name())
    up = bed.start(*words, "--set", "stop.updates=20", DOCKER_HOST=REMOTE)
    ended = up.end()
    assert ended.status in (0, 6)
    (said,) = only(read_events(up.folder.events), RuntimeChosen)
    assert (said.name, REMOTE in said.why) == ("native", True)
    assert ended.err.startswith(f"runtime native: DOCKER_HOST is {REMOTE}")
    assert "runtime:\n  name: native\n" in up.folder.scenario.read_text()


def test_a_remote_engine_is_refused_before_anything_is_created(bed: Any) -> None:
    bed.scenario("docked.yaml", SCENARIO)
    done = bed.run("up", "docked.yaml", DOCKER_HOST=REMOTE)
    assert done.status == 3
    assert done.err.startswith(f"DOCKER_HOST is {REMOTE}")
    assert not bed.runs.exists() or list(bed.runs.iterdir()) == []
    examined = bed.run("doctor", "docked.yaml", "--json", DOCKER_HOST=REMOTE)
    found = {finding["check"]: finding for finding in examined.json}
    assert (examined.status, found["engine"]["level"]) == (3, "missing")


@pytest.mark.root
def test_a_missing_engine_does_not_block_down_of_native_runs(dock: Dock) -> None:
    docked = dock.up_and_training(*UNLINKED)
    native = dock.bed.start("up", "docked.yaml", "--runtime", "native", *FOREVER, *UNLINKED,
                            "--name", dock.bed.new_name())  # fmt: skip
    native.wait_for_updates(20)
    done = dock.bed.run("down", "--all", DOCKER_HOST=f"unix://{dock.bed.path}/nowhere.sock")
    assert done.status == 3
    assert f"{native.name}: stopped" in done.out
    assert f"{docked.name}: NOT stopped" in done.out
    assert "No Docker engine answers" in done.err
    assert docked.process.poll() is None


@dataclass
class Relay:
    """Forwards a socket to the engine's until it is cut."""

    path: Path
    ends: list[socket.socket] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen()
        self.ends.append(listener)
        self._start(self._accept, listener)

    def cut(self) -> None:
        """Stop answering."""
        self.path.unlink()
        for end in tuple(self.ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for end in self.ends:
            end.close()

    def _start(self, target: Callable[..., None], *words: socket.socket) -> None:
        thread = threading.Thread(target=target, args=words)
        self.threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # until the listener is shut down
            while True:
                near, far = listener.accept()[0], socket.socket(socket.AF_UNIX)
                self.ends += (near, far)
                far.connect(ENGINE)
                self._start(_pass_on, near, far)
                self._start(_pass_on, far, near)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    relay = Relay(tmp_path / "relay.sock")
    yield relay
    if relay.path.exists():
        relay.cut()


def test_an_engine_that_stops_answering_is_reported_at_the_end(dock: Dock, relay: Relay) -> None:
    words = ("up", "docked.yaml", *FOREVER, *UNLINKED, "--name", dock.bed.new_name())
    up = dock.bed.start(*words, DOCKER_HOST=f"unix://{relay.path}")
    up.wait_for_updates(20)
    relay.cut()
    done = up.signal(signal.SIGINT)
    assert done.status in (3, 130)
    assert "No Docker engine answers" in done.err
    assert up.folder.state().state == "interrupted"
    assert dock.containers(up.name) != {}
    assert dock.bed.run("down", up.name).status == 0
    assert dock.containers(up.name) == {}
    assert os.path.lexists(up.folder.log("w0"))
