"""When the samples of each device's stream come, by its rate and the recording that it follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from testbed.errors import Problem
from testbed.scenario.direction import Recording
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import Locate, offset_of, read_recording, unreadable
from testbed.streams import Arrivals, Recorded, Traced
from testbed.values.traces import FACTOR, UnfitLine

PATH: Keys = ("streams", "over_time")


def recording(scenario: Scenario) -> Recording | None:
    """The recording that the rates of streams follow; None for none."""
    change = None if scenario.streams is None else scenario.streams.over_time
    return _recording(change) if isinstance(change, Traced) else None


def _recording(traced: Traced) -> Recording:
    return Recording(trace=traced.file, then=traced.then, offset=traced.offset)


def arrivals(scenario: Scenario, locate: Locate) -> Sequence[Arrivals] | None:
    """When the samples of each device come, by index; None without streams.

    Raises:
        OSError, UnfitLine, UnicodeDecodeError: the recording cannot be read.
    """
    streams, count, seed = scenario.streams, scenario.workers.count, scenario.seed
    if streams is None:
        return None
    rates, lot = streams.per_second(count, seed=seed), streams.samples_per_record
    if not isinstance(streams.over_time, Traced):
        return [Arrivals(rate, streams.over_time, lot) for rate in rates]
    followed = _recording(streams.over_time)
    trace = read_recording(followed, FACTOR, locate)
    offsets = [offset_of(followed, trace, device, seed=seed) for device in range(count)]
    return [
        Arrivals(rate, Recorded(trace, offset), lot)
        for rate, offset in zip(rates, offsets, strict=True)
    ]


def check_recorded_rates(
    scenario: Scenario, document: Document, locate: Locate
) -> Iterator[Problem]:
    """Whatever is wrong with the recording that rates follow, or with what it asks for."""
    followed, streams = recording(scenario), scenario.streams
    if followed is None or streams is None:
        return
    try:
        trace = read_recording(followed, FACTOR, locate)
    except (UnfitLine, UnicodeDecodeError, OSError) as error:
        yield unreadable(followed, error, document, (*PATH, "file"))
        return
    if not any(trace.values):
        expected = "a factor above zero somewhere: no sample would ever come"
        found = f"nothing but 0 in {followed.trace}"
        yield problem_at(document, (*PATH, "file"), found=found, expected=expected)
    elif not all(trace.values) and streams.patience == inf:
        expected = "a duration: the recording has streams fall silent, and nobody would go on"
        yield problem_at(document, ("streams", "stream_timeout"), found="off", expected=expected)
