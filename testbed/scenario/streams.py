"""The streams that deliver samples to the devices, and their transports."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from testbed.datasets.streams import OverTime, Persistence, Policy, Rates, Steady
from testbed.datasets.streams.rates import CLIP, Clip
from testbed.errors import InvalidValue
from testbed.scenario.direction import Link
from testbed.values.cpu_sets import CpuSet
from testbed.values.family import Named
from testbed.values.fields import (
    Count,
    Cpus,
    PerSecond,
    PositiveDuration,
    PositiveSize,
    StrictModel,
)
from testbed.values.seeds import stream
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
            raise InvalidValue(str(size), f"{least} or more, the minimum of a Kafka broker")
        return size

    return AfterValidator(check)


def _no_longer(linger: Duration) -> Duration:
    if linger > LONGEST_LINGER:
        raise InvalidValue(str(linger), f"at most {LONGEST_LINGER}")
    return linger


class Direct(StrictModel):
    """Producers send samples directly to their devices."""

    name: Literal["direct"]


class Kafka(StrictModel):
    """An Apache Kafka broker, with one topic of one partition per device.

    Attributes:
        heap: Java heap size of the broker; its process uses about 200 MB more.
        network_threads: threads that read requests and write replies.
        io_threads: threads that process requests.
        linger: how long a producer delays a record to send it together with others, in emulated
            time: the cost of a stream is its requests.
        retention: how long a topic keeps a record, read or not, in emulated time. Only whole
            segments are removed.
        segment: size of a log segment file.
        restart: whether a killed broker is restarted with its stored data; otherwise the run ends
            with it.
        cpu: CPU limit of the broker, in CPUs.
        cpuset: which CPUs of the host it may use.
        memory: memory limit, including the heap; by default half of the host's memory.
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


Transport = Annotated[Direct | Kafka, Named()]


RECORDS_PER_SECOND = 1500
"""Maximum load per producer process, in records per real second."""


class StreamSettings(StrictModel):
    """Samples arrive at each device at its own rate, instead of being available from the start.

    The data set's `partition` assigns the samples to the devices; each device gets its own in
    random order, shuffled again after each pass.

    Attributes:
        rates: samples per emulated second of each device.
        clip: minimum and maximum rate: drawn rates are clipped to this range, others must be within
            it. `off` for no limits.
        over_time: how rates change over time.
        policy: policy for waiting samples: `persistence` keeps all, `truncation` discards those
            that a step does not take, `bounded` keeps the newest.
        stream_timeout: a device that waits for samples and receives none for this long, in emulated
            time, is left out of the round. `off` to wait forever.
        transport: how live samples reach the devices: `direct`, from their producer, or through a
            `kafka` broker.
        samples_per_record: number of samples sent together, once the last one is produced; at most
            the size of the smallest batch.
        producers: number of producer processes, which share the devices; by default as many as
            needed.
        link: link of the nodes from which devices fetch samples: the producers or, if there is one,
            the broker. A device's own link carries its samples and its gradients.
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
            raise InvalidValue(
                f"a clip of {list(self.range)}", "the lower rate first, like [8, 1024]"
            )
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

    @property
    def kept_seconds(self) -> float:
        """How long a record can be fetched, in emulated time; infinite without a broker."""
        return float(self.transport.retention) if isinstance(self.transport, Kafka) else inf

    def per_second(self, devices: int, *, seed: int) -> Sequence[float]:
        """Return the rate of each device, by index; drawn from its own random stream."""
        return self.rates.of(devices, clip=self.range, rng=stream(seed, "streams", "rates"))

    def producer_count(self, devices: int, *, seed: int, time_scale: float) -> int:
        """Return the number of producer processes: as configured, or as many as needed."""
        if self.producers is not None:
            return min(self.producers, devices)
        asked = sum(self.per_second(devices, seed=seed)) * time_scale
        return min(max(1, ceil(asked / RECORDS_PER_SECOND)), devices)
