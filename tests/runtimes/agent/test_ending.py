"""The end of an agent in a container, with plain processes instead of roles in containers."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, subprocess, sys
from types import SimpleNamespace

from testbed.runtimes.agent.containers import GivenContainers
from testbed.runtimes.agent.contained import end_all
from testbed.runtimes.agent.nodes import Nodes, RunningNode

container = SimpleNamespace(
    linger_seconds=0, ran_out_of_memory=bool, has_ended=bool, on_role_ended=lambda: None
)
logs = SimpleNamespace(catch_up=lambda log: None)
spawner = SimpleNamespace(process=subprocess.Popen(["sleep", "60"]), logs=logs)
nodes = Nodes(GivenContainers(), spawner, None, SimpleNamespace(release=lambda name: None))
for number, pid in enumerate(map(int, sys.argv[1:])):
    pid = pid or subprocess.Popen(["sleep", "60"]).pid
    nodes._running[f"w{number}"] = RunningNode(None, None, pid, pid, container, None)
print(*end_all(nodes, GivenContainers(), within_seconds=0.3))
ended = sorted(f"{end.node} {end.status}" for end in nodes.exits)  # the kernel's order is its own
print(*ended, spawner.process.poll() is not None)
"""
"""Makes a node of each process that is named, or of a child of its own for 0, and ends all."""


def end(*pids: int) -> tuple[list[str], str]:
    """What the program reports about these nodes, and what it logs."""
    command = [sys.executable, "-c", PROGRAM, *map(str, pids)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


def test_roles_and_the_template_are_killed_and_waited_for() -> None:
    said, log = end(0, 0)
    assert said == ["", "w0 -9 w1 -9 True"]
    assert log == ""


def test_a_role_that_does_not_end_is_logged() -> None:
    # The end of a process that is not its child is not reported to it: it must assume it is alive.
    with subprocess.Popen(["sleep", "60"]) as stranger:
        said, log = end(0, stranger.pid)
        assert stranger.wait() == -9
    assert said == ["w1", "w0 -9 True"]
    assert log == (
        f"w1 (process {stranger.pid}) was killed and has not ended after 0.3 s: "
        "see its state in /proc.\n"
    )
