"""The page of a workload's run, made of the same parts as that of a training."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.reports.page import (
    NUMBERS_NOTE,
    Page,
    PageTable,
    Section,
    environment_section,
    faults_section,
    links_section,
    links_table,
    members_table,
    numbers_table,
)
from testbed.reports.table import shown
from testbed.reports.workload_charts import charts_of_workload, classes_of_nodes, node_numbers
from testbed.reports.workload_table import NODE, PAIR, node_cells, pair_rows, workload_rows

if TYPE_CHECKING:
    from testbed.reports.workload import WorkloadRun
    from testbed.scenario.direction import Link
    from testbed.scenario.workload import Workload

LONGEST_COMMAND = 48
"""Characters of a command in the table of nodes; the scenario has all."""

OWN_TABLES = ("nodes", "pairs")
"""Keys of a summary that have a row per node or pair, in tables of their own."""

SECONDS = "All seconds are since the first node started."


def page_of_workload(run: WorkloadRun) -> Page:
    """Return the page of a run, in any state.

    Raises:
        TestbedError: a file of the run is damaged; names the file.
    """
    summary = run.summary
    rows = [[name, text] for name, text in workload_rows(summary)]
    numbers = [numbers_table([run], without=OWN_TABLES), *_all_numbers(run)]
    sections = [
        Section("Summary", tables=[PageTable(["", run.name], rows)]),
        Section("Nodes", tables=[_nodes(run)]),
        *_pairs(run),
        Section("Figures", charts=charts_of_workload(run)),
        _links(run),
        faults_section(run, "Faults and changes", SECONDS),
        Section("Events", [SECONDS], [_events(run)]),
        Section("All numbers", NUMBERS_NOTE, numbers),
        Section("Scenario", text=run.folder.scenario.read_text(encoding="utf-8")),
        environment_section(run),
    ]
    started = summary["started"]
    when = f"{summary['runtime']}, started {started}" if started else "which did not start"
    title, subtitle = f"{summary['scenario']}: {run.name}", f"{run.name}, {when}"
    return Page(title, subtitle, [(run.name, run.verdict)], sections)


def _nodes(run: WorkloadRun) -> PageTable:
    """Return a row per node, in the order of their numbers."""
    numbers, classes = node_numbers(run), classes_of_nodes(run)
    rows = []
    for name, one in run.summary["nodes"].items():
        command = shlex.join(run.scenario.workload[one["program"]].command)
        own = (str(numbers[name]), name, classes[name], _shortened(command))
        rows.append([*own, *node_cells(one)])
    return PageTable(("number", "node", "class", "command", *NODE), rows)


def _pairs(run: WorkloadRun) -> Iterator[Section]:
    """Yield the pairs of nodes, if any are on record."""
    if rows := pair_rows(run.summary):
        yield Section("Pairs of nodes", tables=[PageTable(PAIR, rows)])


def _links(run: WorkloadRun) -> Section:
    """Return the links of all classes and between switches, as configured and as measured."""
    scenario = run.scenario
    tables = [links_table(_links_of_classes(scenario))]
    if scenario.links:
        between = links_table((f"link {name}", one) for name, one in scenario.links.items())
        headings = ["link", "from", "to", *between.headings[1:]]
        rows = [
            [name, *one.ends, *shapes]
            for one, (name, *shapes) in zip(scenario.links.values(), between.rows, strict=True)
        ]
        tables.append(PageTable(headings, rows, "Between switches"))
    return links_section(
        "Links", run.entries, tables, before="Measured before the programs started"
    )


def _links_of_classes(scenario: Workload) -> Iterator[tuple[str, Link]]:
    for program, settings in scenario.workload.items():
        for name, one in dict(settings.node_classes(program)).items():
            yield f"class {name}", one.link or settings.link


def _events(run: WorkloadRun) -> PageTable:
    rows = [[shown(one.elapsed_seconds, ",.3f"), one.name, one.describe()] for one in run.entries]
    title = f"{len(rows):,} events, in order"
    return PageTable(["time (s)", "event", ""], rows, title, folded=True)


def _all_numbers(run: WorkloadRun) -> Iterator[PageTable]:
    """Yield the totals of nodes and pairs, unrounded."""
    nodes, pairs = run.summary["nodes"], run.summary["pairs"]
    yield members_table("node", nodes, f"{len(nodes):,} nodes")
    found = {f"{node} to {peer}": one for node, own in pairs.items() for peer, one in own.items()}
    if found:
        yield members_table("pair", found, f"{len(found):,} pairs of nodes, each way")


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_COMMAND else f"{text[: LONGEST_COMMAND - 3]}..."
