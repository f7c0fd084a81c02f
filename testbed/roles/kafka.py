"""Records through an Apache Kafka broker: one topic per device, with one partition.

A producer is idempotent and waits for the broker to acknowledge every record: after an outage the
broker gets each record once and in order. A device commits its offset once its buffer has
the records; a restarted device receives its uncommitted records again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from testbed.datasets.streams import Receiver, Sender
from testbed.errors import NodeError

RELEASE = 4
"""The supported major release: an older broker does not report what it lacks."""

ROOM_BYTES = 64_000_000
"""Maximum size of records that the broker has not acknowledged."""

READY_SECONDS = 60.0
"""Time for a broker to answer and to have a device's topic; then connecting fails."""

BATCH_BYTES = 2**16
MAX_RECORDS = 2000
RETRY_SECONDS = 0.1
"""Between two attempts to read from an unreachable broker, which fail at once."""

FOR_EVER_MILLISECONDS = 2**31 - 1
FLUSH_SECONDS = 10.0
REQUEST_MILLISECONDS = 5000
RECONNECT_MILLISECONDS = 500
"""The longest pause between two attempts to reach the broker."""

ONE_OF_EACH = {"num_partitions": 1, "replication_factor": 1}


def topic_of(topics: str, device: int) -> str:
    """Return the name of a device's topic; ``topics`` is the run's name."""
    return f"{topics}-w{device}"


class KafkaSender(Sender):
    """The producer's end.

    Args:
        producer: idempotent and connected.
        topics: prefix of the topics' names.
        written: number of records already in each device's topic.
        failed: called in a thread of the producer if the broker can never accept a record.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        topics: str,
        *,
        written: dict[int, int],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._producer = producer
        self._topics = topics
        self._written = written
        self._failed = failed
        self._room = ROOM_BYTES
        self._lock = threading.Lock()  # acknowledgements arrive in a thread of the producer

    def send(self, device: int, record: bytes) -> bool:
        """Queue a record; return whether there was room for it."""
        with self._lock:
            if self._room < len(record):
                return False
            self._room -= len(record)
        sent = self._producer.send(topic_of(self._topics, device), record, partition=0)
        sent.add_callback(lambda _: self._record_written(device, len(record)))
        sent.add_errback(self._fail, device)
        return True

    def acknowledged(self, device: int) -> int:
        """Return how many of the device's records the broker has acknowledged."""
        with self._lock:
            return self._written[device]

    def available(self, device: int) -> int:
        """Return how many records the device could have fetched."""
        return self.acknowledged(device)

    async def flush(self) -> None:
        """Wait until the broker has acknowledged the queued records, or for FLUSH_SECONDS."""
        loop = asyncio.get_running_loop()
        with suppress(KafkaError):  # an unreachable broker: the missing records are not counted
            await loop.run_in_executor(None, lambda: self._producer.flush(timeout=FLUSH_SECONDS))

    def _record_written(self, device: int, size: int) -> None:
        with self._lock:
            self._written[device] += 1
            self._room += size

    def _fail(self, device: int, error: BaseException) -> None:
        where = topic_of(self._topics, device)
        self._failed(NodeError(f"the broker refused a record of {where}: {error}"))


class KafkaReceiver(Receiver):
    """A device's end: reads its topic from the last committed offset."""

    def __init__(self, consumer: KafkaConsumer, *, begins_after: int) -> None:
        self._consumer = consumer
        self.begins_after = begins_after
        self._uncommitted = False

    def poll(self, least: int, seconds: float) -> Sequence[bytes]:
        """Read the next records; none while the broker is unreachable."""
        until = time.monotonic() + seconds
        records: list[bytes] = []
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                found = self._consumer.poll(timeout_ms=int(left * 1000), max_records=MAX_RECORDS)
                records += [one.value for batch in found.values() for one in batch]
            except KafkaError as error:
                if not error.retriable:
                    raise NodeError(f"reading records failed: {error}") from None
                time.sleep(min(left, RETRY_SECONDS))  # the broker is unreachable
            if len(records) >= least or left == 0:
                self._uncommitted |= bool(records)
                return records

    def commit(self) -> None:
        """Commit the offset; the next poll sends it."""
        if self._uncommitted:
            with kafka_errors("committing an offset"):
                self._consumer.commit_async()
            self._uncommitted = False

    def close(self) -> None:
        """Close the consumer."""
        with kafka_errors("closing"):
            self._consumer.close(autocommit=False)


