"""The cost of 200 containers in the Docker engine: to create, start and remove them.

They are those of a run's nodes, before a role is launched in them. Other load on the machine
changes the figures a lot; the load is printed next to them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from testbed.runtimes.base import ContainerSpec
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.parallel import THREADS
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, NodeSpec, Plan

COUNT = 200


def node(index: int) -> NodeSpec:
    return NodeSpec(f"w{index}", "worker", index, "", None, None, None, 1, 21000 + index)


def main(count: int) -> None:
    name = f"bench-{os.getpid()}"
    nodes = tuple(map(node, range(count)))
    plan = Plan(name, nodes, NetworkSpec(), "warm", {"run": name})
    driver = DockerDriver()
    with tempfile.TemporaryDirectory() as runs:
        folder = RunFolder.create(
            Path(runs), name, scenario="bench", text="", classes=(), now=time.time()
        )
        cells = [ContainerSpec(one, (), folder.log(one.name)) for one in nodes]
        before = os.getloadavg()[0]
        began = time.perf_counter()
        try:
            driver.contain(plan, folder, cells)
            made = time.perf_counter()
        finally:
            driver.discard(folder, [one.name for one in nodes])
        removed = time.perf_counter()
    print(f"{count} containers, {THREADS} requests at a time, {os.cpu_count()} CPUs")
    print(f"made and started  {made - began:6.1f} s")
    print(f"removed           {removed - made:6.1f} s")
    print(f"load of the machine before {before:.1f}, after {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
