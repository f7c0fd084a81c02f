"""Reports in a real browser draw every point, log no errors, and make no network requests."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from testbed.reports.charts import charts_of
from testbed.reports.frames import Run
from testbed.reports.page import Page, PageTable, Section, page_of, render

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIXTURES = Path(__file__).parent / "fixtures"
BUILD = Path(__file__).parents[2] / "build"
LONGEST_SECONDS = 180.0

# The contents of the charts, the page's requests, and how much wider it is than its window.
COUNT = """
<script>
addEventListener("load", () => {
  const found = {
    points: [...document.querySelectorAll(".chart")].map(
      (chart) => chart.data.map((trace) => trace.x.length)),
    drawn: document.querySelectorAll(".chart .main-svg").length,
    cut: [...document.querySelectorAll(".scroll")].map((one) => one.scrollWidth - one.clientWidth),
    wider: document.documentElement.scrollWidth - innerWidth,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name)
      .filter((name) => !/^(data|blob):/.test(name)),
    width: innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
  };
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""

# A window has a minimum width, and a frame has none.
FRAME = """<!DOCTYPE html><body style="margin: 0">
<script>
addEventListener("message", (event) => {{
  const told = document.createElement("output");
  told.textContent = event.data;
  document.body.append(told);
}});
</script>
<iframe src="page.html" width="{width}" height="2400" style="border: 0"></iframe>
"""


@dataclass(frozen=True)
class Seen:
    """What a browser found in a page, and the errors it logged.

    The page's own policy refuses all requests, and the browser logs the refusals.
    """

    found: dict[str, Any]
    console: list[str]


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., Seen]:
    """Opens a page in Chromium; with a name, saves a screenshot in build/."""

    def look(text: str, *, width: int, dark: bool = False, picture: str = "") -> Seen:
        file = tmp_path / "page.html"
        file.write_text(text.replace("</body>", f"{COUNT}</body>"))
        frame = tmp_path / "frame.html"
        frame.write_text(FRAME.format(width=width))
        words = [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", "--disable-extensions", "--disable-dev-shm-usage"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--window-size={width},2400", "--virtual-time-budget=20000"),
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        ]
        if picture:
            BUILD.mkdir(exist_ok=True)
            words.append(f"--screenshot={BUILD / picture}")
        done = subprocess.run(
            [*words, "--dump-dom", frame.as_uri()],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONGEST_SECONDS,
        )
        output = re.search(r"<output>(.*?)</output>", done.stdout)
        assert output is not None, done.stderr
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return Seen(json.loads(unescape(output[1])), console)

    return look


@pytest.fixture
def run() -> Run:
    """A live run with every kind of chart."""
    return Run(FIXTURES / "live")


def test_a_run_in_light_and_dark_wide_and_narrow(look: Callable[..., Seen], run: Run) -> None:
    text = render(page_of([run]))
    charts = charts_of([run])
    wide = look(text, width=1280, picture="report.png")
    assert wide.console == []
    assert wide.found["requests"] == []
    assert wide.found["points"] == [[len(one.x) for one in chart.series] for chart in charts]
    assert wide.found["drawn"] >= len(charts)
    evaluations = int((~run.evaluations["final"]).sum())
    assert wide.found["points"][0][0] == evaluations
    dark = look(text, width=400, dark=True, picture="report-dark-400.png")
    assert dark.console == []
    assert dark.found["width"] == 400
    assert dark.found["wider"] <= 0
    assert dark.found["background"] != wide.found["background"]


def test_a_table_of_a_study_fits_a_window_of_1200_pixels(look: Callable[..., Seen]) -> None:
    """Three factors, and five measures next to the paper's numbers."""
    titles = [f"updates to 0.9{number} (mean of 10)" for number in range(5)]
    headings = ["algorithm", "learning rate", "network", "seeds"]
    headings += [f"{title}{of}" for title in titles for of in ("", ", paper")]
    measured = ["12,040 (11,900 to 12,300)", "9,800 (fig. 3)"]
    row = ["adacomp", "0.05", "wifi-half", "3", *(measured * 5)]
    page = Page("study", "", (), [Section("results", tables=[PageTable(headings, [row] * 3)])])
    seen = look(render(page), width=1200, picture="study.png")
    assert seen.found["cut"] == [0]
    assert seen.found["wider"] <= 0