def connect_sender(
    address: str,
    topics: str,
    devices: Iterable[int],
    *,
    failed: Callable[[BaseException], object],
    linger_seconds: float = 0.0,
) -> tuple[KafkaSender, KafkaProducer]:
    """Create the topics of some devices; return their sender and the producer to close.

    Args:
        address: address of the broker.
        topics: prefix of the topics' names.
        devices: numbers of the devices.
        failed: see KafkaSender.
        linger_seconds: how long a record may wait for a batch, real seconds.

    Raises:
        NodeError: the broker does not answer in time, is of another release, or has topics of
            another run.
    """
    written = make_topics(address, topics, devices)
    with kafka_errors(f"connecting to the broker at {address}"):
        producer = KafkaProducer(
            **_client_options(address),
            enable_idempotence=True,
            acks="all",
            delivery_timeout_ms=FOR_EVER_MILLISECONDS,
            metrics_enabled=False,
            linger_ms=round(linger_seconds * 1000),
            batch_size=BATCH_BYTES,
        )
    return KafkaSender(producer, topics, written=written, failed=failed), producer


def make_topics(address: str, topics: str, devices: Iterable[int]) -> dict[int, int]:
    """Create missing topics of some devices; return the number of records in each, by device.

    A topic already has records if a producer of this run was restarted.

    Raises:
        NodeError: see ``connect_sender``.
    """
    names = {device: topic_of(topics, device) for device in devices}
    with kafka_errors(f"creating topics at the broker at {address}"):
        with closing(KafkaConsumer(**_client_options(address))) as consumer:
            check_release(consumer, address)
            existing = consumer.topics()
        _check_topics(existing, topics, address)
        new = {name: ONE_OF_EACH for name in names.values() if name not in existing}
        if new:
            with closing(KafkaAdminClient(**_client_options(address))) as admin:
                admin.create_topics(new, wait_for_metadata=True)
        with closing(KafkaConsumer(**_client_options(address))) as consumer:
            ends = consumer.end_offsets([TopicPartition(name, 0) for name in names.values()])
    return {device: ends[TopicPartition(name, 0)] for device, name in names.items()}


def connect_receiver(address: str, topics: str, device: int) -> KafkaReceiver:
    """Connect the receiver of a device, once the broker has its topic.

    Raises:
        NodeError: the broker does not answer in time, is of another release, or lacks the topic.
    """
    topic = topic_of(topics, device)
    with ExitStack() as made, kafka_errors(f"connecting to the broker at {address}"):
        consumer = KafkaConsumer(
            **_client_options(address),
            group_id=topic,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=MAX_RECORDS,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
        made.callback(consumer.close, autocommit=False)
        check_release(consumer, address)
        _await_topic(consumer, topic, address)
        consumer.assign([partition := TopicPartition(topic, 0)])
        committed = consumer.committed(partition) or 0
        made.pop_all()
    return KafkaReceiver(consumer, begins_after=committed)


def check_release(client: KafkaConsumer, address: str) -> None:
    """Refuse a broker of another release.

    Raises:
        NodeError: the release differs; names it.
    """
    version = client.config["api_version"]
    if version[0] != RELEASE:
        found = ".".join(map(str, version))
        raise NodeError(
            f"the broker at {address} is Kafka {found}, expected Kafka {RELEASE}",
            hint=f"Use an image or jars of Kafka {RELEASE}.",
        )


@contextmanager
def kafka_errors(what: str) -> Iterator[None]:
    """Convert errors of the Kafka client to NodeError."""
    try:
        yield
    except KafkaError as error:
        raise NodeError(f"{what} failed: {error}") from None


def _client_options(address: str) -> dict[str, Any]:
    """Return the options of all clients."""
    return {
        "bootstrap_servers": address,
        "bootstrap_timeout_ms": int(READY_SECONDS * 1000),
        "reconnect_backoff_max_ms": RECONNECT_MILLISECONDS,
        "request_timeout_ms": REQUEST_MILLISECONDS,
    }


def _check_topics(found: Iterable[str], topics: str, address: str) -> None:
    others = [one for one in found if not one.startswith(("__", f"{topics}-w"))]
    if others:
        raise NodeError(
            f"the broker at {address} has a topic of another run, {others[0]}: expected only "
            f"{topics}-w0, {topics}-w1, ...",
            hint="Each run needs its own broker: end the other run with `testbed down`.",
        )


def _await_topic(consumer: KafkaConsumer, topic: str, address: str) -> None:
    """Poll the broker's metadata until it has a topic."""
    deadline = time.monotonic() + READY_SECONDS
    while not consumer.partitions_for_topic(topic):
        if time.monotonic() > deadline:
            raise NodeError(
                f"the broker at {address} still has no topic {topic} after {READY_SECONDS:g} s"
            )
        time.sleep(RECONNECT_MILLISECONDS / 1000)  # between two requests
