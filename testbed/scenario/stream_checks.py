"""What streams may ask for in vain: nobody who takes them, rates that no device has."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, inf

from testbed.algorithms import ScaDles
from testbed.algorithms.base import AlgorithmConfig
from testbed.errors import Problem
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.schema import Scenario
from testbed.scenario.streams import StreamSettings
from testbed.streams import Each, Steady, Traced

PER_SECOND: Keys = ("streams", "rates", "per_second")


def check_streams(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """There is an algorithm that takes them, and every device can be fed."""
    streams, algorithm, count = scenario.streams, scenario.algorithm, scenario.workers.count
    if streams is None:
        return
    if isinstance(algorithm, AlgorithmConfig) and not algorithm.TAKES_STREAMS:
        expected = "none, or an algorithm that takes them, such as ddl or scadles"
        yield problem_at(
            document, ("streams",), found=f"streams with {algorithm.name}", expected=expected
        )
    least = algorithm.min_batch if isinstance(algorithm, ScaDles) else scenario.workers.batch_size
    if streams.samples_per_record > least:
        expected = f"at most {least:,}, the smallest batch: no step waits for more than it takes"
        found = f"{streams.samples_per_record:,}"
        yield problem_at(
            document, ("streams", "samples_per_record"), found=found, expected=expected
        )
    if isinstance(streams.rates, Each) and len(streams.rates.given) != count:
        found, expected = f"{len(streams.rates.given):,} rates", f"{count:,}, one for each worker"
        yield problem_at(
            document, ("streams", "rates", "per_second"), found=found, expected=expected
        )
        return
    lowest, largest = streams.range or (0.0, inf)
    for rate in [rate for rate in streams.rates.given if not lowest <= rate <= largest][:1]:
        expected = f"a rate from {lowest:g} to {largest:g} samples a second, or `clip: off`"
        yield problem_at(
            document, ("streams", "rates", "per_second"), found=f"{rate:g}", expected=expected
        )
    change = streams.over_time
    yield from _records_in_time(scenario, streams, document)
    stops = not isinstance(change, Traced) and change.falls_silent  # a recording is looked at apart
    if (stops or 0.0 in streams.per_second(count, seed=scenario.seed)) and streams.patience == inf:
        expected = "a duration: streams fall silent, and nobody would go on"
        yield problem_at(document, ("streams", "stream_timeout"), found="off", expected=expected)


def _records_in_time(
    scenario: Scenario, streams: StreamSettings, document: Document
) -> Iterator[Problem]:
    """A record that is filled for longer than its device waits would keep it out of every round."""
    rates = streams.per_second(scenario.workers.count, seed=scenario.seed)
    slowest = min((rate for rate in rates if rate), default=inf)
    seconds = streams.samples_per_record / slowest
    steady = isinstance(streams.over_time, Steady)  # else it may come to more than that
    if steady and streams.samples_per_record > 1 and seconds > streams.patience:
        apart = f"{streams.samples_per_record:,}: {seconds:g} s apart at {slowest:g} a second"
        most = max(1, floor(streams.patience * slowest))
        yield problem_at(
            document,
            ("streams", "samples_per_record"),
            found=apart,
            expected=f"at most {most:,}, which a device waits for (stream_timeout)",
        )
