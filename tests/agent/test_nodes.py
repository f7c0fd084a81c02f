"""What a node that could not be made is told to have failed of."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.agent.launch import LaunchSpec
from testbed.agent.nodes import Nodes
from testbed.agent.spawner import Spawned
from testbed.errors import NodeError
from testbed.host.reports import ReportPipe, encode_error, report
from testbed.network.counters import TrafficMeter
from testbed.topology import LinkSpec, NetworkSpec, NodeSpec


class Container:
    """Of nothing: there is no process to move into it."""

    def prepare(self) -> None: ...

    def move_in(self, pid: int) -> Any:
        return type("Anchor", (), {"pid": pid})

    def ran_out_of_memory(self) -> bool:
        return False

    def abandon(self, *, deadline: float) -> None: ...


class Spawner:
    """Of a process that tells its pid, then what it ends of."""

    def __init__(self, log: Path, failure: NodeError | None) -> None:
        self._log, self._failure = log, failure

    @contextmanager
    def spawn(self, launch: LaunchSpec, placement: object) -> Iterator[Spawned]:
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            report(writer, pid=os.getpid())
            if self._failure is not None:
                report(writer, error=encode_error(self._failure))
            else:
                report(writer, prepared=True)
            os._exit(0)
        os.close(writer)
        reports = ReportPipe(reader, whose="p", log=self._log)
        yield Spawned(reports, reader, deadline=time.monotonic() + 10)
        os.close(reader)


class Switch:
    """To which the process has ended already."""

    def attach(self, node: NodeSpec, *, pid: int, network: object, neighbours: object) -> None:
        raise NodeError(f"{node.name}: its link cannot be made")


@pytest.mark.parametrize(
    ("failure", "told"),
    [(NodeError("nonesuch: no such program in the node."), "nonesuch"), (None, "its link")],
)
def test_a_node_that_failed_says_of_what_and_not_that_it_has_no_link(
    tmp_path: Path, failure: NodeError | None, told: str
) -> None:
    spawner = cast(Any, Spawner(tmp_path / "p.log", failure))
    containers, switch = cast(Any, lambda launch: Container()), cast(Any, Switch())
    nodes = Nodes(containers, spawner, switch, TrafficMeter())
    link = LinkSpec("10.0.0.2", "02:00:00:00:00:02")
    node = NodeSpec("p", "program", 0, "", link, cpu=None, memory=None, cpu_weight=1, uid=1)
    launch = LaunchSpec(node, NetworkSpec(), "x:y", {}, tmp_path / "p.log")
    with pytest.raises(NodeError, match=told):
        nodes.launch(launch)
    os.wait()
