"""Recordings of links, streams and workers: reading, checks, and assignment to workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from testbed.datasets.streams import Arrivals, Recorded, Traced
from testbed.errors import Problem
from testbed.scenario.devices import LEAST_RATE
from testbed.scenario.direction import TRACED, Link, Recording, TracedDirection
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.links import link_spec, unshapable
from testbed.scenario.schema import Scenario
from testbed.scenario.source import Locate, read_named
from testbed.values.fields import replaced
from testbed.values.recordings import LAYOUTS, Reading, check_plausible, guess, read_foreign
from testbed.values.seeds import stream
from testbed.values.traces import DELAY, FACTOR, RATE, InvalidLine, Trace, read_trace
from testbed.values.units import Duration, Rate

COLUMNS: Mapping[str, str] = {"rate": RATE, "delay": DELAY}


class RecordedField(NamedTuple):
    """A rate or a delay that follows a recording, by class, direction and field."""

    device_class: str
    direction: str
    what: str
    recording: Recording

    def has_value(self, scenario: Scenario) -> bool:
        """Whether the mean of the recording is already set."""
        link = scenario.workers.classes[self.device_class].link
        return getattr(getattr(link, self.direction), self.what) is not None

    @property
    def path(self) -> tuple[str, ...]:
        """Its path in the scenario."""
        return ("workers", "classes", self.device_class, "link", self.direction, self.what)


@dataclass(frozen=True)
class Following:
    """A recording that a worker's link follows.

    Attributes:
        direction: ``up`` or ``down``.
        what: ``rate``, in bits per second, or ``delay``, in seconds; both emulated.
        offset: position of the recording at the start of the training, in seconds.
    """

    worker: int
    direction: str
    what: str
    trace: Trace
    offset: float


def recorded_fields(scenario: Scenario) -> Iterator[RecordedField]:
    """Yield all fields of links that follow a recording."""
    for name, member in scenario.workers.classes.items():
        yield from (RecordedField(name, *one) for one in recordings_of(member.link))


def followings(scenario: Scenario, locate: Locate) -> list[Following]:
    """Return the recordings of all workers' links, from the files read for ``with_means``.

    Raises:
        OSError, InvalidLine: a file has changed since.
    """
    traces = {
        one: read_link_recording(one.recording, one.what, locate)
        for one in recorded_fields(scenario)
    }
    return [
        Following(
            worker,
            followed.direction,
            followed.what,
            trace,
            offset_of(followed.recording, trace, f"w{worker}", seed=scenario.seed),
        )
        for worker, name in enumerate(scenario.workers.worker_classes())
        for followed, trace in traces.items()
        if followed.device_class == name
    ]


def offset_of(recording: Recording, trace: Trace, node: str, *, seed: int) -> float:
    """Return a node's start in a recording, in seconds: the same share in all its recordings."""
    if recording.offset == "none":
        return 0.0
    return float(stream(seed, node, "trace").random()) * trace.end


def own_copy(folder: Path, name: str) -> Path:
    """Return the path of a recording's copy in a run's folder."""
    return folder / "custom" / Path(name).name


def with_means(
    scenario: Scenario, document: Document, locate: Locate | None
) -> tuple[Scenario, list[Problem]]:
    """Set every recording's mean as its rate or delay; return the scenario and the problems."""
    problems, traces = list(_misplaced(scenario, document)), dict[RecordedField, Trace]()
    for followed in recorded_fields(scenario):
        if locate is None and followed.has_value(scenario):
            continue  # already set in a run's own scenario
        try:
            traces[followed] = read_link_recording(followed.recording, followed.what, locate)
        except (InvalidLine, UnicodeDecodeError, OSError) as error:
            problems.append(unreadable(followed.recording, error, document, followed.path))
    for followed, trace in traces.items():
        problems += _unfit(scenario, document, followed, trace)
        scenario = _with_value(scenario, followed, trace.mean())
    return scenario, problems


def _unfit(
    scenario: Scenario, document: Document, followed: RecordedField, trace: Trace
) -> Iterator[Problem]:
    """Check that the kernel can shape the smallest and largest value of a recording."""
    link = scenario.workers.classes[followed.device_class].link
    for found in unfit(link, *followed[1:], trace=trace, time_scale=scenario.time_scale):
        yield problem_at(document, followed.path, *found)


def unfit(
    link: Link, direction: str, what: str, recording: Recording, *, trace: Trace, time_scale: float
) -> Iterator[tuple[str, str, str]]:
    """Yield what the kernel cannot shape of a link's recording: found, expected, and a hint.

    Args:
        link: the link.
        direction: ``up`` or ``down``.
        what: ``rate`` or ``delay``.
        recording: as the scenario has it.
        trace: what was read.
        time_scale: of the scenario.
    """
    for value in dict.fromkeys((min(trace.values), max(trace.values))):
        changed = replaced(link, (direction, what), quantity(what, value))
        own: TracedDirection = getattr(changed, direction)
        if own.jitter is not None and own.delay is not None and own.jitter > own.delay:
            yield f"a delay of {own.delay}", f"at least the jitter, {own.jitter}", ""
        spec = link_spec(changed, address="", mac="", time_scale=time_scale)
        for _, hint in unshapable(spec):
            found = f"{quantity(what, value)} in {recording.trace}"
            yield found, "what the kernel can shape", hint


