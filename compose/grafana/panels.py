"""What a dashboard consists of, as data, and how Grafana's own library builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    timeseries,
    trend,
)
from grafana_foundation_sdk.models.common import (
    BigValueTextMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    StackingMode,
)
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
COLUMNS = 24
TAG = "testbed"

Kind = Literal["lines", "shares", "number", "name", "heat", "states", "against"]

HALF = ("number", "name")
"""Kinds that are half as high as the others, and show the last value only."""

STEP = "5s"
"""The shortest interval at which Grafana evaluates an annotation; by default a minute."""


def growth(counter: str) -> str:
    """How far a counter has grown since the last evaluation, at whatever interval Grafana chooses.

    A counter that did not exist then has grown from 0.
    """
    one = f'{counter}{{run=~"$run"}}'
    return f"{one} - ({one} offset $__interval or {one} * 0)"


@dataclass(frozen=True)
class Marker:
    """An annotation on every dashboard.

    Attributes:
        name: of the switch that shows and hides it.
        color: of its line.
        expression: positive where there is one.
        title: what it says; labels are in double braces.
    """

    name: str
    color: str
    expression: str
    title: str

    def build(self) -> AnnotationQuery:
        """The annotation for Grafana's own library, as one of its builders."""
        return _PrometheusAnnotation(
            self.name, SOURCE, icon_color=self.color, expr=self.expression, title=self.title
        )


class _PrometheusAnnotation(AnnotationQuery):
    """Has the keys of Grafana's data source for Prometheus, which are not in the library."""

    def __init__(self, *words: Any, title: str, **named: Any) -> None:
        super().__init__(*words, **named)
        self.title = title

    def to_json(self) -> dict[str, object]:
        own = {"step": STEP, "titleFormat": self.title, "tagKeys": "run"}
        return super().to_json() | own


