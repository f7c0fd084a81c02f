"""How long data may be under way on a scenario's links."""

from __future__ import annotations

from testbed import faults
from testbed.payloads import VALUE_BYTES
from testbed.scenario.devices import LEAST_RATE, devices
from testbed.scenario.direction import Link
from testbed.scenario.schema import Scenario
from testbed.scenario.streams import Kafka
from testbed.scenario.traces import recorded_values

REPLY_BYTES = 2**20
"""Maximum size of a reply with samples, of a producer or a broker."""

LATENCY_SECONDS = 1.0
"""Real seconds that the host may need to pass on a sample, in addition to linger and links."""

PATIENCE_SECONDS = 10.0
"""Real seconds for which a stream may stop without a fault: a killed broker is back before that."""


def in_flight_seconds(scenario: Scenario) -> float:
    """Return how long a sample may be under way to its device, in emulated seconds.

    It may wait for the producer's linger and, on the device's link or on the one from which all
    devices may fetch at once, for a full reply with earlier samples.
    """
    streams = scenario.streams
    assert streams is not None, "only scenarios with streams have samples under way"
    linger = float(streams.transport.linger) if isinstance(streams.transport, Kafka) else 0.0
    shared = seconds_per_byte(streams.link) * scenario.workers.count
    transfer = REPLY_BYTES * max(slowest_link(scenario), shared)
    delays = max(_delay(one.link) for one in devices(scenario))
    host = LATENCY_SECONDS * scenario.time_scale
    return host + linger + transfer + delays + _delay(streams.link)


def quiet_seconds(scenario: Scenario) -> float:
    """Return the emulated seconds without a sample after which a device's stream is silent."""
    return in_flight_seconds(scenario) + PATIENCE_SECONDS * scenario.time_scale


def ping_seconds(scenario: Scenario, size: int) -> float:
    """Return the emulated seconds that a ping to or from the parameter server may have to wait.

    It may wait for a model of ``size`` parameters on the slowest link, for the models of all
    workers on the parameter server's, and for the end of a partition.
    """
    shared = seconds_per_byte(scenario.ps.link) * scenario.workers.count
    slowest = max(slowest_link(scenario), shared)
    return VALUE_BYTES * size * slowest + _longest_partition(scenario)


def slowest_link(scenario: Scenario) -> float:
    """Return the time per byte on the slowest link of a worker, in emulated seconds."""
    links: list[Link | faults.ChangedLink] = [one.link for one in devices(scenario)]
    links += [fault for fault in scenario.faults if isinstance(fault, faults.ChangedLink)]
    slowest = max(seconds_per_byte(link) for link in links)
    if any(place.what == "rate" for place in recorded_values(scenario)):
        slowest = max(slowest, 1 / LEAST_RATE.bytes_per_second)
    return slowest


def seconds_per_byte(link: Link | faults.ChangedLink) -> float:
    """Return the time per byte in a link's slower direction, emulated; 0 if neither has a rate."""
    rates = (direction.rate for direction in (link.up, link.down))
    return max((1 / rate.bytes_per_second for rate in rates if rate is not None), default=0.0)


def _longest_partition(scenario: Scenario) -> float:
    """Return its emulated seconds; afterwards TCP may take as long again to retry."""
    partitions = [fault for fault in scenario.faults if isinstance(fault, faults.NetworkPartition)]
    return max((float(fault.duration or 0.0) for fault in partitions), default=0.0)


def _delay(link: Link) -> float:
    return sum(float(direction.delay or 0.0) for direction in (link.up, link.down))
