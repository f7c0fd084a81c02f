"""The agents of several hosts as one client; the clock of one of them is an hour ahead."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.hosts import HostAgents
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.relay import carry
from testbed.telemetry.wall import WALL

HOUR = 3600.0
RESENT = {"retransmitted_in_bytes": {"w0": 10}}
LOAD = {"busy_ratio": 0.5, "available_bytes": 1000, "pressure_ratio": None}


@dataclass
class Agent:
    """Answers requests at the end of a relay, by a clock of its own."""

    ahead: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> Any:
        self.asked.append(request)
        match request["method"]:
            case "clock":
                return WALL() + self.ahead
            case "load":
                return LOAD
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
        with stream, stream.makefile("rwb", buffering=0) as file:
            for line in file:
                request = json.loads(line)
                reply = {"id": request["id"], "result": self.answer(request)}
                file.write(json.dumps(reply).encode() + b"\n")


@pytest.fixture
def connect() -> Iterator[Callable[[Agent], AgentClient]]:
    """Returns a client of an agent behind a relay, as on another host."""
    threads, held = [], []

    def connected(agent: Agent) -> AgentClient:
        here, engine = socket.socketpair()
        peer, served = socket.socketpair()
        held.extend((engine, peer))
        reader, writer = os.dup(engine.fileno()), os.dup(engine.fileno())
        for target, arguments in ((agent.serve, (served,)), (carry, (reader, writer, peer))):
            threads.append(threading.Thread(target=target, args=arguments))
            threads[-1].start()
        return AgentClient(Lines.over(here, line_bytes=10_000), 0)

    yield connected
    for one in held:
        one.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
    for one in held:
        one.close()


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
    assert abs(found.clock.seconds - HOUR) <= found.clock.error_seconds < 0.1
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
