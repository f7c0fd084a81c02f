"""A report as a page, checked without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.cli import main
from testbed.reports.charts import (
    MOST_POINTS,
    MOST_POINTS_OF_A_PAGE,
    Chart,
    curve,
    most_points,
)
from testbed.reports.frames import Run
from testbed.reports.page import DIGITS, Page, PageTable, Section, page_of, render
from testbed.reports.remake import remake
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import LimitsChanged
from testbed.telemetry.folder import RunFolder

MOST_BYTES = 6_000_000


class Tables(HTMLParser):
    """The cells of a page's tables, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_every_number_of_the_summary_is_exact(folder: RunFolder) -> None:
    remake(folder.path)
    rows = Tables(render(page_of([Run(folder.path)]))).rows
    cells = {row[0]: row[1:] for row in rows if row}
    summary = json.loads(folder.summary.read_text())
    by_worker = summary["waiting"].pop("by_worker")
    for path, value in leaves(summary):
        assert cells[path] == [value if isinstance(value, str) else json.dumps(value)]
    for node, own in by_worker.items():
        assert cells[node] == [json.dumps(value) for value in own.values()]


def test_the_page_makes_no_requests_and_is_small(folder: RunFolder) -> None:
    text = render(page_of([Run(folder.path)]))
    assert len(text.encode()) < MOST_BYTES
    assert "default-src 'none'" in text
    own = text.partition('<script type="application/json"')[0]
    assert re.findall(r'(?:src|href|action)="(?!#|data:)', own) == []


def test_the_maximum_number_of_points_fits(folder: RunFolder) -> None:
    """Full-precision numbers, in the maximum number of curves and points of a page."""
    values = np.random.default_rng(1).random((20, 2, MOST_POINTS * 3))
    series = [curve(f"c{index}", x, y, most=most_points(20)) for index, (x, y) in enumerate(values)]
    page = page_of([Run(folder.path)])
    drawn = Section("more", charts=[Chart("c", "", "", "", tuple(series))])
    text = render(replace(page, sections=[*page.sections, drawn]))
    assert sum(len(one.x) for one in series) > 0.9 * MOST_POINTS_OF_A_PAGE
    assert len(text.encode()) < MOST_BYTES


def test_text_of_a_run_is_escaped() -> None:
    hostile = "</script><script>alert(1)</script>"
    page = Page(
        hostile, hostile, (), [Section(hostile, [hostile], [PageTable(["a"], [[hostile]])])]
    )
    text = render(page)
    assert "<script>alert" not in text
    assert Tables(text).rows == [["a"], [hostile]]
    assert "Plotly" not in text  # nothing to draw


def test_a_long_table_says_what_it_omits() -> None:
    rows = [[str(index)] for index in range(1_500)]
    text = render(Page("t", "", (), [Section("s", tables=[PageTable(["n"], rows)])]))
    assert len(Tables(text).rows) == 1 + 1_000
    assert "The first 1,000 of 1,500 rows." in text


def test_several_runs_side_by_side(make_run: Callable[..., RunFolder]) -> None:
    first, second = make_run(), make_run(name="tiny-2", wire_rx_bytes=12_345)
    rows = Tables(render(page_of([Run(first.path), Run(second.path)]))).rows
    assert ["ingress.wire_bytes", "10000", "12345"] in rows
    assert ["", "tiny-1", "tiny-2"] in rows


def test_changed_limits_are_among_the_faults(folder: RunFolder) -> None:
    event = LimitsChanged("w1", ("cpu.shares: 1024 -> 512", "pids.max: 512 -> 64"))
    with folder.events.open("a", encoding="utf-8") as file:
        file.write(Entry(0.0, 1.0, event).line())
    rows = Tables(render(page_of([Run(folder.path)]))).rows
    told = "limits changed: cpu.shares: 1024 -> 512; pids.max: 512 -> 64"
    assert [told, "w1", "", "", ""] in [row[1:] for row in rows]


def test_numbers_of_a_chart_are_rounded_and_the_data_is_in_the_page(folder: RunFolder) -> None:
    text = render(page_of([Run(folder.path)]))
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text)
    assert found is not None
    charts = {chart["name"]: chart for chart in json.loads(found[1])["charts"]}
    assert charts["accuracy-ingress"]["series"][0]["y"] == [25.0, 75.0, 50.0]
    assert DIGITS == 7


def test_on_the_command_line(
    here: Path, folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "tiny-1", "--html", "out.html"]) == 0
    assert "wrote out.html" in capsys.readouterr().err
    (here / "out.html").write_text("mine")
    assert main(["report", "tiny-1", "--html", "out.html"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (here / "out.html").read_text() == "mine"
    assert main(["report", "tiny-1", "--html", "out.html", "--force"]) == 0
    assert (here / "out.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["report", "tiny-1", "--html", "nowhere/out.html"]) == 2
    assert "mkdir -p nowhere" in capsys.readouterr().err
    (here / "figures").mkdir()
    (here / "figures/accuracy-time.svg").write_text("mine")
    assert main(["report", "tiny-1", "--html", "figures"]) == 2
    assert "a file, not a folder" in capsys.readouterr().err
    assert main(["report", "tiny-1", "--figures", "figures"]) == 2
    assert (here / "figures/accuracy-time.svg").read_text() == "mine"
    assert main(["report", "tiny-1", "--figures", "figures", "--force"]) == 0
    assert "<svg" in (here / "figures/accuracy-time.svg").read_text()


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("run.json", '{"format": 2}', "format 2, this testbed reads up to 1"),
        ("run.json", '{"for', "not JSON"),
        ("scenario.yaml", "name: tiny\nworkers: {cou", "scenario.yaml"),
        ("evaluations.csv", "a,b\n1,2\n", "evaluations.csv"),
        ("updates/part-0000.parquet", "PAR1", "part-0000.parquet"),
    ],
)
def test_nothing_is_written_for_a_damaged_run(
    here: Path,
    folder: RunFolder,
    capsys: pytest.CaptureFixture[str],
    file: str,
    text: str,
    words: str,
) -> None:
    (folder.path / file).write_text(text)
    assert main(["report", "runs/tiny-1", "--html", "out.html"]) in (1, 2, 4)
    assert words in capsys.readouterr().err
    assert [path.name for path in here.iterdir() if "html" in path.name] == []
