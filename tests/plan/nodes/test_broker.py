"""The broker in the plan, and its launch arguments."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.host.kafka import KafkaFiles
from testbed.plan.make import plan
from testbed.plan.nodes import role_of
from testbed.plan.nodes.base import Inputs
from testbed.plan.nodes.broker import BrokerRole
from testbed.plan.nodes.broker_files import broker_files, cluster_of
from testbed.roles.producer import linger_seconds
from testbed.scenario import Override, Scenario, load_text
from testbed.scenario.streams import Kafka
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NodeSpec
from testbed.values.units import Duration, Rate, Size

TEXT = """\
name: streamed
algorithm: ddl
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {default: {speed: 50ms}}}
streams:
  rates: {constant: {per_second: 20}}
  transport: {kafka: {heap: 256MiB, retention: 60s, segment: 1MiB, network_threads: 3}}
  link: {up: {rate: 10mbit}}
stop: {updates: 1}
time_scale: 2
"""


def live(*settings: str) -> Scenario:
    return load_text(TEXT, overrides=[Override.parse(text) for text in settings])


def node_of(scenario: Scenario) -> NodeSpec:
    return plan(scenario, "r1").node("broker")


def test_the_address_and_memory_of_the_broker() -> None:
    """It follows PS, workers and producer on the switch; rates are per real second."""
    node = node_of(live())
    assert node.link is not None
    assert (node.link.address, node.link.up.rate) == ("10.77.0.5", Rate(20e6))
    assert (node.uid, node.part, node.image, node.end) == (20002, "aside", "kafka", "restarted")
    # 256 MiB of heap and 200 MB
    assert role_of(node).memory_bytes(node, plan(live(), "r1"), vector=0) == 468_435_456
    limited = node_of(live("streams.transport.kafka.memory=1GiB"))
    assert role_of(limited).memory_bytes(limited, plan(live(), "r1"), vector=0) == 2**30


def test_a_run_can_be_configured_to_end_with_the_broker() -> None:
    made = plan(live("streams.transport.kafka.restart=false"), "r1")
    assert (made.node("broker").end, made.node("producer0").end) == ("fatal", "noticed")


def test_producers_and_devices_know_the_brokers_address() -> None:
    """It then has the streams' link, and its restarts apply to killed producers too."""
    made = plan(live(), "r1")
    producer = made.node("producer0")
    told = {"source": "10.77.0.5:9092", "topics": "r1"}
    for node in (producer, made.node("w1")):
        assert role_of(node).arguments(node, made, secret="s3cret") == told
    assert producer.link is not None
    assert (producer.end, producer.link.up.rate) == ("restarted", None)


def test_there_is_no_broker_without_kafka_nor_in_a_simulation() -> None:
    simulated = live("runtime=simulated")
    assert list(BrokerRole().nodes(simulated)) == []
    direct = live("streams.transport=direct")
    assert list(BrokerRole().nodes(direct)) == []


def test_the_broker_mounts_kafka_and_java_of_the_host_without_an_image(tmp_path: Path) -> None:
    found = KafkaFiles(Path("/opt/k/libs"), Path("/usr/lib/jvm/17"), "4.2.0", "17.0.15")
    role = BrokerRole()
    targets = [
        str(mount.target)
        for mount in role.mounts(Inputs(RunFolder(tmp_path), tmp_path, False, found))
    ]
    assert targets == ["/run/testbed/broker", "/run/testbed/kafka", "/run/testbed/java"]
    (own,) = role.mounts(Inputs(RunFolder(tmp_path), tmp_path, False))
    assert (own.source, own.writable) == (tmp_path / "broker", True)


def test_the_properties_match_the_scenario() -> None:
    """A minute's retention is 30 real seconds at two emulated seconds per real one."""
    streams = live().streams
    assert streams is not None and isinstance(streams.transport, Kafka)
    files = broker_files(streams.transport, "10.77.0.4", run="r1", time_scale=2.0)
    lines = dict(line.split("=", 1) for line in files["server.properties"].splitlines())
    assert lines["listeners"].startswith("DATA://0.0.0.0:9092,")  # at localhost in the node, too
    assert lines["advertised.listeners"] == "DATA://10.77.0.4:9092"
    assert (lines["num.network.threads"], lines["num.io.threads"]) == ("3", "4")
    assert (lines["log.retention.ms"], lines["log.segment.bytes"]) == ("30000", "1048576")
    assert lines["log.retention.check.interval.ms"] == "30000"
    assert lines["auto.create.topics.enable"] == "false"
    assert "-Xms256m -Xmx256m" in files["start"]
    assert (
        subprocess.run(["sh", "-n"], input=files["start"], text=True, check=False).returncode == 0
    )


def test_records_linger_in_emulated_time() -> None:
    """50 milliseconds are 200 real ones at a quarter of an emulated second per real one."""
    slow = live("time_scale=0.25", "streams.transport.kafka.linger=50ms")
    assert linger_seconds(slow) == pytest.approx(0.2)


def test_a_cluster_has_the_identity_of_its_run() -> None:
    name = cluster_of("r1")
    assert len(base64.urlsafe_b64decode(name + "==")) == 16
    assert name != cluster_of("r2")
    assert name.startswith("A"), "the first six bits are 0"


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("heap=64MiB", "found 64MiB, expected 128MiB or more"),
        ("segment=100KiB", "found 100KiB, expected 1MiB or more"),
        ("retention=0s", "found 0s, expected a duration above zero"),
        ("linger=2min", "found 2min, expected at most 1min"),
        ("io_threads=0", "io_threads"),
        ("replicas=3", "replicas"),
    ],
)
def test_invalid_brokers(setting: str, found: str) -> None:
    with pytest.raises(ScenarioError) as told:
        live(f"streams.transport.kafka.{setting}")
    assert found in str(told.value)


def test_defaults_match_the_paper() -> None:
    """ScaDLES, section V: 8 network threads, 4 I/O threads."""
    kafka = Kafka(name="kafka")
    assert (kafka.network_threads, kafka.io_threads) == (8, 4)
    assert (kafka.heap, kafka.retention) == (Size(2**29), Duration(86400))
