"""The charts of a run: every evaluation and update, or the extremes of many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context

from testbed.reports.charts import (
    MOST_POINTS,
    Chart,
    Kind,
    Series,
    _evaluated,
    charts_of,
    curve,
    most_points,
    thin,
)
from testbed.reports.figures import PRINT, draw, write_figures
from testbed.reports.frames import Run
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.folder import RunFolder


def named(charts: tuple[Chart, ...], name: str) -> Chart:
    return next(chart for chart in charts if chart.name == name)


def drawn(chart: Chart) -> dict[str, tuple[tuple[object, ...], tuple[object, ...]]]:
    return {series.name: (series.x, series.y) for series in chart.series}


def test_a_spike_of_a_long_curve_is_kept() -> None:
    values = np.sin(np.arange(100_000) / 500)
    values[54_321], values[76_543] = 40.0, -40.0
    kept = thin(values)
    assert len(kept) <= MOST_POINTS
    assert {0, 54_321, 76_543, 99_999} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()


def test_the_extremes_of_every_interval() -> None:
    """Of ten values 6 are drawn: the ends, and the extremes of 1 to 4 and of 5 to 8."""
    values = np.array([5, 1, 9, 2, 3, 4, 7, 0, 6, 5], float)
    assert thin(values, 6).tolist() == [0, 1, 2, 6, 7, 9]
    assert thin(values, 10).tolist() == list(range(10))


def test_a_curve_says_how_many_points_it_had() -> None:
    x = np.arange(5_000, dtype=float)
    y = np.where(x == 17, np.nan, x)
    series = curve("a", x, y, most=MOST_POINTS)
    assert series.total == 4_999
    note = Chart("c", "", "", "", (series, Series("b", (1.0,), (1.0,), 1))).note
    assert note.startswith(f"{len(series.x):,} of 4,999 points are drawn")
    assert Chart("c", "", "", "", (Series("b", (1.0,), (1.0,), 1),)).note == ""


def test_a_page_of_many_curves_has_fewer_points_per_curve() -> None:
    assert most_points(20) == 2_000
    assert most_points(100) == 400


def test_the_small_run(folder: RunFolder) -> None:
    """Evaluations at 2, 4 and 6 KB; fast updates at 0.5, 1, 2 and 3 s, slow ones at 1.5 and 4."""
    charts = charts_of([Run(folder.path)])
    assert drawn(named(charts, "accuracy-ingress")) == {
        "one evaluation": ((0.002, 0.004, 0.006), (25.0, 75.0, 50.0))
    }
    assert drawn(named(charts, "loss-time"))["one evaluation"] == ((1, 2, 3), (0.75, 0.25, 0.5))
    assert drawn(named(charts, "staleness")) == {
        "fast": ((0.5, 1.0, 2.0, 3.0), (0.0, 1.0, 2.0, 3.0)),
        "slow": ((1.5, 4.0), (2.0, 4.0)),
    }
    pace = named(charts, "pace")  # 100 intervals of 0.04 s: one update in one is 25 per second
    assert [sum(one.y) for one in pace.series] == pytest.approx([4 * 25, 2 * 25])  # type: ignore[arg-type]
    wire = drawn(named(charts, "bytes"))
    assert wire["payload"][1] == pytest.approx((0.001, 0.002, 0.003, 0.004, 0.005, 0.0062))
    assert wire["wire"][1] == pytest.approx((1e-6, 0.01))
    assert drawn(named(charts, "host"))["busy"][1] == (95.0, 50.0)
    assert "faults" not in [chart.name for chart in charts]


def test_the_moving_average_is_of_scheduled_evaluations(folder: RunFolder) -> None:
    """Of 24 evaluations every second one was due: 25, 50, 75, 25, ... %."""
    run = Run(folder.path)
    many = pd.concat([run.evaluations.iloc[:3]] * 8, ignore_index=True)  # 25, 75 and 50 %
    many["version"], many["time_seconds"] = many.index // 2, many.index / 2
    made = SimpleNamespace(name="many", evaluations=many, scenario=run.scenario)
    chart = _evaluated([cast(Run, made)], "a", "time_seconds", "top1", most=100)
    single, mean = chart.series
    assert (len(single.x), mean.x) == (24, (9.0, 10.0, 11.0))
    assert mean.y == pytest.approx((47.5, 50.0, 52.5))


def test_several_runs_are_overlaid(folder: RunFolder) -> None:
    run = Run(folder.path)
    charts = charts_of([run, run])
    assert [one.name for one in named(charts, "accuracy-time").series] == ["tiny-1", "tiny-1"]
    assert [one.total for one in named(charts, "staleness").series] == [6, 6]


def test_the_start_and_end_of_faults(folder: RunFolder) -> None:
    """Each starts or ends half a second late; one not undone is a point; ps has none."""

    def fault(kind: str, begins: bool, moment: float, *nodes: str) -> str:
        event = FaultApplied(kind, begins, nodes, moment, moment + 0.5)
        return Entry(0.0, 0.0, event).line()

    with folder.events.open("a") as events:
        events.write(fault("freeze", True, 1.0, "w1", "w2"))
        events.write(fault("kill", True, 2.0, "w3", "ps"))
        events.write(fault("freeze", False, 4.0, "w1"))
    found = drawn(named(charts_of([Run(folder.path)]), "faults"))
    assert found == {
        "freeze": ((1.5, 4.5, None, 1.5, 1.5, None), (1.0, 1.0, None, 2.0, 2.0, None)),
        "kill": ((2.5, 2.5, None), (3.0, 3.0, None)),
    }


def test_figures_for_print(folder: RunFolder) -> None:
    """3.4 by 2.4 inches at 300 dpi; the same run gives the same bytes."""
    whole = charts_of([Run(folder.path)])
    kinds = {chart.series[0].kind: chart for chart in whole if chart.name != "staleness"}
    charts = [*kinds.values(), *(chart for chart in whole if chart.name == "staleness")]
    out = folder.path / "figures"
    paths = write_figures(charts, out)
    assert {path.name for path in paths} == {
        f"{chart.name}.{kind}" for chart in charts for kind in ("png", "svg")
    }
    header = (out / "staleness.png").read_bytes()[16:24]
    width, height = (int.from_bytes(header[at : at + 4]) for at in (0, 4))
    assert (width, height) == (1020, 720)
    before = {path: path.read_bytes() for path in paths}
    write_figures(charts, out)
    assert {path: path.read_bytes() for path in paths} == before


def curves(count: int, *, kind: Kind = "line", x_title: str = "x") -> Chart:
    """A chart of curves, clouds of points or colours of bars that differ only in their names."""
    x = tuple(f"class {number}" for number in range(count)) if kind == "bars" else (0.0, 1.0)
    series = (
        Series(f"class-number-{number}", x, (1.0,) * len(x), 2, kind) for number in range(count)
    )
    return Chart("chart", "Chart", x_title, "share of the time (%)", tuple(series))


def test_titles_of_axes_are_not_clipped(folder: RunFolder) -> None:
    with rc_context(PRINT):
        drawn = [draw([chart]) for chart in charts_of([Run(folder.path)])]
        for figure in drawn:
            figure.draw_without_rendering()
    for figure in drawn:
        (axes,) = figure.axes
        for title in (axes.xaxis.label, axes.yaxis.label):
            box = title.get_window_extent()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.width
            assert box.y1 <= figure.bbox.height
    assert "payload of all pushes (MB)" in drawn[0].axes[0].get_xlabel().replace("\n", " ")


def test_curves_are_told_apart_without_colours() -> None:
    (axes,) = draw([curves(12)]).axes
    assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 12
    (axes,) = draw([curves(4, kind="points")]).axes
    assert len({line.get_marker() for line in axes.lines}) == 4
    (axes,) = draw([curves(4, kind="bars")]).axes
    assert len({bars[0].get_hatch() for bars in axes.containers}) == 4


@pytest.mark.parametrize("kind", ["line", "points"])
def test_only_the_first_of_a_thousand_curves_are_named(kind: Kind) -> None:
    """Warnings are errors, including those of matplotlib."""
    with rc_context(PRINT):
        figure = draw([curves(1_000, kind=kind)])
        figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [*(f"class-number-{number}" for number in range(12)), "and 988 more"]
    assert figure.axes[0].get_window_extent().height > figure.bbox.height / 4


def test_a_thousand_bars_have_no_names() -> None:
    one = curves(1_000, kind="bars", x_title="class").series[0]
    figure = draw([Chart("time", "Time", "class", "share of the time (%)", (one,))])
    figure.draw_without_rendering()
    assert figure.axes[0].get_xlabel() == "class: 1,000"
    assert not figure.axes[0].get_xticks().size
