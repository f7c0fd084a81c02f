"""Records through a real broker: in order, none lost, none from another run."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import IO, Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from testbed.errors import NodeError
from testbed.host.kafka import find_kafka
from testbed.plan.nodes.broker_files import CONTROLLER_PORT, FOLDER, JARS, JAVA, PORT, broker_files
from testbed.roles.kafka import KafkaReceiver, connect_receiver, connect_sender, make_topics
from testbed.scenario.streams import Kafka
from testbed.values.units import Size

MANY = 500

NODE = "127.0.0.2"
"""The address of the broker's node, which is not that of localhost."""

SPOKEN_BY_3_9 = {0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 18: (0, 4)}
"""Versions of Produce, Fetch, ListOffsets, Metadata and ApiVersions that Kafka 3.9 speaks."""

# kafka-python leaves the sockets of failed connection attempts to the garbage collector.
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Broker:
    """A broker in a folder; it can be killed and restarted."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{NODE}:{self.port}"

    def write(self) -> None:
        found = find_kafka(os.environ)
        settings = Kafka(name="kafka", heap=Size(2**28), network_threads=2, io_threads=2)
        places = {
            str(FOLDER): str(self.folder),
            str(JARS): str(found.jars),
            str(JAVA): str(found.java),
            f":{PORT}": f":{self.port}",
            f":{CONTROLLER_PORT}": f":{free_port()}",
        }
        for name, text in broker_files(settings, NODE, run="r1", time_scale=1).items():
            file = self.folder / name
            file.write_text(text)
            for there, here in places.items():
                file.write_text(file.read_text().replace(there, here))

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = ["sh", str(self.folder / "start")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, process_group=0)

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("broker"))
    made.write()
    made.start()
    yield made
    made.kill()
    gc.collect()  # while the warnings still belong to these tests


def fail(error: BaseException) -> None:
    raise AssertionError(error)


def read(receiver: KafkaReceiver, count: int) -> list[int]:
    """The numbers in the records, once this many have arrived, within a minute."""
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [struct.unpack("<q", one)[0] for one in receiver.poll(count - len(found), 1.0)]
        receiver.commit()
    return found


def test_a_killed_broker_loses_no_record(broker: Broker) -> None:
    """It is killed after 200 records of each device, and down while 100 more are sent."""
    sender, producer = connect_sender(broker.address, "r1", [0, 1], failed=fail)
    receivers = [connect_receiver(broker.address, "r1", device) for device in (0, 1)]
    with closing(producer), closing(receivers[0]), closing(receivers[1]):
        for number in range(MANY):
            if number == 200:
                asyncio.run(sender.flush())
                broker.kill()
            if number == 300:
                assert [sender.available(device) for device in (0, 1)] == [200, 200]
                broker.start()
            for device in (0, 1):
                assert sender.send(device, struct.pack("<q", number))
        for receiver in receivers:
            assert read(receiver, MANY) == list(range(MANY))
        assert [sender.acknowledged(device) for device in (0, 1)] == [MANY, MANY]


def test_a_producer_lingers_for_the_configured_time(broker: Broker) -> None:
    made = connect_sender(broker.address, "r1", [3], failed=fail, linger_seconds=0.2)
    with closing(made[1]) as producer:
        assert producer.config["linger_ms"] == 200


def test_a_restarted_device_continues_where_it_stopped(broker: Broker) -> None:
    sender, producer = connect_sender(broker.address, "r1", [2], failed=fail)
    with closing(producer):
        for number in range(5):
            sender.send(2, struct.pack("<q", number))
        asyncio.run(sender.flush())
    first = connect_receiver(broker.address, "r1", 2)
    with closing(first):
        assert read(first, 5) == [0, 1, 2, 3, 4]  # and commits
        assert first.poll(0, 0.0) == []  # sends the commit
    again, producer = connect_sender(broker.address, "r1", [2], failed=fail)
    with closing(producer):
        assert again.acknowledged(2) == 5
        again.send(2, struct.pack("<q", 5))
        second = connect_receiver(broker.address, "r1", 2)
        with closing(second):
            assert read(second, 1) == [5]


def test_a_device_skips_records_that_were_deleted_from_its_topic(broker: Broker) -> None:
    """It knows how many it had: none before three are deleted, three before two more are."""
    topic = TopicPartition("r1-w4", 0)
    sender, producer = connect_sender(broker.address, "r1", [4], failed=fail)
    with (
        closing(producer),
        closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin,
    ):
        for number in range(3):
            sender.send(4, struct.pack("<q", number))
        asyncio.run(sender.flush())
        admin.delete_records({topic: 3})
        for number in range(3, 6):
            sender.send(4, struct.pack("<q", number))
        with closing(connect_receiver(broker.address, "r1", 4)) as first:
            assert read(first, 3) == [3, 4, 5]
            assert first.poll(0, 0.0) == []  # sends the commit
            assert first.begins_after == 0
        for number in range(6, 9):
            sender.send(4, struct.pack("<q", number))
        asyncio.run(sender.flush())
        admin.delete_records({topic: 8})
        with closing(connect_receiver(broker.address, "r1", 4)) as second:
            assert read(second, 1) == [8]
            assert second.begins_after == 6


def test_a_broker_answers_at_localhost_in_its_node(broker: Broker) -> None:
    assert make_topics(f"localhost:{broker.port}", "r1", [5]) == {5: 0}


def test_topics_of_another_run_are_refused(broker: Broker) -> None:
    make_topics(broker.address, "r1", [0])
    with pytest.raises(NodeError, match=r"has a topic of another run, r1-w\d: expected only r2"):
        make_topics(broker.address, "r2", [0])


def frame_from(stream: IO[bytes]) -> bytes:
    """The next message without its length; nothing at the end."""
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "big")) if head else b""


def frame_to(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(4, "big") + message)
    stream.flush()


def versions(spoken: dict[int, tuple[int, int]]) -> bytes:
    """The body of an ApiVersionsResponse, 3 or 4: no error, an array, no throttling, no tags."""
    body = struct.pack(">hB", 0, len(spoken) + 1)
    for key, (least, most) in spoken.items():
        body += struct.pack(">hhhB", key, least, most, 0)
    return body + struct.pack(">iB", 0, 0)


class OldBroker(StreamRequestHandler):
    """A real broker's answers, except the first, which lists the versions of an older one.

    A client requests these before anything else. Only the request number of the true answer
    is kept, 4 bytes, which is its whole header.
    """

    def __init__(self, *words: Any, port: int) -> None:
        self.port = port
        super().__init__(*words)

    def handle(self) -> None:
        said = versions(SPOKEN_BY_3_9)
        with (
            socket.create_connection(("127.0.0.1", self.port)) as connection,
            connection.makefile("rwb") as broker,
        ):
            while request := frame_from(self.rfile):
                frame_to(broker, request)
                answer = frame_from(broker)
                frame_to(self.wfile, answer[:4] + said if said else answer)
                said = b""


@contextmanager
def aged(broker: Broker) -> Iterator[str]:
    """The address of a broker that pretends to be Kafka 3.9."""
    handler = partial(OldBroker, port=broker.port)
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "connect",
    [
        lambda address: connect_sender(address, "r1", [0], failed=fail),
        lambda address: connect_receiver(address, "r1", 0),
    ],
    ids=["producer", "device"],
)
def test_a_broker_of_another_release_is_refused(
    broker: Broker, connect: Callable[[str], object]
) -> None:
    with aged(broker) as address, pytest.raises(NodeError) as told:
        connect(address)
    assert told.value.message == (f"the broker at {address} is Kafka 3.9, expected Kafka 4")
    assert told.value.hint == "Use an image or jars of Kafka 4."
