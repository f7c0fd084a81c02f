"""How long 1,000 nodes on one switch take to start and to stop: as root or user.

    python tests/bench/thousand_nodes.py [nodes, default 1000]

The agent launches them warm, as those of a run, but what they execute needs no torch: every one
connects to the PS, which asks all of them at once when the last is there, and each has to answer.
Prints a table, and JSON to benches/thousand_nodes.json, which also lists what was left behind.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.host.hierarchies import find_delegated, find_hierarchies
from testbed.host.process import Process
from testbed.network.interfaces import Neighbour
from testbed.network.offloads import network_for
from testbed.plan.make import plan
from testbed.run.deploy import Pending
from testbed.run.training_start import LAUNCHES_AHEAD
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import Start
from testbed.runtimes.native.driver import NativeDriver
from testbed.scenario import load_text
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import PROC, describe_host
from testbed.values.topology import NodeSpec, Plan

HERE = Path(__file__).resolve().parent
MODULE = Path(__file__).stem
ENVIRONMENT = {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}
SCENARIO = """
name: thousand
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {{count: {workers}}}
stop: {{updates: 1}}
"""
PORT = 5000
PATIENCE_SECONDS = 120.0


def main(nodes: int) -> None:
    """Measure, print, write."""
    results: dict[str, Any] = {"host": dict(describe_host(PROC)), "nodes": nodes}
    with tempfile.TemporaryDirectory() as runs:
        results |= bring_up_and_remove(nodes, Path(runs))
    for name, value in results.items():
        print(f"{name:20} {value if not isinstance(value, float) else round(value, 1)}")
    target = Path("benches/thousand_nodes.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2) + "\n")


def bring_up_and_remove(nodes: int, runs: Path) -> dict[str, Any]:
    """The whole life of a run with this many workers."""
    name = f"thousand-{os.getpid()}"
    text = SCENARIO.format(workers=nodes)
    folder = RunFolder.create(
        runs, name, scenario="thousand", text=text, classes=(), now=time.time()
    )
    made = plan(load_text(text), name)
    start = Start(template=Template(preload=(MODULE,)), environment=ENVIRONMENT)
    begin = time.monotonic()
    with NativeDriver().start(made, folder, start) as lifeline:
        with AgentClient.connect(folder.control / "agent.sock", deadline=begin + 60) as agent:
            living = [brought_up(agent.begin_launch(launch_of(made.ps, made, folder)))]
            wait_for("listening", folder)
            asked: deque[Pending] = deque()  # as in the start of a run
            for worker in made.workers:
                asked.append(agent.begin_launch(launch_of(worker, made, folder)))
                if len(asked) > LAUNCHES_AHEAD:
                    living.append(brought_up(asked.popleft()))
            living += map(brought_up, asked)
            launched = time.monotonic()
            answered = int(wait_for("answered", folder))
        up = time.monotonic()
        lifeline.stop()
        down = time.monotonic()
    return {
        "answered": answered,
        "launch_seconds": launched - begin,
        "build_seconds": up - begin,
        "removal_seconds": down - up,
        "left": what_is_left(name, living),
    }


def brought_up(launched: Pending) -> Process:
    """A node's process, once it is there."""
    pid = launched()
    if pid is None:
        raise RuntimeError("a node has ended already")
    return Process.of(pid)


def launch_of(node: NodeSpec, made: Plan, folder: RunFolder) -> LaunchSpec:
    """The neighbours: the PS knows all workers, a worker the PS."""
    assert made.ps.link is not None
    peers = made.workers if node.role == "ps" else (made.ps,)
    return LaunchSpec(
        node=node,
        network=network_for(node, made),
        entry=f"{MODULE}:{'ask' if node.role == 'ps' else 'answer'}",
        arguments={"address": made.ps.link.address, "workers": str(len(made.workers))},
        log=folder.log(node.name),
        neighbours=tuple(
            Neighbour(peer.link.address, peer.link.mac) for peer in peers if peer.link
        ),
    )


def wait_for(word: str, folder: RunFolder) -> str:
    """The PS's output after that word."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for line in folder.log("ps").read_text().splitlines(keepends=True):
            if line.startswith(word) and line.endswith("\n"):  # otherwise incomplete
                return line.removeprefix(word).strip()
        time.sleep(0.02)  # a node is observed through its log
    raise TimeoutError(f"the PS has not said {word!r}: {folder.log('ps').read_text()}")


def what_is_left(name: str, processes: list[Process]) -> list[str]:
    """Processes, control groups and mounts of a run that has ended."""
    left = [f"process {process.pid}" for process in processes if process.alive()]
    for tree in find_hierarchies() if os.geteuid() == 0 else find_delegated():
        left += [f"group {path}" for path in (tree.root / "testbed").glob(name)]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    left += [f"mount {line}" for line in mounts if name in line]
    return left + [f"run {run}" for run in NativeDriver().find() if run == name]


def ask(arguments: Mapping[str, str]) -> int:
    """The PS: wait until every worker has connected, then ask all of them and count the answers."""
    workers = int(arguments["workers"])
    answered: set[str] = set()  # addresses
    with (
        socket.create_server((arguments["address"], PORT), backlog=workers) as server,
        selectors.DefaultSelector() as selector,
    ):
        print("listening", flush=True)
        peers = [server.accept() for _ in range(workers)]
        for peer, address in peers:
            selector.register(peer, selectors.EVENT_READ, address[0])
            peer.sendall(b"?")
        deadline = time.monotonic() + PATIENCE_SECONDS / 4
        while len(answered) < workers and time.monotonic() < deadline:
            for key, _ in selector.select(1.0):
                if key.fileobj.recv(1) == b"!":  # type: ignore[union-attr]
                    answered.add(key.data)
                selector.unregister(key.fileobj)
        print("answered", len(answered), flush=True)
        return _stay()


def answer(arguments: Mapping[str, str]) -> int:
    """A worker: connect, and answer the PS when it asks."""
    with socket.create_connection((arguments["address"], PORT), timeout=PATIENCE_SECONDS) as ps:
        ps.settimeout(None)
        if ps.recv(1) == b"?":
            ps.sendall(b"!")
        return _stay()


def _stay() -> int:
    while True:
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
