"""The streams that deliver samples to the devices, and their transports."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from testbed.errors import Unfit
from testbed.scenario.direction import Link
from testbed.seeds import stream
from testbed.streams import OverTime, Persistence, Policy, Rates, Steady
from testbed.streams.rates import CLIP, Clip
from testbed.values.cpu_sets import CpuSet
from testbed.values.family import Named
from testbed.values.fields import Count, Cpus, Part, PerSecond, PositiveDuration, PositiveSize
from testbed.values.units import Duration, Size

LEAST_SEGMENT = Size(2**20)
"""The minimum of a Kafka broker."""

LARGEST_RECORD = Size(1_000_000)
"""The maximum of a Kafka producer."""

LEAST_HEAP = Size(128 * 2**20)
"""With less, the broker exits before it listens."""

LONGEST_LINGER = Duration(60)

Threads = Annotated[int, Field(ge=1, le=64, strict=True)]


def _at_least(least: Size) -> AfterValidator:
    def check(size: Size) -> Size:
        if size < least:
            raise Unfit(str(size), f"{least} or more, which a Kafka broker needs")
        return size

    return AfterValidator(check)


def _no_longer(linger: Duration) -> Duration:
    if linger > LONGEST_LINGER:
        raise Unfit(str(linger), f"at most {LONGEST_LINGER}")
    return linger


class Direct(Part):
    """Producers send each sample to its device themselves."""

    name: Literal["direct"]


class Kafka(Part):
    """Through a broker of Apache Kafka: a topic for every device, each of one partition.

    Attributes:
        heap: memory of the broker's Java heap; its process takes some 200 MB more.
        network_threads: that read requests from connections, and write replies to them.
        io_threads: that carry requests out.
        linger: how long a producer keeps a record back, in emulated time, for others that go to the
            broker with it: what a stream costs is its requests.
        retention: how long a record is kept in its topic, read or not, in emulated time. Only whole
            segments are removed.
        segment: size of a file of a topic's log.
        restart: whether a broker that was killed is started again, with all that it had written
            down; without, the run ends with it.
        cpu: how much CPU the broker may use, in CPUs.
        cpuset: which CPUs of the host it may use.
        memory: memory it may use, heap and all; by default half of the host's.
    """

    name: Literal["kafka"]
    heap: Annotated[PositiveSize, _at_least(LEAST_HEAP)] = Size(512 * 2**20)
    network_threads: Threads = 8
    io_threads: Threads = 4
    linger: Annotated[Duration, AfterValidator(_no_longer)] = Duration(0.05)
    retention: PositiveDuration = Duration(24 * 3600)
    segment: Annotated[PositiveSize, _at_least(LEAST_SEGMENT)] = Size(64 * 2**20)
    restart: Annotated[bool, Field(strict=True)] = True
    cpu: Cpus | None = None
    cpuset: CpuSet | None = None
    memory: PositiveSize | None = None


Transport = Annotated[Annotated[Direct | Kafka, Field(discriminator="name")], Named()]


RECORDS_PER_SECOND = 1500
"""Maximum load per producer process, in records per real second."""


class StreamSettings(Part):
    """Samples come to each device at its own rate, instead of being there from the beginning.

    Which samples come to which device says the data set's `partition`; each device's come in an
    order that is drawn, and anew once all have come.

    Attributes:
        rates: samples an emulated second, of each device.
        clip: the least and the largest rate: drawn ones are brought into this range, others have to
            be in it. `off` for any.
        over_time: how rates change.
        policy: what becomes of samples that wait: `persistence` keeps all, `truncation` discards
            what a step leaves, `bounded` keeps the newest.
        stream_timeout: a device to which nothing has come for so long, in emulated time, while it
            waits for samples, is left out of the round. `off` to wait for ever.
        transport: how live samples get to the devices: `direct`, from their producer, or by way of
            a `kafka` broker.
        samples_per_record: so many samples travel together, once the last of them is made; at most
            as many as the smallest batch has.
        producers: processes that produce them, each for its share of the devices; by default as
            many as it takes.
        link: of each node that devices get samples from: the producers or, where there is one, the
            broker. A device's own link carries its samples and its gradients.
    """

    rates: Rates
    clip: Annotated[tuple[PerSecond, PerSecond], Field(strict=False)] | Literal["off"] = CLIP
    over_time: OverTime = Steady(name="steady")
    policy: Policy = Persistence(name="persistence")
    stream_timeout: PositiveDuration | Literal["off"] = Duration(10)
    transport: Transport = Direct(name="direct")
    samples_per_record: Count = 1
    producers: Count | None = None
    link: Link = Link()

    @model_validator(mode="after")
    def _range_in_order(self) -> StreamSettings:
        if self.range is not None and self.range[0] > self.range[1]:
            raise Unfit(f"a clip of {list(self.range)}", "the least rate first, like [8, 1024]")
        return self

    @property
    def range(self) -> Clip | None:
        """The clip range; None for any rate."""
        return None if isinstance(self.clip, str) else self.clip

    @property
    def has_broker(self) -> bool:
        """Whether samples pass through a broker."""
        return isinstance(self.transport, Kafka)

    @property
    def restarts(self) -> bool:
        """Whether feeders are restarted immediately after they were killed."""
        return isinstance(self.transport, Kafka) and self.transport.restart

    @property
    def patience(self) -> float:
        """The timeout in emulated seconds; infinite if disabled."""
        return inf if isinstance(self.stream_timeout, str) else float(self.stream_timeout)

    def per_second(self, devices: int, *, seed: int) -> Sequence[float]:
        """Return the rate of each device, by index; drawn from its own random stream."""
        return self.rates.of(devices, clip=self.range, rng=stream(seed, "streams", "rates"))

    def producer_count(self, devices: int, *, seed: int, time_scale: float) -> int:
        """Return the number of producer processes: as configured, or as many as needed."""
        if self.producers is not None:
            return min(self.producers, devices)
        asked = sum(self.per_second(devices, seed=seed)) * time_scale
        return min(max(1, ceil(asked / RECORDS_PER_SECOND)), devices)
