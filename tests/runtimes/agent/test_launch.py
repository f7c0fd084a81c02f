"""A launch is serialized as JSON, and its mounts stay inside its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import NodeError
from testbed.network.interfaces import Neighbour
from testbed.runtimes.agent.launch import LAUNCH, LaunchSpec, Mount
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import Direction, LinkSpec, NetworkSpec, NodeSpec
from testbed.values.units import Duration, Rate, Size

PLACE = Path("/run/testbed")
LINK = LinkSpec(
    "10.77.0.2",
    "02:00:0a:4d:00:02",
    up=Direction(rate=Rate(1e6 / 3), delay=Duration(0.02), loss=0.01),
    down=Direction(rate=Rate.parse("10mbit"), queue=Duration.parse("50ms")),
)
LAUNCHED = LaunchSpec(
    node=NodeSpec(
        "w3", "worker", 3, "slow", LINK, 0.5, Size.parse("64MiB"), 1, 20003, CpuSet("0-1")
    ),
    network=NetworkSpec(prefix=16, missing="warn", offload="off"),
    entry="testbed.roles.worker:main",
    arguments={"token": "secret"},
    log=Path("/runs/r/logs/w3.log"),
    mounts=(Mount(Path("/runs/r/scenario.yaml"), PLACE / "scenario.yaml"),),
    mode="cold",
    neighbours=(Neighbour("10.77.0.1", "02:00:0a:4d:00:01"),),
    environment={"A": "b"},
)


def test_a_launch_survives_a_round_trip() -> None:
    sent = json.dumps(LAUNCH.dump_python(LAUNCHED, mode="json"))
    assert LAUNCH.validate_python(json.loads(sent)) == LAUNCHED
    bare = replace(
        LAUNCHED, node=replace(LAUNCHED.node, link=None, cpu=None, cpuset=None, memory=None)
    )
    assert LAUNCH.validate_json(LAUNCH.dump_json(bare)) == bare


def test_mounts_stay_below_their_folder_and_do_not_overlap() -> None:
    LAUNCHED.check()
    for target in ("/etc/passwd", "/run/testbed", "/run/testbed/../../etc", "data", "/run"):
        with pytest.raises(NodeError, match=r"w3: mount at .* expected below /run/testbed"):
            replace(LAUNCHED, mounts=(Mount(Path("/x"), Path(target)),)).check()
    for second in ("data", "data/x"):
        mounts = tuple(Mount(Path("/x"), PLACE / name) for name in ("data", second))
        with pytest.raises(NodeError, match="is inside another mount"):
            replace(LAUNCHED, mounts=mounts).check()
