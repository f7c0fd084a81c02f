"""How the samples of streams get from their producers to the devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from testbed.errors import Unfit
from testbed.values.cpu_sets import CpuSet
from testbed.values.family import Named
from testbed.values.fields import Cpus, Part, PositiveDuration, PositiveSize
from testbed.values.units import Duration, Size

LEAST_SEGMENT = Size(2**20)
"""A Kafka broker takes no smaller one."""

LARGEST_RECORD = Size(1_000_000)
"""A Kafka producer sends no larger one."""

LEAST_HEAP = Size(128 * 2**20)
"""With less it ends before it listens."""

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
