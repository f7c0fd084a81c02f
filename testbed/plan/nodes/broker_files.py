"""The start files of a Kafka broker: its properties, its logging, and the commands. Pure."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from testbed.scenario.streams import Kafka

PORT = 9092
CONTROLLER_PORT = 9093

FOLDER = Path("/run/testbed/broker")
"""The broker's own folder in its node: these files, and its logs of records."""

JARS = Path("/run/testbed/kafka")
JAVA = Path("/run/testbed/java")
"""Their paths in a node whose image does not contain Kafka."""

IMAGE_JARS = Path("/opt/kafka/libs")
IMAGE_JAVA = Path("/opt/java/openjdk")
"""Java's path in the official image. Our image has Java on the PATH."""

FRUGAL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Java options for a host that also trains: start-up takes half the CPU time."""

PROPERTIES, LOGGING, START, RECORDS = "server.properties", "log4j2.properties", "start", "records"

_LOG4J = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def broker_files(settings: Kafka, address: str, *, run: str, time_scale: float) -> dict[str, str]:
    """Return the files of a broker's folder, by name.

    Args:
        settings: from the scenario.
        address: of its node, at which devices and producers reach it.
        run: the run's name, from which the cluster's identity is derived.
        time_scale: emulated seconds per real second.
    """
    retention = max(1, round(settings.retention / time_scale * 1000))
    properties = _properties(settings, address, retention_ms=retention)
    return {
        PROPERTIES: "".join(f"{name}={value}\n" for name, value in properties.items()),
        LOGGING: _LOG4J,
        START: _start(settings, cluster_of(run)),
    }


def cluster_of(run: str) -> str:
    """Return the identity of a run's cluster in Kafka's format: 16 bytes, in 22 letters.

    The first byte is 0, so that it never begins with a hyphen, like an option.
    """
    digest = b"\0" + hashlib.sha256(run.encode()).digest()[:15]
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _properties(settings: Kafka, address: str, *, retention_ms: int) -> Mapping[str, object]:
    """Return the properties of a single node, both broker and controller, without replicas."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{CONTROLLER_PORT}",
        "controller.listener.names": "CONTROLLER",
        # At localhost, too, for tools in the node, which has no other interface.
        "listeners": f"DATA://0.0.0.0:{PORT},CONTROLLER://127.0.0.1:{CONTROLLER_PORT}",
        "advertised.listeners": f"DATA://{address}:{PORT}",
        "listener.security.protocol.map": "DATA:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DATA",
        "log.dirs": FOLDER / RECORDS,
        "num.network.threads": settings.network_threads,
        "num.io.threads": settings.io_threads,
        "num.partitions": 1,
        "auto.create.topics.enable": "false",
        "log.segment.bytes": int(settings.segment),
        "log.retention.ms": retention_ms,
        "log.retention.check.interval.ms": max(1000, min(retention_ms, 300_000)),
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # Otherwise the cleaner of the offsets' log, which stays small, takes 128 MiB of the heap.
        "log.cleaner.dedupe.buffer.size": 4 * 2**20,
        # A killed broker is back before the controller, which is itself, declares it dead.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 2000,
    }


def _start(settings: Kafka, cluster: str) -> str:
    """Return a script that formats the records' folder on first use, and becomes the broker.

    The run's owner, who has another uid, must be able to remove its files: hence the umask.
    """
    heap = int(settings.heap) // 2**20
    options = f"-Xms{heap}m -Xmx{heap}m {FRUGAL} -XX:+ExitOnOutOfMemoryError"
    return f"""\
umask 0
jars={JARS}
[ -d "$jars" ] || jars={IMAGE_JARS}
java={JAVA}/bin/java
[ -x "$java" ] || java=$(PATH="$PATH:{IMAGE_JAVA}/bin" command -v java) || {{
    echo "no java found in this image" >&2
    exit 3
}}
if [ ! -e {FOLDER}/{RECORDS}/meta.properties ]; then
    "$java" {FRUGAL} -cp "$jars/*" \\
        -Dlog4j2.configurationFile={FOLDER}/{LOGGING} \\
        kafka.tools.StorageTool format -t {cluster} -c {FOLDER}/{PROPERTIES} || exit 3
fi
exec "$java" {options} -cp "$jars/*" \\
    -Dlog4j2.configurationFile={FOLDER}/{LOGGING} kafka.Kafka {FOLDER}/{PROPERTIES}
"""