MARKERS = (
    Marker(
        "faults",
        "red",
        f"sum by (run, fault) ({growth('testbed_faults_total')}) > 0",
        "{{fault}}",
    ),
    Marker(
        "link changes",
        "blue",
        f"sum by (run) ({growth('testbed_link_changes_total')}) > 0",
        "link change",
    ),
)
"""On every dashboard."""


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        title: above it.
        about: what is seen, and what to look out for.
        unit: Grafana's name of it.
        queries: expressions by their legend.
        kind: ``lines`` over time, ``shares`` of a whole, a ``number``, the ``name`` of a series, a
            ``heat`` map of buckets, ``states`` over time, or one query ``against`` the second.
        width: of 24.
        height: of a panel; a number or name is half as high.
        limits: values from which numbers have this colour instead of green. Among lines they are
            drawn, and the axis reaches the first.
        words: what stands for the values from 0, and its colour.
        colors: of curves, by their names.
        top: the largest value that can be, such as 1 of a ratio.
    """

    title: str
    about: str
    unit: str
    queries: Mapping[str, str]
    kind: Kind = "lines"
    width: int = 8
    height: int = 8
    limits: tuple[tuple[float, str], ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    colors: Mapping[str, str] = field(default_factory=dict)
    top: float | None = None


@dataclass(frozen=True)
class Page:
    """A dashboard: rows of panels, by their titles."""

    uid: str
    title: str
    about: str
    rows: Mapping[str, tuple[Panel, ...]]
    several: bool = False  # whether several runs can be chosen


def build(page: Page) -> Dashboard:
    """The page as Grafana reads it."""
    made = (
        dashboard.Dashboard(f"testbed: {page.title}")
        .uid(f"testbed-{page.uid}")
        .description(page.about)
        .tags([TAG])
        .readonly()
        .refresh("5s")
        .time("now-15m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_links())
    )
    for variable in _variables(several=page.several):
        made = made.with_variable(variable)
    for marker in MARKERS:
        made = made.annotation(marker)
    for title, panels in page.rows.items():
        if title:
            made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(_panel(panel))
    return made.build()


def _links() -> dashboard.DashboardLink:
    links = dashboard.DashboardLink("testbed").type(DashboardLinkType.DASHBOARDS)
    return links.tags([TAG]).include_vars(True).keep_time(True).as_dropdown(False)


def _variables(*, several: bool) -> list[dashboard.QueryVariable]:
    """The run, and what of it is shown."""
    within = 'testbed_worker_state{run=~"$run", class=~"$class"}'
    run = _variable("run", "label_values(testbed_run_state, run)").multi(several)
    kind = _variable("class", 'label_values(testbed_updates_total{run=~"$run"}, class)')
    worker = _variable("worker", f"label_values({within}, worker)")
    chosen = [one.multi(True).include_all(True).all_value(".*") for one in (kind, worker)]
    return [run.include_all(several), *chosen]


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(name).label(name).datasource(SOURCE).query(query)
    order = VariableSort.NATURAL_ASC
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(order)


def _panel(panel: Panel) -> Any:
    made: Any = {
        "lines": _lines,
        "shares": _shares,
        "number": _number,
        "name": _name,
        "heat": _heat,
        "states": _states,
        "against": _against,
    }[panel.kind](panel)
    made = made.title(panel.title).description(panel.about).unit(panel.unit).datasource(SOURCE)
    made = made.span(panel.width).height(panel.height // (2 if panel.kind in HALF else 1))
    made = made.thresholds(_thresholds(panel))
    if panel.top is not None:
        made = made.max(panel.top)
    for name, color in panel.colors.items():
        fixed = {"mode": "fixed", "fixedColor": color}
        made = made.override_by_name(name, [DynamicConfigValue(id_val="color", value=fixed)])
    if panel.words:
        options = {
            str(n): ValueMappingResult(text=word, color=color, index=n)
            for n, (word, color) in enumerate(panel.words)
        }
        made = made.mappings([ValueMap(options=options)])
    return made if panel.kind == "heat" else _asking(made, panel)


def _asking(made: Any, panel: Panel) -> Any:
    for place, (legend, expression) in enumerate(panel.queries.items()):
        query = prometheus.Dataquery().expr(expression).legend_format(legend)
        query = query.ref_id(chr(ord("A") + place)).datasource(SOURCE)
        made = made.with_target(query.instant() if panel.kind in HALF else query.range())
    return made


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [Threshold(value=None, color="green")]
    steps += [Threshold(value=value, color=color) for value, color in panel.limits]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _legend() -> common.VizLegendOptions:
    return common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)


def _lines(panel: Panel) -> Any:
    made = timeseries.Panel().legend(_legend()).min(0).line_width(1).fill_opacity(5)
    if not panel.limits:
        return made
    line = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.LINE)
    return made.axis_soft_max(panel.limits[0][0]).thresholds_style(line)


def _shares(_: Panel) -> Any:
    stacked = common.StackingConfig().mode(StackingMode.NORMAL)
    return timeseries.Panel().legend(_legend()).min(0).stacking(stacked).fill_opacity(60)


def _number(_: Panel) -> Any:
    return stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def _name(panel: Panel) -> Any:
    return _number(panel).text_mode(BigValueTextMode.NAME)


def _heat(panel: Panel) -> Any:
    made = heatmap.Panel().calculate(False)
    for expression in panel.queries.values():
        query = prometheus.Dataquery().expr(expression).legend_format("{{le}}").ref_id("A")
        made = made.with_target(query.range().format(PromQueryFormat.HEATMAP).datasource(SOURCE))
    return made


def _states(_: Panel) -> Any:
    made = statetimeline.Panel().legend(_legend()).merge_values(True).row_height(0.9)
    # Without this, the legend has no states.
    return made.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))


def _against(panel: Panel) -> Any:
    """The second query is the horizontal axis."""
    axis = [*panel.queries][1]
    joined = DataTransformerConfig(id_val="joinByField", options={"byField": "Time"})
    made = trend.Panel().legend(_legend()).x_field(axis).with_transformation(joined)
    return made.override_by_name(axis, [DynamicConfigValue(id_val="unit", value="decbytes")])
