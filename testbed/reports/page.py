"""A report as one self-contained HTML file: no network needed, and no scripts for its tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources

from testbed.reports.charts import Chart
from testbed.reports.text_table import numeric_columns
from testbed.reports.verdict import Verdict

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
        charts=_embedded([asdict(chart) for chart in charts]),
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