def read_link_recording(recording: Recording, what: str, locate: Locate | None) -> Trace:
    """Read what a ``rate`` or a ``delay`` of a link follows; see ``read_recording``."""
    trace = read_recording(recording, COLUMNS[what], locate)
    if what == "delay":
        return trace
    return replace(trace, values=tuple(max(float(LEAST_RATE), one) for one in trace.values))


def read_recording(recording: Recording, column: str, locate: Locate | None) -> Trace:
    """Read the file of a recording; ``column`` is its quantity.

    Raises:
        OSError, InvalidLine, UnicodeDecodeError: see ``unreadable``.
    """
    text, repeats = read_named(recording.trace, locate), recording.then == "repeat"
    return parse_recording(text, column, recording.reading, repeats=repeats)


def parse_recording(text: str, column: str, reading: Reading | None, *, repeats: bool) -> Trace:
    """Read the text of a recording; ask for the unit of values that are not those of a link.

    Raises:
        InvalidLine: see ``read_trace`` and ``read_foreign``.
    """
    if reading is not None:
        trace = read_foreign(text, column, reading, repeats=repeats)
    else:
        try:
            trace = read_trace(text, column, repeats=repeats)
        except InvalidLine as error:
            layout = guess(text)
            if layout in LAYOUTS:
                expected = f"{error.expected}; or is it `format: {layout}`?"
                raise InvalidLine(error.line, error.found, expected) from None
            raise
    check_plausible(trace, column)
    return trace


def unreadable(recording: Recording, error: Exception, document: Document, path: Keys) -> Problem:
    """Return the problem for a recording that ``read_recording`` could not read."""
    match error:
        case InvalidLine():
            return Problem(recording.trace, error.line, "", error.found, error.expected)
        case UnicodeDecodeError():
            expected = "a text file: CSV or, for a rate, lines of milliseconds"
            return Problem(recording.trace, 0, "", "binary data", expected)
    found = f"{recording.trace}: {getattr(error, 'strerror', None) or error}"
    expected = "a text file, relative to the scenario's folder"
    return problem_at(document, path, found=found, expected=expected)


def _with_value(scenario: Scenario, followed: RecordedField, number: float) -> Scenario:
    return replaced(scenario, followed.path, quantity(followed.what, number))


def quantity(what: str, number: float) -> Rate | Duration:
    """Return a number of a recording as a ``rate`` or a ``delay``."""
    return Rate(number) if what == "rate" else Duration(number)


def _misplaced(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Yield recordings on links that are not workers' links."""
    others: dict[Keys, Link] = {("ps", "link"): scenario.ps.link}
    others |= {("programs", name, "link"): one.link for name, one in scenario.programs.items()}
    for path, link in others.items():
        for direction, what, _ in recordings_of(link):
            expected = "a value: only workers' links can follow recordings"
            place = (*path, direction, what)
            yield problem_at(document, place, found="a trace", expected=expected)


def recordings_of(link: Link) -> Iterator[tuple[str, str, Recording]]:
    """Yield the direction and the field of each value that follows a recording."""
    for direction in ("up", "down"):
        for what in TRACED:
            recording = getattr(getattr(link, direction), f"{what}_trace")
            if recording is not None:
                yield direction, what, recording


OVER_TIME: Keys = ("streams", "over_time")


def recording(scenario: Scenario) -> Recording | None:
    """Return the recording that the rates of streams follow, or None."""
    change = None if scenario.streams is None else scenario.streams.over_time
    return _recording(change) if isinstance(change, Traced) else None


def _recording(traced: Traced) -> Recording:
    return Recording(trace=traced.file, then=traced.then, offset=traced.offset)


def arrivals(scenario: Scenario, locate: Locate) -> Sequence[Arrivals] | None:
    """Return the sample arrivals of each device, by index; None without streams.

    Raises:
        OSError, InvalidLine, UnicodeDecodeError: the recording cannot be read.
    """
    streams, count, seed = scenario.streams, scenario.workers.count, scenario.seed
    if streams is None:
        return None
    rates, lot = streams.per_second(count, seed=seed), streams.samples_per_record
    if not isinstance(streams.over_time, Traced):
        return [Arrivals(rate, streams.over_time, lot) for rate in rates]
    followed = _recording(streams.over_time)
    trace = read_recording(followed, FACTOR, locate)
    offsets = [offset_of(followed, trace, f"w{device}", seed=seed) for device in range(count)]
    return [
        Arrivals(rate, Recorded(trace, offset), lot)
        for rate, offset in zip(rates, offsets, strict=True)
    ]


def check_recorded_rates(
    scenario: Scenario, document: Document, locate: Locate
) -> Iterator[Problem]:
    """Check the recording that rates follow, and the rates that result."""
    followed, streams = recording(scenario), scenario.streams
    if followed is None or streams is None:
        return
    try:
        trace = read_recording(followed, FACTOR, locate)
    except (InvalidLine, UnicodeDecodeError, OSError) as error:
        yield unreadable(followed, error, document, (*OVER_TIME, "file"))
        return
    if not any(trace.values):
        expected = "at least one factor above zero: otherwise no sample arrives"
        found = f"nothing but 0 in {followed.trace}"
        yield problem_at(document, (*OVER_TIME, "file"), found=found, expected=expected)
    elif not all(trace.values) and streams.patience == inf:
        expected = "a duration: streams fall silent, and training would wait forever"
        yield problem_at(document, ("streams", "stream_timeout"), found="off", expected=expected)
