"""The agents of several hosts as one client; the clock of one of them is an hour ahead."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostLostError, NodeError
from testbed.runtimes.agent.client import AgentClient, AgentEndedError
from testbed.runtimes.agent.hosts import HostAgents
from testbed.runtimes.agent.launch import Exit, LaunchSpec
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.relay import carry
from testbed.telemetry.wall import WALL
from testbed.values.topology import NetworkSpec, NodeSpec

HOUR = 3600.0
RESENT = {"retransmitted_in_bytes": {"w0": 10}}
LOAD = {"busy_ratio": 0.5, "available_bytes": 1000, "pressure_ratio": None}


@dataclass
class Agent:
    """Answers requests at the end of a relay, by a clock of its own."""

    ahead: float = 0.0
    dies_of: str = ""
    ended: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> Any:
        self.asked.append(request)
        match request["method"]:
            case "clock":
                return WALL() + self.ahead
            case "load":
                return LOAD
            case "launch":
                return 7
            case "running":
                return ["w0" if self.ahead else "ps"]
            case "exits":
                return [{"node": node, "status": 0} for node in self.ended[request["since"] :]]
            case "reshape":
                planned = request.get("planned") or WALL() + self.ahead
                return self.change(request["nodes"], planned, planned + 0.5)
            case "link_changes":
                return [self.change(["w0"], 1000.0 + self.ahead, 1001.0 + self.ahead)]
        raise AssertionError(request)

    @staticmethod
    def change(nodes: list[str], planned: float, actual: float) -> dict[str, Any]:
        times = {"planned": planned, "actual": actual}
        return {"action": "set", "nodes": nodes, "up": None, "down": None, "failure": "", **times}

    def serve(self, stream: socket.socket) -> None:
        left = suppress(BrokenPipeError)  # by the client
        with left, stream, stream.makefile("rwb", buffering=0) as file:
            for line in file:
                request = json.loads(line)
                if request["method"] == self.dies_of:
                    return
                reply = {"id": request["id"], "result": self.answer(request)}
                file.write(json.dumps(reply).encode() + b"\n")


@pytest.fixture
def connect() -> Iterator[Callable[[Agent], AgentClient]]:
    """Returns a client of an agent behind a relay, as on another host."""
    threads = []

    def relay(engine: int, peer: socket.socket) -> None:
        with peer:
            carry(engine, engine, peer)
        os.close(engine)

    def connected(agent: Agent) -> AgentClient:
        here, engine = socket.socketpair()
        peer, served = socket.socketpair()
        for target, arguments in ((agent.serve, (served,)), (relay, (engine.detach(), peer))):
            threads.append(threading.Thread(target=target, args=arguments))
            threads[-1].start()
        return AgentClient(Lines.over(here, line_bytes=10_000), 0)

    yield connected
    for thread in threads:
        thread.join(timeout=180)
        assert not thread.is_alive()


@pytest.fixture
def pair(connect: Callable[[Agent], AgentClient]) -> Iterator[tuple[HostAgents, Agent, Agent]]:
    here, there = Agent(), Agent(ahead=HOUR)
    agents = {"a": connect(here), "b": connect(there)}
    with HostAgents(agents, {"ps": "a", "w0": "b"}, here="a") as hosts:
        yield hosts, here, there


def test_the_clock_of_another_host_is_measured_within_its_error(
    pair: tuple[HostAgents, Agent, Agent],
) -> None:
    hosts, here, _ = pair
    (found,) = hosts.other_hosts()
    assert (found.name, found.sample.busy_ratio) == ("b", 0.5)
    assert abs(found.clock.seconds - HOUR) <= found.clock.error_seconds < HOUR / 100
    assert here.asked == []


def test_times_of_another_host_are_converted_to_this_ones(
    pair: tuple[HostAgents, Agent, Agent],
) -> None:
    hosts, _, there = pair
    (error,) = (one.clock.error_seconds for one in hosts.other_hosts())
    made = hosts.reshape(["w0"], planned=2000.0)
    (asked,) = (one for one in there.asked if one["method"] == "reshape")
    assert asked["planned"] == pytest.approx(2000.0 + HOUR, abs=error)
    assert made.actual - made.planned == pytest.approx(0.5)
    assert made.planned == pytest.approx(2000.0)
    first, second = hosts.link_changes()  # one of each host, at the same time
    assert first.actual == pytest.approx(second.actual, abs=error)
    assert first.actual == pytest.approx(1001.0, abs=error)


NODE = NodeSpec("w0", "worker", 0, "slow", None, None, None, 1, 20010, host="b", part="client")
LAUNCH = LaunchSpec(NODE, NetworkSpec(), "x:y", {}, Path("/none"))


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_host_whose_stream_has_ended_is_lost(
    connect: Callable[[Agent], AgentClient], *, goes_on: bool
) -> None:
    agents = {"a": connect(Agent()), "b": connect(Agent(ahead=HOUR, dies_of="running"))}
    with HostAgents(agents, {}, here="a", goes_on=goes_on) as hosts:
        assert hosts.launch(LAUNCH) == 7
        if not goes_on:
            with pytest.raises(
                NodeError, match="host b is lost: the stream to its agent has ended"
            ):
                hosts.running()
            with pytest.raises(HostLostError, match="host b is lost: the stream") as told:
                hosts.exits()  # although the first error was passed over
            assert "logs/agent@b.log" in told.value.hint
            return
        assert hosts.running() == ["ps"]
        assert hosts.exits() == [Exit("w0", -9, lost="the stream to its agent has ended")]
        assert hosts.exits() == []
        assert hosts.other_hosts() == []
        asks: list[Callable[[], Any]] = [
            lambda: hosts.freeze("w0"),
            lambda: hosts.reshape(["w0"]),
            lambda: hosts.require_host("b"),
        ]
        for ask in asks:
            with pytest.raises(HostLostError, match="host b is lost"):
                ask()


def test_a_node_launched_on_a_lost_host_is_lost(connect: Callable[[Agent], AgentClient]) -> None:
    agents = {"a": connect(Agent()), "b": connect(Agent(ahead=HOUR, dies_of="launch"))}
    with HostAgents(agents, {}, here="a", goes_on=True) as hosts:
        for _ in range(2):  # as the host is lost, and after that
            assert hosts.launch(LAUNCH) is None
            assert hosts.exits() == [Exit("w0", -9, lost="the stream to its agent has ended")]
    agents = {"a": connect(Agent()), "b": connect(Agent(ahead=HOUR, dies_of="launch"))}
    with HostAgents(agents, {}, here="a") as hosts, pytest.raises(NodeError, match="host b is lo"):
        hosts.launch(LAUNCH)


def test_links_are_changed_on_the_hosts_that_are_left(
    connect: Callable[[Agent], AgentClient],
) -> None:
    agents = {"a": connect(here := Agent())}
    placed = {"w0": "b", "w1": "b", "w2": "a"}
    with HostAgents(agents, placed, here="a", lost={"b": "it is off"}) as hosts:
        with pytest.raises(HostLostError) as refused:
            hosts.reshape(["w0", "w1", "w2"])
        assert refused.value.message == (
            "w0, w1: host b is lost: it is off. The links of nodes on other hosts are changed."
        )
        assert [one["nodes"] for one in here.asked] == [["w2"]]


def test_a_request_notices_a_lost_host(connect: Callable[[Agent], AgentClient]) -> None:
    agents = {"a": connect(Agent()), "b": connect(Agent(ahead=HOUR, dies_of="freeze"))}
    lost = pytest.raises(HostLostError, match="host b is lost: the stream to its agent")
    with HostAgents(agents, {"w0": "b"}, here="a", goes_on=True) as hosts, lost:
        hosts.freeze("w0")


def test_an_agent_that_ends_is_noticed_although_its_stream_stays_open() -> None:
    (here, stream), (watch, container) = socket.socketpair(), socket.socketpair()
    lines = Lines.over(here, line_bytes=10_000)
    lines.other_end = watch.detach()
    with stream, AgentClient(lines, 0) as agent:
        assert agent.exits() == []
        container.close()
        with pytest.raises(AgentEndedError):
            agent.running()


def test_the_output_of_a_node_that_ended_before_its_host_was_lost(
    connect: Callable[[Agent], AgentClient],
) -> None:
    there = Agent(ahead=HOUR, dies_of="printed", ended=["w0"])
    agents = {"a": connect(Agent()), "b": connect(there)}
    with HostAgents(agents, {}, here="a", goes_on=True) as hosts:
        assert hosts.launch(LAUNCH) == 7
        assert hosts.exits(within_seconds=5.0) == [Exit("w0", 0)]
        assert hosts.lost == {"b": "the stream to its agent has ended"}
        hosts.copy_logs()
        assert hosts.exits() == []


def test_draining_this_host_ends_nothing(connect: Callable[[Agent], AgentClient]) -> None:
    agents = {"a": connect(Agent()), "b": connect(Agent())}
    drained = {"a": "the Swarm drains it"}
    with HostAgents(agents, {}, here="a", drained=lambda: drained) as hosts:
        assert [one.name for one in hosts.other_hosts()] == ["b"]
        assert hosts.lost == {}
