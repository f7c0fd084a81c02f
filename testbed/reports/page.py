"""A report of runs or a study as one HTML file: no network, and no scripts for its tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from testbed.reports.charts import COLOURS, DARK_COLOURS, Chart, charts_of
from testbed.reports.compare import scenario_differences
from testbed.reports.table import megabits, milliseconds, numeric_columns, summary_rows
from testbed.reports.verdict import Verdict
from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import (
    Exited,
    FaultApplied,
    LimitsChanged,
    LinkChanged,
    LinksRead,
    MessagesTimed,
    RateMeasured,
    RoundTripMeasured,
)
from testbed.telemetry.ps_events import Left, Restored, Silent

if TYPE_CHECKING:
    from testbed.reports.any_run import AnyRun
    from testbed.reports.frames import Run
    from testbed.scenario.direction import Link
    from testbed.values.topology import Direction

MOST_ROWS = 1_000
"""Rows per table; longer tables are for programs to read."""

DIGITS = 7
"""Digits of a number in a chart. The tables have all digits."""


@dataclass(frozen=True)
class PageTable:
    """A table of text; a ``folded`` table opens on a click on its title."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    folded: bool = False

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        """The rows to show, at most MOST_ROWS."""
        return self.rows[:MOST_ROWS]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are right-aligned."""
        return numeric_columns(self.shown, columns=len(self.headings))


@dataclass(frozen=True)
class Section:
    """A section of a page: a heading, sentences, tables, charts and preformatted text."""

    title: str
    notes: Sequence[str] = ()
    tables: Sequence[PageTable] = ()
    charts: Sequence[Chart] = ()
    text: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report; ``verdicts`` are those of runs, shown after their names."""

    title: str
    subtitle: str
    verdicts: Sequence[tuple[str, Verdict]]
    sections: Sequence[Section]


def render(page: Page) -> str:
    """Render the page as HTML, including the plotting library."""
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _asset("page.html")
    )
    charts = [chart for section in page.sections for chart in section.charts]
    return template.render(
        page=page,
        style=_asset("page.css"),
        script=_asset("page.js"),
        library=get_plotlyjs() if charts else "",
        charts=_embedded(
            {"charts": [asdict(chart) for chart in charts], "light": COLOURS, "dark": DARK_COLOURS}
        ),
    )


def _asset(name: str) -> str:
    return (resources.files("testbed.reports") / "assets" / name).read_text(encoding="utf-8")


def _embedded(data: object) -> str:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(_rounded(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _rounded(value: object) -> object:
    match value:
        case dict():
            return {name: _rounded(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_rounded(inner) for inner in value]
        case float():
            return float(f"{value:.{DIGITS}g}")
        case _:
            return value


UNSHAPED = "not shaped"
BY_WORKER = "waiting.by_worker"
"""Key of a summary's values per worker, which have their own table."""


def page_of(runs: Sequence[Run]) -> Page:
    """Return a run's page; with several runs, the differences between their scenarios come first.

    Raises:
        TestbedError: a file of a run is damaged; names the file.
    """
    alone = runs[0] if len(runs) == 1 else None
    summaries = [dict(summary_rows(run.summary)) for run in runs]
    first = runs[0].summary
    sections = [
        *([] if alone else [_differences(runs)]),
        Section("Summary", tables=[_side_by_side(runs, summaries)]),
        Section("Figures", charts=charts_of(runs)),
        *(_links(run, _titled("Links", run, alone)) for run in runs),
        *(faults_section(run, _titled("Faults and changes", run, alone)) for run in runs),
        Section("All numbers", NUMBERS_NOTE, [numbers_table(runs), *_workers(runs)]),
        *(
            Section(
                _titled("Scenario", run, alone),
                text=run.folder.scenario.read_text(encoding="utf-8"),
            )
            for run in runs
        ),
        *(environment_section(run, _titled("Environment", run, alone)) for run in runs),
    ]
    names = [run.name for run in runs]
    title = f"{first['scenario']}: {names[0]}" if alone else f"{len(runs)} runs compared"
    subtitle = f"{names[0]}, {_when(first)}" if alone else ", ".join(names)
    return Page(title, subtitle, [(run.name, run.verdict) for run in runs], sections)


NUMBERS_NOTE = (
    "All values of summary.json; null means not measured. docs/run-folder.md describes them.",
)


def _titled(title: str, run: Run, alone: Run | None) -> str:
    return title if alone else f"{title} of {run.name}"


def _when(summary: Mapping[str, Any]) -> str:
    if summary["started"] is None:
        return "which did not start training"
    return f"{summary['runtime']}, started {summary['started']}"


def _differences(runs: Sequence[Run]) -> Section:
    rows = [
        [path, *("-" if value is None else str(value) for value in values)]
        for path, values in scenario_differences(runs).items()
    ]
    if not rows:
        return Section("Scenarios", ["The scenarios are the same."])
    return Section(
        "Scenarios", tables=[PageTable(["differ in", *(run.name for run in runs)], rows)]
    )


def numbers_table(runs: Sequence[AnyRun], *, without: Collection[str] = ()) -> PageTable:
    """Return all values of the runs' summaries by dotted path, unrounded, except per worker.

    Args:
        runs: the runs, a column each.
        without: keys of summaries to leave out.
    """
    kept = [{key: run.summary[key] for key in run.summary if key not in without} for run in runs]
    columns = [{path: _shown(value) for path, value in leaves(one)} for one in kept]
    return _side_by_side(runs, columns)


def _side_by_side(runs: Sequence[AnyRun], columns: Sequence[Mapping[str, str]]) -> PageTable:
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, "-") for column in columns)] for name in names]
    return PageTable(["", *(run.name for run in runs)], rows)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values of nested mappings with their dotted paths, except those per worker."""
    if isinstance(value, Mapping) and value and path != BY_WORKER:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    elif path != BY_WORKER:
        yield path, value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _workers(runs: Sequence[Run]) -> Iterator[PageTable]:
    """Yield the per-worker values of a single run's summary."""
    found = runs[0].summary["waiting"]["by_worker"] if len(runs) == 1 else {}
    if found:
        yield members_table("worker", found, f"Time of each of {len(found)} workers by activity")


