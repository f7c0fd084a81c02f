"""A controller for tests to kill: ``python victim.py RUNTIME RUNS NAME [detached]``.

It starts a run with four nodes, freezes the second, says "up", and waits to be killed.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from testbed.runtimes import RUNTIME
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import LaunchSpec, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Start
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import LinkSpec, NetworkSpec, NodeSpec, Plan

NODES = 4
HERE = Path(__file__).parent
MOUNTED = Path("/run/testbed/entries")


def node(index: int) -> NodeSpec:
    last = index + 1
    link = LinkSpec(f"10.77.0.{last}", f"02:00:0a:4d:00:{last:02x}")
    name = f"w{index}"
    return NodeSpec(name, "worker", index, "default", link, None, None, 1, 21000 + index)


def main(runtime: str, runs: str, name: str, detached: str = "") -> None:
    driver = RUNTIME.validate_python({"name": runtime}).driver()
    folder = RunFolder.create(
        Path(runs), name, scenario="test", text="name: test\n", classes=(), now=time.time()
    )
    start = Start(
        template=Template(preload=("entries",)),
        environment={"PYTHONPATH": f"{HERE.parents[1]}:{HERE}:{MOUNTED}"},
        reads=(HERE,),
    )
    plan = Plan(name, tuple(map(node, range(NODES))), NetworkSpec(), "warm", {"run": name})
    lifeline = driver.start(plan, folder, start)
    if detached:
        lifeline.on_hangup("keep")
    client = AgentClient.connect(folder.control / "agent.sock", deadline=time.monotonic() + 10)
    cells = [
        ContainerSpec(one, (Mount(HERE, MOUNTED),), folder.log(one.name)) for one in plan.nodes
    ]
    containers = driver.contain(plan, folder, cells)
    for one in plan.nodes:
        log = folder.log(one.name)
        container = containers.get(one.name)
        client.launch(LaunchSpec(one, NetworkSpec(), "entries:wait", {}, log, container=container))
    client.freeze("w1")
    print("up", flush=True)
    signal.pause()
    lifeline.close()  # never reached: this process holds the run until killed


if __name__ == "__main__":
    main(*sys.argv[1:])
