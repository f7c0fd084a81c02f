"""A controller for tests to kill: ``python controller.py RUNS NAME STEP [detached]``.

It starts a run up to STEP, where it kills itself as SIGKILL would, at that very instruction;
at the step ``up`` it waits to be killed. A step ``after 0.1`` is 0.1 seconds after the agent
was recorded, while the run is starting.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import Start
from testbed.runtimes.native import driver, lifeline
from testbed.runtimes.native.lifeline import NativeLifeline
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import LinkSpec, NetworkSpec, NodeSpec, Plan

NODES = 4
HERE = Path(__file__).parent
ENVIRONMENT = {"PYTHONPATH": f"{HERE.parents[1]}:{HERE}"}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class DyingLifeline(NativeLifeline):
    """Ends its process just before or after the agent is recorded."""

    step = ""

    def _put_on_record(self, pid: int) -> None:
        if self.step == "spawned":
            die()
        super()._put_on_record(pid)
        if self.step == "recorded":
            die()
        if self.step.startswith("after "):
            threading.Timer(float(self.step.removeprefix("after ")), die).start()


def node(index: int) -> NodeSpec:
    last = index + 1
    link = LinkSpec(f"10.77.0.{last}", f"02:00:0a:4d:00:{last:02x}")
    name = f"w{index}"
    return NodeSpec(name, "worker", index, "default", link, None, None, 1, 21000 + index)


def main(runs: str, name: str, step: str, detached: str = "") -> None:
    DyingLifeline.step = step
    driver.NativeLifeline = DyingLifeline
    assert lifeline.NativeLifeline is not DyingLifeline
    folder = RunFolder.create(
        Path(runs), name, scenario="test", text="name: test\n", classes=(), now=time.time()
    )
    template = Template(preload=("entries",))
    start = Start(template=template, environment=ENVIRONMENT)
    plan = Plan(name, (), NetworkSpec(), "warm", {})
    started = driver.NativeDriver().start(plan, folder, start)
    if detached:
        started.on_hangup("keep")
    if step == "ready":
        die()
    client = AgentClient.connect(folder.control / "agent.sock", deadline=time.monotonic() + 10)
    for index in range(NODES):
        launch = LaunchSpec(node(index), NetworkSpec(), "entries:wait", {}, folder.log(f"w{index}"))
        client.launch(launch)
        if step == "half launched" and index == NODES // 2:
            die()
    client.freeze("w1")
    print("up", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
