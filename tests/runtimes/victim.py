"""A controller for tests to kill: ``python victim.py RUNTIME RUNS NAME [detached]``.

It starts a run with four nodes, freezes the second, says "up", and waits to be killed. The nodes
are on the hosts in VICTIM_HOSTS in turn.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.plan.written import plan_text
from testbed.run.agents import connect
from testbed.runtimes import RUNTIME
from testbed.runtimes.agent.launch import LaunchSpec, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Start
from testbed.runtimes.docker.containers import HOST_LIST
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec, LinkSpec, NetworkSpec, NodeSpec, Plan

NODES = 4
HERE = Path(__file__).parent
MOUNTED = Path("/run/testbed/entries")


def node(index: int, hosts: Sequence[HostSpec]) -> NodeSpec:
    last = index + 1
    mtu = 1450 if hosts else None
    link = LinkSpec(f"10.77.0.{last}", f"02:00:0a:4d:00:{last:02x}", mtu=mtu)
    name = f"w{index}"
    made = NodeSpec(name, "worker", index, "default", link, None, None, 1, 21000 + index)
    return replace(made, host=hosts[index % len(hosts)].name) if hosts else made


def main(runtime: str, runs: str, name: str, detached: str = "") -> None:
    driver = RUNTIME.validate_python({"name": runtime}).driver()
    hosts = tuple(HOST_LIST.validate_json(os.environ.get("VICTIM_HOSTS", "[]")))
    nodes = tuple(node(index, hosts) for index in range(NODES))
    kind = {"name": "docker", "hosts": {"name": "swarm"}} if hosts else {}
    plan = Plan(name, nodes, NetworkSpec(), "warm", {"run": name}, kind, hosts=hosts)
    now, text = time.time(), ""
    if hosts:
        server = replace(nodes[0], name="ps", role="ps", part="server")
        text = plan_text(replace(plan, nodes=(server, *nodes)))
    folder = RunFolder.create(
        Path(runs), name, scenario="test", text="name: test\n", classes=(), now=now, plan=text
    )
    entries = HERE
    if hosts:  # they get a copy of the run's folder
        entries = folder.path / "entries"
        shutil.copytree(HERE, entries, ignore=shutil.ignore_patterns("__pycache__"))
    start = Start(
        template=Template(preload=("entries",)),
        environment={"PYTHONPATH": f"{HERE.parents[1]}:{entries}:{MOUNTED}"},
        reads=() if hosts else (HERE,),
    )
    lifeline = driver.start(plan, folder, start)
    if detached:
        lifeline.on_hangup("keep")
    client = connect(plan, folder, deadline=time.monotonic() + 10)
    cells = [
        ContainerSpec(one, (Mount(entries, MOUNTED),), folder.log(one.name)) for one in plan.nodes
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
