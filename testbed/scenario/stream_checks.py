"""Checks of a scenario's streams."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, inf

from testbed.algorithms import ScaDles
from testbed.algorithms.base import AlgorithmConfig
from testbed.datasets.streams import Each, Steady, Traced
from testbed.scenario.document import (
    Finding,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.streams import StreamSettings


def check_streams(scenario: Scenario) -> Iterator[Finding]:
    """Check that the algorithm accepts streams, and that every device can be fed."""
    streams, algorithm, count = scenario.streams, scenario.algorithm, scenario.workers.count
    if streams is None:
        return
    if isinstance(algorithm, AlgorithmConfig) and not algorithm.TAKES_STREAMS:
        expected = "no streams, or an algorithm that supports streams, such as ddl or scadles"
        yield ("streams",), f"streams with {algorithm.name}", expected
    least = algorithm.min_batch if isinstance(algorithm, ScaDles) else scenario.workers.batch_size
    if streams.samples_per_record > least:
        expected = f"at most {least:,}, the smallest batch: a step waits only for samples it uses"
        found = f"{streams.samples_per_record:,}"
        yield ("streams", "samples_per_record"), found, expected
    if isinstance(streams.rates, Each) and len(streams.rates.given) != count:
        found, expected = f"{len(streams.rates.given):,} rates", f"{count:,}, one for each worker"
        yield ("streams", "rates", "per_second"), found, expected
        return
    lowest, largest = streams.range or (0.0, inf)
    for rate in [rate for rate in streams.rates.given if not lowest <= rate <= largest][:1]:
        expected = f"a rate from {lowest:g} to {largest:g} samples per second, or `clip: off`"
        yield ("streams", "rates", "per_second"), f"{rate:g}", expected
    change = streams.over_time
    yield from _records_in_time(scenario, streams)
    stops = not isinstance(change, Traced) and change.falls_silent  # recordings: see elsewhere
    if (stops or 0.0 in streams.per_second(count, seed=scenario.seed)) and streams.patience == inf:
        expected = "a duration: some streams stop, and training would wait for them forever"
        yield ("streams", "stream_timeout"), "off", expected


def _records_in_time(scenario: Scenario, streams: StreamSettings) -> Iterator[Finding]:
    """Check that records are complete within the timeout; otherwise a device misses all rounds."""
    rates = streams.per_second(scenario.workers.count, seed=scenario.seed)
    slowest = min((rate for rate in rates if rate), default=inf)
    seconds = streams.samples_per_record / slowest
    steady = isinstance(streams.over_time, Steady)  # otherwise rates may rise later
    if steady and streams.samples_per_record > 1 and seconds > streams.patience:
        found = (
            f"{streams.samples_per_record:,}, which take {seconds:g} s at {slowest:g} per second"
        )
        most = max(1, floor(streams.patience * slowest))
        expected = f"at most {most:,}, which take no longer than stream_timeout"
        yield ("streams", "samples_per_record"), found, expected
