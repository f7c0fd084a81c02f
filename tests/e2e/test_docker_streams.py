"""Streams through a broker whose container is killed: no record is lost, nothing is left."""

from __future__ import annotations

from typing import Any

import pytest

import testbed
from testbed.errors import HostError
from testbed.runtimes.docker.image import find_kafka_image
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, Launched
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.docker, pytest.mark.kafka, pytest.mark.slow]

DEVICES = 3
NODES = ["broker", "evaluator", "producer0", "ps", "w0", "w1", "w2"]
SCENARIO = f"""\
name: docked
seed: 1
runtime: docker
algorithm: {{ddl: {{learning_rate: 0.05}}}}
model: {{mlp: {{hidden: [16]}}}}
dataset: digits
workers: {{count: {DEVICES}, batch_size: 16}}
streams:
  rates: {{constant: {{per_second: 40}}}}
  transport: {{kafka: {{heap: 256MiB, network_threads: 2, io_threads: 2}}}}
  stream_timeout: off
stop: {{time: 10min}}
evaluate: {{every: 10min, images: 100}}
"""
"""A round needs 16 samples of each, which take 0.4 s to be made."""


@pytest.fixture(scope="module")
def engine(engine: Any) -> Any:
    """An engine that has the images of nodes and of a broker."""
    try:
        find_kafka_image(engine)
    except HostError as lacking:
        pytest.skip(str(lacking))
    return engine


def containers(engine: Any, run: str) -> list[str]:
    """The nodes of a run that have a container."""
    found = engine.containers(all=True, filters={"label": [f"org.edge-testbed.run={run}"]})
    return sorted(one["Names"][0].removeprefix(f"/testbed-{run}-") for one in found)


def started(up: Any, node: str) -> int:
    """The number of times a node was started."""
    return [one.node for one in only(read_events(up.folder.events), Launched)].count(node)


def test_killing_the_container_of_a_broker_loses_no_record(bed: Any, engine: Any) -> None:
    """Ten rounds end after the kill; producing their samples takes 4 s."""
    bed.scenario("docked.yaml", SCENARIO)
    up = bed.up(file="docked.yaml")
    for event in ("launched", "joined", "started"):  # a broker starts slowly on a busy host
        up.wait_for_event(event)
    up.wait_for_updates(2 * DEVICES)
    engine.kill(f"testbed-{up.name}-broker")
    up.wait_for(lambda: started(up, "broker") == 2)
    up.wait_for_updates(12 * DEVICES)
    assert sorted(bed.nodes(up.name)) == NODES
    assert containers(engine, up.name) == sorted([*NODES, "agent"])
    entered = bed.run("exec", up.name, "broker", "--", "sh", "-c", "hostname; id -u")
    assert (entered.status, entered.out) == (0, "broker\n20002\n"), entered
    assert "Formatting metadata directory" in bed.run("logs", up.name, "broker").out
    assert bed.run("down", up.name).out == f"{up.name}: stopped\n"
    assert up.end().status == 130
    (killed,) = (one for one in only(read_events(up.folder.events), Exited) if one.restarted)
    assert (killed.node, killed.how) == ("broker", "broker: its container was stopped or removed")
    _check_conservation(testbed.Run(up.folder.path))
    assert containers(engine, up.name) == []
    assert bed.remains(up.name) == []
    assert not up.folder.broker_records.exists()


def _check_conservation(run: testbed.Run) -> None:
    """Every sequence number arrived; samples were used, are waiting, or were duplicates."""
    updates = run.updates
    assert (updates.groupby("worker")["stream_used"].last() >= 12 * 16).all()
    assert not updates[["stream_missing", "stream_refused"]].any(axis=None)
    kept = updates["stream_used"] + updates["stream_buffered"]
    kept += updates["stream_truncated"] + updates["stream_duplicates"]
    assert (updates["stream_produced"] == kept).all()
