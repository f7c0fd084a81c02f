"""Recordings of links, streams and workers: reading, checks, and assignment to workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TypeVar

from testbed.datasets.streams import Arrivals, Recorded, Traced
from testbed.errors import Problem
from testbed.scenario.devices import LEAST_RATE
from testbed.scenario.direction import TRACED, Link, Recording, TracedDirection
from testbed.scenario.document import Document, Finding, Keys, problem_at
from testbed.scenario.links import link_spec, unshapable
from testbed.scenario.schema import Scenario
from testbed.scenario.source import Locate, read_named
from testbed.scenario.workload import Workload
from testbed.values.fields import replaced
from testbed.values.recordings import LAYOUTS, Reading, check_plausible, guess, read_foreign
from testbed.values.seeds import stream
from testbed.values.traces import DELAY, FACTOR, RATE, InvalidLine, Trace, read_trace
from testbed.values.units import Duration, Rate

AnyScenario = TypeVar("AnyScenario", bound=Scenario | Workload)

COLUMNS: Mapping[str, str] = {"rate": RATE, "delay": DELAY}


@dataclass(frozen=True)
class WrittenLink:
    """A link as the scenario has it.

    Attributes:
        path: its path in the scenario.
        nodes: the numbers of the workers, or of a workload's nodes, that have it.
    """

    path: tuple[str, ...]
    link: Link
    nodes: tuple[int, ...]

    @property
    def owner(self) -> str:
        """The program or class that has it, like ``rank`` and ``rank.classes.slow``."""
        return ".".join(self.path[1:-1])


@dataclass(frozen=True)
class RecordedValue:
    """A rate or a delay of such a link that follows a recording.

    Attributes:
        direction: ``up`` or ``down``.
        what: ``rate`` or ``delay``.
    """

    written: WrittenLink
    direction: str
    what: str
    recording: Recording

    @property
    def path(self) -> tuple[str, ...]:
        """Its path in the scenario."""
        return (*self.written.path, self.direction, self.what)

    @property
    def has_mean(self) -> bool:
        """Whether the mean of the recording is already set, as in a run's own scenario."""
        return getattr(getattr(self.written.link, self.direction), self.what) is not None

    def read(self, locate: Locate | None) -> Trace:
        """Read the recording; see ``read_recording``."""
        trace = read_recording(self.recording, COLUMNS[self.what], locate)
        if self.what == "delay":
            return trace
        return replace(trace, values=tuple(max(float(LEAST_RATE), one) for one in trace.values))


@dataclass(frozen=True)
class Following:
    """A recording that a node's link follows.

    Attributes:
        worker: the number of the worker, or of a workload's node.
        direction: ``up`` or ``down``.
        what: ``rate``, in bits per second, or ``delay``, in seconds; both emulated.
        offset: position of the recording at the start of the training, in seconds.
    """

    worker: int
    direction: str
    what: str
    trace: Trace
    offset: float


def written_links(scenario: Scenario | Workload) -> Iterator[WrittenLink]:
    """Yield the links of all classes of workers, or of all programs and their classes."""
    first = 0
    if isinstance(scenario, Scenario):
        for name, count in scenario.workers.class_counts().items():
            link, nodes = scenario.workers.classes[name].link, tuple(range(first, first + count))
            yield WrittenLink(("workers", "classes", name, "link"), link, nodes)
            first += count
        return
    for name, program in scenario.workload.items():
        own = ("workload", name)
        classes = list(enumerate(program.node_classes(name), first))
        shared = tuple(number for number, (_, one) in classes if one.link is None)
        yield WrittenLink((*own, "link"), program.link, shared)
        for kind, member in program.classes.items():
            if member.link is not None:
                nodes = tuple(number for number, (key, _) in classes if key == kind)
                yield WrittenLink((*own, "classes", kind, "link"), member.link, nodes)
        first += len(classes)


def recorded_values(scenario: Scenario | Workload) -> Iterator[RecordedValue]:
    """Yield all rates and delays of links that follow recordings."""
    for one in written_links(scenario):
        yield from (RecordedValue(one, *value) for value in recordings_of(one.link))


def followings(scenario: Scenario | Workload, locate: Locate) -> list[Following]:
    """Return the recordings of all nodes' links, from the files read for ``with_means``.

    Raises:
        OSError, InvalidLine: a file has changed since.
    """
    found = list[Following]()
    if isinstance(scenario, Scenario):
        names = tuple(f"w{number}" for number in range(scenario.workers.count))
    else:
        names = scenario.node_names()
    for one in recorded_values(scenario):
        trace = one.read(locate)
        for number in one.written.nodes:
            offset = offset_of(one.recording, trace, names[number], seed=scenario.seed)
            found.append(Following(number, one.direction, one.what, trace, offset))
    return sorted(found, key=lambda one: one.worker)


def offset_of(recording: Recording, trace: Trace, node: str, *, seed: int) -> float:
    """Return a node's start in a recording, in seconds: the same share in all its recordings."""
    if recording.offset == "none":
        return 0.0
    return float(stream(seed, node, "trace").random()) * trace.end


def own_copy(folder: Path, name: str) -> Path:
    """Return the path of a recording's copy in a run's folder."""
    return folder / "custom" / Path(name).name


def with_means(
    scenario: AnyScenario, document: Document, locate: Locate | None
) -> tuple[AnyScenario, list[Problem]]:
    """Set every recording's mean as its rate or delay; return the scenario and the problems."""
    problems, traces = list[Problem](), dict[Keys, Trace]()
    for one in recorded_values(scenario):
        if locate is None and one.has_mean:
            continue
        try:
            traces[one.path] = one.read(locate)
        except (InvalidLine, UnicodeDecodeError, OSError) as error:
            problems.append(unreadable(one.recording, error, document, one.path))
            continue
        scenario = replaced(scenario, one.path, _quantity(one.what, traces[one.path].mean()))
    for one in recorded_values(scenario):
        if (trace := traces.get(one.path)) is not None:
            for found in _unfit(one, trace, scenario.time_scale):
                problems.append(problem_at(document, one.path, *found))
    return scenario, problems


def _unfit(one: RecordedValue, trace: Trace, time_scale: float) -> Iterator[tuple[str, str, str]]:
    """Yield what the kernel cannot shape of a recording: found, expected, and a hint."""
    for value in dict.fromkeys(_quantity(one.what, end(trace.values)) for end in (min, max)):
        changed = replaced(one.written.link, (one.direction, one.what), value)
        own: TracedDirection = getattr(changed, one.direction)
        if own.jitter is not None and own.delay is not None and own.jitter > own.delay:
            yield f"a delay of {own.delay}", f"at least the jitter, {own.jitter}", ""
        spec = link_spec(changed, address="", mac="", time_scale=time_scale)
        for _, hint in unshapable(spec):
            yield f"{value} in {one.recording.trace}", "what the kernel can shape", hint


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


def _quantity(what: str, number: float) -> Rate | Duration:
    return Rate(number) if what == "rate" else Duration(number)


def check_unrecorded(scenario: Scenario) -> Iterator[Finding]:
    """Yield recordings on links that are not workers' links."""
    others: dict[Keys, Link] = {("ps", "link"): scenario.ps.link}
    others |= {("programs", name, "link"): one.link for name, one in scenario.programs.items()}
    for path, link in others.items():
        for direction, what, _ in recordings_of(link):
            expected = "a value: only workers' links can follow recordings"
            yield (*path, direction, what), "a trace", expected


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
