"""What streams may ask for in vain: nobody who takes them, rates that no device has."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from testbed.algorithms.base import AlgorithmConfig
from testbed.errors import Problem
from testbed.scenario.document import Document, Keys, options_path, problem_at
from testbed.scenario.schema import Scenario
from testbed.streams import Each


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
    path: Keys = options_path(document, ("streams", "rates"))
    if isinstance(streams.rates, Each) and len(streams.rates.given) != count:
        found, expected = f"{len(streams.rates.given):,} rates", f"{count:,}, one for each worker"
        yield problem_at(document, (*path, "per_second"), found=found, expected=expected)
        return
    least, largest = streams.range or (0.0, inf)
    for rate in [rate for rate in streams.rates.given if not least <= rate <= largest][:1]:
        expected = f"a rate from {least:g} to {largest:g} samples a second, or `clip: off`"
        yield problem_at(document, (*path, "per_second"), found=f"{rate:g}", expected=expected)
    silent = 0.0 in streams.per_second(count, seed=scenario.seed) or streams.over_time.falls_silent
    if silent and streams.patience == inf:
        expected = "a duration: streams fall silent, and nobody would go on"
        yield problem_at(document, ("streams", "stream_timeout"), found="off", expected=expected)
