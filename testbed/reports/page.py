"""A report as one HTML file that needs nothing else: no network, and for its tables no scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources

from testbed.reports.charts import Chart
from testbed.reports.text_table import numeric_columns
from testbed.reports.verdict import Verdict

MOST_ROWS = 1_000
"""Of one table: what is longer is for a program to read."""

DIGITS = 7
"""Of a number in a chart. The tables have all of them."""


@dataclass(frozen=True)
class PageTable:
    """A table of text; ``folded`` shows it when its title is clicked."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    folded: bool = False

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        """The rows that there is room for."""
        return self.rows[:MOST_ROWS]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, and stand to the right."""
        return numeric_columns(self.shown, columns=len(self.headings))


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, then sentences, tables, charts and a text as it is."""

    title: str
    notes: Sequence[str] = ()
    tables: Sequence[PageTable] = ()
    charts: Sequence[Chart] = ()
    text: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report; the verdicts are those of runs, behind their names."""

    title: str
    subtitle: str
    verdicts: Sequence[tuple[str, Verdict]]
    sections: Sequence[Section]


def render(page: Page) -> str:
    """The page as HTML, with the library that draws its charts in it."""
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
        charts=_embedded([asdict(chart) for chart in charts]),
    )


def _asset(name: str) -> str:
    return (resources.files("testbed.reports") / "assets" / name).read_text(encoding="utf-8")


def _embedded(data: object) -> str:
    """JSON that can stand in a script element whatever is in it."""
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
