"""What the agent asks of the template arrives whole, and the template need not read it to fork."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from testbed.host.process import Process
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.spawner import Placement, Received, SpawnRequest
from testbed.runtimes.agent.view import PlannedCover, View
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import Direction, LinkSpec, NetworkSpec, NodeSpec
from testbed.values.units import Duration, Rate, Size

LINK = LinkSpec(
    "10.77.0.2",
    "02:00:0a:4d:00:02",
    up=Direction(rate=Rate(1e6 / 3), delay=Duration(0.02), loss=0.01),
    down=Direction(rate=Rate.parse("10mbit"), queue=Duration.parse("50ms")),
)
NODE = NodeSpec("w3", "worker", 3, "slow", LINK, 0.5, Size.parse("64MiB"), 1, 20003, CpuSet("0-1"))
LAUNCH = LaunchSpec(
    NODE, NetworkSpec(prefix=16), "module:main", {"token": "secret"}, Path("/runs/r/logs/w3.log")
)
FOUND = Placement((Path("/sys/fs/cgroup/testbed/r/w3/cgroup.procs"),), nice=2)

LINKS = (("/home/ann/py", "python"),)
COVER = PlannedCover("/home/ann", "mode=111", 0o666, LINKS, ("/home/ann/x",), "")
VIEW = View((COVER,), (("/runs/r/hosts", "/etc/hosts"),), "", "/runs/r", ("/proc", "/tmp"))


def pass_on(launch: LaunchSpec, placement: Placement) -> tuple[SpawnRequest, Received]:
    """Send a request; return it and what arrives, whose descriptors are closed."""
    agent, template = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with agent, template:
        request = SpawnRequest.of(launch, placement, view=VIEW, processes=99)
        request.send(agent, 0, 1, 2)
        received = Received.next_of(template)
        assert received is not None
        agent.close()
        assert Received.next_of(template) is None
    for descriptor in received.descriptors:
        os.close(descriptor)
    return request, received


def test_a_request_arrives_with_descriptors_of_the_receiver() -> None:
    sent, received = pass_on(LAUNCH, FOUND)
    report, gate, log = received.descriptors
    arrived = received.request()
    assert arrived == sent._replace(report=report, gate=gate, log=log)
    assert View.of(arrived.view) == VIEW
    assert (arrived.uid, arrived.entrances) == (20003, tuple(map(str, FOUND.entrances)))


def test_what_the_template_may_fork_as_a_role() -> None:
    within = replace(FOUND, container=Process(7, 99))
    on_gpu = replace(LAUNCH, node=replace(NODE, gpus=0.5))
    cases = [(LAUNCH, FOUND), (LAUNCH, within), (on_gpu, FOUND)]
    assert [pass_on(*case)[1].forks_role for case in cases] == [True, False, False]
