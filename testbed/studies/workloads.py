"""What a study of workloads has in place of what a study of trainings has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.models.metrics import ACCURACY
from testbed.reports.run_measure import (
    SIDE_BY_SIDE_OF_WORKLOADS,
    Measure,
    metric_measures,
)
from testbed.scenario.document import Document, Keys
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.studies.document import Curves, StudyDocument, TableOf, measures_of

AXES = ("time", "sent")
"""What figures of workloads can be drawn against."""

BY_TIME = {"against": "time"}

OF_WORKLOADS = ", ".join(map(str, SIDE_BY_SIDE_OF_WORKLOADS))
BY_METRIC = "last_METRIC, best_METRIC(10), time_to_METRIC(0.9) and sent_to_METRIC(0.9)"


def as_of_workloads(
    study: StudyDocument, document: Document, workloads: Sequence[Workload]
) -> StudyDocument:
    """Return the study with a report for workloads, as far as the document has none."""
    report = study.report
    measures = [Measure("time"), Measure("sent"), *metric_measures(workloads)]
    names = dict.fromkeys(name for one in workloads for name in one.metrics)
    tables, figures = report.tables, report.figures
    if document.at(("report", "tables")) is None:
        tables = {"results": TableOf(measures=tuple(measures))}
    if document.at(("report", "figures")) is None:
        figures = {name: Curves(show=name, against="time") for name in names if name.isidentifier()}
    figures = {
        name: one if "against" in one.model_fields_set else one.model_copy(update=BY_TIME)
        for name, one in figures.items()
    }
    changed = report.model_copy(update={"tables": tables, "figures": figures})
    return study.model_copy(update={"report": changed})


def unknown_metric(workload: Workload, name: str) -> tuple[str, str] | None:
    """Return what is expected in place of a metric's name, and no hint; None if there is one."""
    if ("accuracy" if name == ACCURACY else name) in workload.metrics:
        return None
    return f"a metric of a program: {', '.join(workload.metrics) or 'none has any'}", ""


def unsuited(
    study: StudyDocument, scenarios: Sequence[Scenario | Workload]
) -> Iterator[tuple[Keys, str, str]]:
    """Yield axes and measures that such runs do not have: where, what was found and expected."""
    workloads = [one for one in scenarios if isinstance(one, Workload)]
    kind = "workload" if workloads else "training"
    axes = AXES if workloads else ("updates", "steps", "time", "ingress")
    for name, figure in study.report.figures.items():
        if figure.against not in axes:
            yield ("report", "figures", name, "against"), figure.against, " or ".join(axes)
    nodes = sorted({name for one in workloads for name in one.node_names()})
    for path, measure, _ in measures_of(study):
        if not measure.suits(scenarios[0]):
            some = f"{OF_WORKLOADS}, {BY_METRIC}" if workloads else "docs/studies.md lists them"
            yield path, f"{measure}, which no {kind} has", f"a measure of a {kind}: {some}"
        elif measure.node is not None and measure.node not in nodes:
            yield path, measure.node, f"a node: {', '.join(nodes[:8])}"