def members_table(heading: str, found: Mapping[str, Mapping[str, Any]], title: str) -> PageTable:
    """Return a folded table of unrounded values with a row for each of ``found``, at least one."""
    columns = list(next(iter(found.values())))
    rows = [[name, *(_shown(of[key]) for key in columns)] for name, of in found.items()]
    return PageTable([heading, *columns], rows, title, folded=True)


def _links(run: Run, title: str) -> Section:
    """Return every class's link as configured and as measured."""
    notes = []
    if run.scenario.simulated:
        notes.append("Simulated: transfers are modelled from these values, not measured.")
    classes = run.scenario.workers.classes.items()
    asked: list[tuple[str, Link]] = [(f"class {name}", member.link) for name, member in classes]
    asked.insert(0, ("parameter server", run.scenario.ps.link))
    return links_section(
        title, run.entries, [links_table(asked)], notes, before="Measured before the training"
    )


def links_table(links: Iterable[tuple[str, Link]]) -> PageTable:
    """Return links, by what they are of, as configured."""
    rows = [[name, _shape(link.up), _shape(link.down)] for name, link in links]
    return PageTable(["link", "up", "down"], rows, "Configured")


def links_section(
    title: str,
    events: Sequence[Entry],
    configured: Sequence[PageTable],
    notes: Sequence[str] = (),
    *,
    before: str,
) -> Section:
    """Return the section of links as configured, read back and measured.

    Args:
        title: its title.
        events: all events of the run.
        configured: tables of the links as configured.
        notes: its first sentences.
        before: the title of the table of measurements, without their unit.
    """
    told, tables = [*notes], [*configured]
    for read in only(events, LinksRead):
        differences = "; ".join(read.differences) or "none differs"
        told.append(f"{read.checked} links were read back from the kernel: {differences}.")
        told += [
            f"Skipped, because the kernel does not support it: {what}." for what in read.left_out
        ]
    if measured := list(_measured(events)):
        headings = ["link", "", "configured", "measured", "difference"]
        tables.append(PageTable(headings, measured, f"{before}, in real units"))
    return Section(title, told, tables)


def _shape(direction: Direction) -> str:
    return _words(direction.model_dump(mode="json")) or UNSHAPED


def _measured(events: Sequence[Entry]) -> Iterator[list[str]]:
    for entry in events:
        match entry.event:
            case RateMeasured(link, asked, found):
                told = "the host could not send that fast" if found is None else megabits(found)
                off = "" if found is None else f"{(found - asked) / asked:+.2%}"
                yield [link, "rate", megabits(asked), told, off]
            case RoundTripMeasured(link, asked, found):
                off = f"{(found - asked) * 1e3:+.2f} ms"
                yield [link, "round trip", milliseconds(asked), milliseconds(found), off]
            case MessagesTimed(link, up, down):
                for direction, seconds in (("up", up), ("down", down)):
                    yield [link, f"17 KB {direction}", "", milliseconds(seconds), ""]


def faults_section(run: AnyRun, title: str, note: str = "All seconds are emulated.") -> Section:
    """Return the faults and link changes of the run in order, planned or not."""
    scale = run.scenario.time_scale
    rows = [row for entry in run.entries for row in _incident(entry, scale)]
    if not rows:
        return Section(title, ["There were no faults and no changes of links."])
    headings = ["time (s)", "what", "nodes", "planned (s)", "actual (s)", "late by (s)"]
    return Section(title, [note], [PageTable(headings, rows)])


def _incident(entry: Entry, scale: float) -> Iterator[list[str]]:
    elapsed = entry.elapsed_seconds
    when = "-" if elapsed is None else f"{elapsed * scale:.3f}"
    match entry.event:
        case FaultApplied(kind, begins, nodes, planned, actual):
            what = kind if begins else f"end of {kind}"
            moments = [f"{planned:.3f}", f"{actual:.3f}", f"{actual - planned:.3f}"]
            yield [when, what, ", ".join(nodes) or "no node", *moments]
        case LinkChanged(action, nodes, up, down, planned, actual):
            shapes = [f"{name} {_words(to)}" for name, to in (("up", up), ("down", down)) if to]
            late = f"{(actual - planned) * scale:.3f}"
            yield [when, f"links {action}: {'; '.join(shapes)}", ", ".join(nodes), "", "", late]
        case LimitsChanged(node, changes):
            yield [when, f"limits changed: {'; '.join(changes)}", node, "", "", ""]
        case Exited(node, planned=False, how=how) if how:
            yield [when, how, node, "", "", ""]
        case Left(node, reason) if reason:
            yield [when, f"left: {reason}", node, "", "", ""]
        case Silent(node):
            yield [when, "frozen too long: no longer waited for", node, "", "", ""]
        case Restored(version, _, lost):
            what = f"resumed from update {version:,}, {lost:,} were lost"
            yield [when, what, "ps", "", "", ""]


def _words(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)


def environment_section(run: AnyRun, title: str = "Environment") -> Section:
    """Return what was found of the host and its software."""
    rows = [[path, _shown(value)] for path, value in leaves(run.environment)]
    return Section(title, tables=[PageTable(["", "found"], rows)])
