"""The page and the figures of a workload's run, with numbers worked out by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_workloads import record_workload

from testbed.cli import main
from testbed.errors import TestbedError
from testbed.reports.charts import Chart
from testbed.reports.frames import Run
from testbed.reports.page import Page, PageTable, render
from testbed.reports.workload import WorkloadRun
from testbed.reports.workload_charts import MOST_LINES, charts_of_workload
from testbed.reports.workload_page import page_of_workload
from testbed.telemetry.event_kinds import (
    Exited,
    FaultApplied,
    LinksRead,
    RateMeasured,
    StateChanged,
    WorkloadBegun,
    WorkloadEnded,
)
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import NodeRow, PairRow

HOSTILE = "</script><b>&amp;"
SCENARIO = f"""\
name: pair
workload:
  server:
    command: [serve, "{HOSTILE}"]
    switch: cloud
    environment: {{PAGE: "{HOSTILE}"}}
  client:
    command: [ask, {"x" * 100}]
    count: 2
    link: {{up: {{rate: 8mbit}}}}
    classes: {{fast: {{count: 1}}, slow: {{count: 1, link: {{up: {{rate: 1mbit}}}}}}}}
    metrics:
      accuracy: {{regex: "a=(.+)"}}
      loss: {{json: loss, better: lower}}
links:
  uplink: {{between: [core, cloud], up: {{rate: 10mbit}}, down: {{delay: 20ms}}}}
