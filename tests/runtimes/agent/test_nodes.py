"""The error of a node that could not be launched."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.errors import NodeError
from testbed.host.reports import ReportPipe, encode_error, report
from testbed.network.counters import TrafficMeter
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.nodes import Nodes
from testbed.runtimes.agent.spawner import Spawned
from testbed.values.topology import LinkSpec, NetworkSpec, NodeSpec


class Container:
    """A container without a process to move."""

    def prepare(self) -> None: ...

    def on_role_started(self, pid: int) -> Any:
        return type("Anchor", (), {"pid": pid})

    def __init__(self) -> None:
        self.abandoned = False

    def ran_out_of_memory(self) -> bool:
        return False

    def abandon(self, *, deadline: float) -> None:
        self.abandoned = True


class Spawner:
    """Spawns a process that reports its pid and then why it failed."""

    def __init__(self, log: Path, failure: NodeError | None) -> None:
        self._log, self._failure = log, failure
        self.spawned: list[str] = []
        self.pids: list[int] = []

    @contextmanager
    def spawn(self, launch: LaunchSpec, placement: object) -> Iterator[Spawned]:
        reader, writer = os.pipe()
        self.spawned.append(launch.node.name)
        pid = os.fork()
        if not pid:
            report(writer, pid=os.getpid())
            if self._failure is not None:
                report(writer, error=encode_error(self._failure))
            else:
                report(writer, prepared=True)
            os._exit(0)
        self.pids.append(pid)
        os.close(writer)
        reports = ReportPipe(reader, writer="p", log=self._log)
        gate = os.open(os.devnull, os.O_WRONLY)
        try:
            yield Spawned(reports, gate, deadline=time.monotonic() + 10)
        finally:
            os.close(reader)
            os.close(gate)


def reap(spawner: Any) -> None:
    """Wait for its own processes, and not for others such as the resource tracker's."""
    for pid in spawner.pids:
        os.waitpid(pid, 0)


class Meter:
    """Measures nothing."""

    def watch(self, name: str, *, pid: int, part: str, attached: bool = True) -> None: ...


class Switch:
    """Finds that the process has ended already."""

    def attach(self, node: NodeSpec, *, pid: int, network: object, neighbours: object) -> None:
        raise NodeError(f"{node.name}: its link cannot be made")


def asked(name: str, folder: Path) -> LaunchSpec:
    """A program with a link."""
    link = LinkSpec("10.0.0.2", "02:00:00:00:00:02")
    node = NodeSpec(name, "program", 0, "", link, cpu=None, memory=None, cpu_weight=1, uid=1)
    return LaunchSpec(node, NetworkSpec(), "x:y", {}, folder / f"{name}.log")


@pytest.mark.parametrize(
    ("failure", "told"),
    [(NodeError("nonesuch: no such program in the node."), "nonesuch"), (None, "its link")],
)
def test_a_failed_node_reports_its_own_error_and_not_a_missing_link(
    tmp_path: Path, failure: NodeError | None, told: str
) -> None:
    spawner = cast(Any, Spawner(tmp_path / "p.log", failure))
    containers, switch = cast(Any, lambda launch: Container()), cast(Any, Switch())
    nodes = Nodes(containers, spawner, switch, TrafficMeter())
    with pytest.raises(NodeError, match=told):
        nodes.launch(asked("p", tmp_path))
    reap(spawner)


def test_a_launch_that_was_begun_and_dropped_is_undone(tmp_path: Path) -> None:
    """Another node's launch, whose own link fails, leaves it as it is."""
    made: dict[str, Container] = {}

    def contain(launch: LaunchSpec) -> Container:
        return made.setdefault(launch.node.name, Container())

    spawner = cast(Any, Spawner(tmp_path / "p.log", None))
    nodes = Nodes(cast(Any, contain), spawner, cast(Any, Switch()), TrafficMeter())
    first, second = (asked(name, tmp_path) for name in ("p", "q"))
    nodes.begin(first)
    with pytest.raises(NodeError, match="q: its link cannot be made"):
        nodes.launch(second)
    assert {name: one.abandoned for name, one in made.items()} == {"p": False, "q": True}
    nodes.drop_begun()
    assert [one.abandoned for one in made.values()] == [True, True]
    nodes.drop_begun()  # nothing to drop
    assert spawner.spawned == ["p", "q"]
    reap(spawner)


def test_the_next_nodes_are_begun_before_the_link_of_this_one_is_made(tmp_path: Path) -> None:
    spawner = cast(Any, Spawner(tmp_path / "p.log", None))
    containers, switch = cast(Any, lambda launch: Container()), cast(Any, Switch())
    nodes = Nodes(containers, spawner, switch, TrafficMeter())
    first, second, third = (asked(name, tmp_path) for name in ("p", "q", "r"))
    done: list[str] = []

    def begin_others() -> None:
        for other in (second, third):
            nodes.begin(other)
        done.append("begin q, r")

    nodes.meanwhile = begin_others
    switch.attach = lambda node, **link: done.append(f"attach {node.name}")
    nodes.meter = cast(Any, Meter())
    assert nodes.launch(first) > 0
    nodes.meanwhile = lambda: None
    assert nodes.launch(second) > 0
    assert nodes.launch(third) > 0
    assert done == ["begin q, r", "attach p", "attach q", "attach r"]
    assert spawner.spawned == ["p", "q", "r"]
    with pytest.raises(NodeError, match=r"p is already running\."):
        nodes.begin(first)
    reap(spawner)
