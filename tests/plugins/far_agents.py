"""Agents in threads of the test, behind relays, as those of other hosts."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from testbed.errors import TestbedError
from testbed.host.reports import encode_error
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.logs import Logs
from testbed.runtimes.agent.operations import Requests
from testbed.runtimes.agent.relay import carry
from testbed.telemetry.wall import WALL

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
    disk: Path = Path("/")  # where this host has the files

    def answer(self, request: dict[str, Any]) -> Any:
        self.asked.append(request)
        match request["method"]:
            case "clock":
                return WALL() + self.ahead
            case "load":
                return LOAD
            case "launch":
                return 7
            case "count":
                return {"wire_rx_bytes": int(self.ahead), **RESENT}
            case "written":
                return self.written(request["since"])
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

    def written(self, since: dict[str, int]) -> dict[str, str]:
        nodes = cast(Any, SimpleNamespace(spawner=SimpleNamespace(logs=Logs())))
        there = {self.disk / path.lstrip("/"): read for path, read in since.items()}
        found = Requests(nodes).written(there)
        return {f"/{path.relative_to(self.disk)}": data for path, data in found.items()}

    @staticmethod
    def change(nodes: list[str], planned: float, actual: float) -> dict[str, Any]:
        times = {"planned": planned, "actual": actual}
        return {"action": "set", "nodes": nodes, "up": None, "down": None, "failure": "", **times}

    def serve(self, stream: socket.socket) -> None:
        left = suppress(BrokenPipeError, ConnectionResetError)  # by the client; replies were unread
        with left, stream, stream.makefile("rwb", buffering=0) as file:
            for line in file:
                request = json.loads(line)
                if request["method"] == self.dies_of:
                    return
                reply = {"id": request["id"]}
                try:
                    reply["result"] = self.answer(request)
                except TestbedError as error:
                    reply["error"] = encode_error(error)
                file.write(json.dumps(reply).encode() + b"\n")


@contextmanager
def far_agents() -> Iterator[Callable[[Agent], AgentClient]]:
    """Yield a function that returns a client of an agent behind a relay."""
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
        return AgentClient(Lines.over(here, line_bytes=2**20), 0)

    yield connected
    for thread in threads:
        thread.join(timeout=180)
        assert not thread.is_alive()
