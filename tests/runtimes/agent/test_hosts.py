"""The agents of several hosts as one client; the clock of one of them is an hour ahead."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from far_agents import HOUR, Agent, far_agents

from testbed.errors import HostLostError, NodeError
from testbed.runtimes.agent.client import AgentClient, AgentEndedError
from testbed.runtimes.agent.hosts import HostAgents
from testbed.runtimes.agent.launch import Exit, LaunchSpec
from testbed.runtimes.agent.lines import Lines
from testbed.values.topology import NetworkSpec, NodeSpec


@pytest.fixture
def connect() -> Iterator[Callable[[Agent], AgentClient]]:
    """Returns a client of an agent behind a relay, as on another host."""
    with far_agents() as connected:
        yield connected


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
    there = Agent(ahead=HOUR, dies_of="written", ended=["w0"])
    agents = {"a": connect(Agent()), "b": connect(there)}
    with HostAgents(agents, {}, here="a", goes_on=True) as hosts:
        assert hosts.launch(LAUNCH) == 7
        assert hosts.exits(within_seconds=5.0) == [Exit("w0", 0)]
        assert hosts.lost == {"b": "the stream to its agent has ended"}
        hosts.copy_logs()
        assert hosts.exits() == []


def test_no_run_continues_without_the_host_of_its_server(
    connect: Callable[[Agent], AgentClient],
) -> None:
    agents = {"a": connect(Agent()), "b": connect(Agent(ahead=HOUR, dies_of="running"))}
    with HostAgents(agents, {}, here="a", server="b", goes_on=True) as hosts:
        assert hosts.count().wire_rx_bytes == HOUR
        lost = pytest.raises(HostLostError, match=r"host b is lost: .* It had the parameter server")
        with lost:
            hosts.running()
        with lost:
            hosts.exits()


def test_draining_this_host_ends_nothing(connect: Callable[[Agent], AgentClient]) -> None:
    agents = {"a": connect(Agent()), "b": connect(Agent())}
    drained = {"a": "the Swarm drains it"}
    with HostAgents(agents, {}, here="a", drained=lambda: drained) as hosts:
        assert [one.name for one in hosts.other_hosts()] == ["b"]
        assert hosts.lost == {}