"""
PLAIN = "name: plain\nworkload: {one: {command: [work]}}\n"

Made = Callable[..., WorkloadRun]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Records a run of a scenario by a function that gets the recorder and the clock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def record(
        write: Callable[[Recorder, list[float]], None], text: str = SCENARIO, name: str = "pair-1"
    ) -> WorkloadRun:
        return record_workload(tmp_path / "runs", name, text, write)

    return record


def two_readings(recorder: Recorder, now: list[float]) -> None:
    """At 1 s and 3 s; between them, client1 is frozen half a second late, and never thawed."""
    recorder.event(LinksRead(checked=4))
    recorder.event(RateMeasured("class slow up", 1e6, 0.99e6))
    recorder.event(WorkloadBegun())
    recorder.event(StateChanged("running"))
    for seconds, sent in ((1.0, 1_000_000), (3.0, 5_000_000)):
        now[0] = 100.0 + seconds
        recorder.readings(
            [
                NodeRow(seconds, "server", sent // 2, 5, sent * 2, 4, 700, 2, 1.5, 9_000_000),
                NodeRow(seconds, "client0", sent, 5, 50, 4, 0, None, None, None),
            ]
        )
        recorder.readings(
            [PairRow(seconds, "client0", "server", sent - 1000, 40, 1448, 0.0215, sent, 5)]
        )
        recorder.metric("client0", "accuracy", seconds / 10)
        now[0] += 1.0
        recorder.metric("client1", "accuracy", seconds / 5)
    recorder.event(FaultApplied("freeze", True, ("client1",), 2.0, 2.5))
    recorder.event(Exited("server", 3, how=f"server exited with {HOSTILE}"))
    recorder.event(WorkloadEnded("all final programs have ended with status 0"))
    recorder.event(StateChanged("finished"))


def cells(page: Page, title: str, table: int = 0) -> list[list[str]]:
    """The rows of a table of a section."""
    found: PageTable = next(one for one in page.sections if one.title == title).tables[table]
    return [list(row) for row in found.rows]


def drawn(charts: tuple[Chart, ...]) -> dict[str, dict[str, Any]]:
    return {one.name: {own.name: (own.x, own.y) for own in one.series} for one in charts}


def test_nodes_pairs_and_links_by_hand(record: Made) -> None:
    page = page_of_workload(record(two_readings))
    long = f"ask {'x' * 41}..."
    assert cells(page, "Nodes") == [
        [
            *("0", "server", "server", f"serve '{HOSTILE}'", "3", "1.5 s", "9 MB"),
            *("2.5 MB", "5", "10 MB", "4", "700 B", "2"),
        ],
        ["1", "client0", "fast", long, *"---", "5 MB", "5", "50 B", "4", "0 B", "-"],
        ["2", "client1", "slow", long, *"---------"],
    ]
    assert cells(page, "Pairs of nodes") == [
        ["client0", "server", "5 MB", "5", "4.999 MB", "1.448 KB", "21.50 ms"]
    ]
    assert cells(page, "Links") == [
        ["class server", "not shaped", "not shaped"],
        ["class fast", "rate 8mbit", "not shaped"],
        ["class slow", "rate 1mbit", "not shaped"],
    ]
    assert cells(page, "Links", 1) == [
        ["link uplink", "core", "cloud", "rate 10mbit", "delay 20ms"]
    ]
    assert cells(page, "Links", 2) == [["class slow up", "rate", "1 mbit", "0.99 mbit", "-1.00%"]]


def test_summary_faults_events_and_all_numbers(record: Made) -> None:
    run = record(two_readings)
    page = page_of_workload(run)
    assert page.subtitle.startswith("pair-1, native, started 1970-01-01")
    summary = dict(cells(page, "Summary"))
    assert summary["accuracy"] == "best 0.6 (client1, 4.0 s), last 0.6 of 4"
    assert summary["loss"] == "no value"
    assert summary["time"] == "4.0 s"
    assert cells(page, "Faults and changes") == [
        ["4.000", "freeze", "client1", "2.000", "2.500", "0.500"],
        ["4.000", f"server exited with {HOSTILE}", "server", "", "", ""],
    ]
    events = cells(page, "Events")
    assert len(events) == len(run.entries)
    assert events[0] == ["-", "links", "checked=4 unseeded=0"]
    assert events[-2][:2] == ["4.000", "workload_ended"]
    numbers = dict(cells(page, "All numbers"))
    assert numbers["metrics.accuracy.best.value"] == "0.6"
    assert not any(name.startswith(("nodes.", "pairs.")) for name in numbers)
    assert cells(page, "All numbers", 1)[0][:4] == ["server", "server", "3", "2500000"]
    assert cells(page, "All numbers", 2) == [
        ["client0 to server", "4999000", "40", "1448", "5000000", "5", "0.0215"]
    ]
    assert page.verdicts == [("pair-1", run.verdict)]
    assert any("The metric loss of client" in one for one in run.verdict.warnings)


def test_a_workload_is_no_training(record: Made) -> None:
    run = record(two_readings)
    with pytest.raises(TestbedError, match=r"the run of a workload\. Open it as a WorkloadRun"):
        Run(run.folder.path)


def test_charts_by_hand(record: Made) -> None:
    """All nodes have sent 1.5 MB at 1 s and 7.5 MB at 3 s, so 4.5 MB at 2 s."""
    charts = charts_of_workload(record(two_readings))
    assert [one.name for one in charts] == [
        *("accuracy-time", "accuracy-sent", "bytes", "sent", "received", "faults")
    ]
    found = drawn(charts)
    assert found["accuracy-time"] == {
        "client0": ((1.0, 3.0), (0.1, 0.3)),
        "client1": ((2.0, 4.0), (0.2, 0.6)),
    }
    assert found["accuracy-sent"] == {
        "client0": ((1.5, 7.5), (0.1, 0.3)),
        "client1": ((4.5, 7.5), (0.2, 0.6)),
    }
    assert found["bytes"]["sent"] == ((1.0, 3.0), (1.5, 7.5))
    assert found["bytes"]["received"] == ((1.0, 3.0), (2.00005, 10.00005))
    assert found["sent"] == {
        "server": ((1.0, 3.0), (0.5, 2.5)),
        "client0": ((1.0, 3.0), (1.0, 5.0)),
    }
    assert found["faults"] == {"freeze": ((2.5, 2.5, None), (2.0, 2.0, None))}


def test_values_of_many_nodes_are_points_by_class(record: Made) -> None:
    count = MOST_LINES + 1
    text = (
        f"name: many\nworkload:\n  one:\n    command: [work]\n    count: {count}\n"
        f"    classes: {{few: {{count: 1}}, most: {{count: {count - 1}}}}}\n"
        '    metrics: {f1: {regex: "f1=(.+)"}}\n'
    )

    def write(recorder: Recorder, now: list[float]) -> None:
        recorder.event(WorkloadBegun())
        now[0] += 2.0
        for number in range(count):
            recorder.metric(f"one{number}", "f1", float(number))

    (chart,) = (one for one in charts_of_workload(record(write, text)) if one.name == "f1-time")
    assert [(one.name, one.kind, len(one.x)) for one in chart.series] == [
        ("few", "points", 1),
        ("most", "points", count - 1),
    ]


def test_a_workload_without_metrics_that_failed_before_a_node_started(record: Made) -> None:
    def write(recorder: Recorder, now: list[float]) -> None:
        recorder.event(StateChanged("failed", "no image", 5))

    run = record(write, PLAIN)
    page = page_of_workload(run)
    assert page.subtitle == "pair-1, which did not start"
    assert [one.title for one in page.sections] == [
        *("Summary", "Nodes", "Figures", "Links", "Faults and changes", "Events"),
        *("All numbers", "Scenario", "Environment"),
    ]
    assert cells(page, "Nodes") == [["0", "one", "one", "work", *"---------"]]
    assert dict(cells(page, "Summary"))["time"] == "not started"
    assert charts_of_workload(run) == ()
    text = render(page)
    assert "The run failed: no image" in text
    assert "Plotly" not in text


def test_text_of_a_workload_is_escaped(record: Made) -> None:
    text = render(page_of_workload(record(two_readings)))
    assert HOSTILE not in text
    assert "serve &#39;&lt;/script&gt;&lt;b&gt;&amp;amp;&#39;" in text


def test_on_the_command_line(record: Made, capsys: pytest.CaptureFixture[str]) -> None:
    record(two_readings)
    record(two_readings, name="pair-2")
    words = ["report", "pair-1", "--html", "out.html", "--figures", "figures"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "wrote out.html" in told.err
    found = re.search(r'id="charts">(.*?)</script>', Path("out.html").read_text())
    assert found is not None
    names = [chart["name"] for chart in json.loads(found[1])["charts"]]
    assert {path.name for path in Path("figures").iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }
    assert {"accuracy-time", "accuracy-sent"} <= set(names)
    for option in ("--html", "--figures"):
        assert main(["report", "pair-1", "pair-2", option, "both"]) == 2
        told = capsys.readouterr()
        assert "compare runs of trainings only" in told.err
        assert told.out == ""
        assert not Path("both").exists()
    assert main(["report", "pair-1", "pair-2"]) == 0
