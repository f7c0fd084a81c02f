"""The metrics follow Prometheus's conventions, and the table in the package's README is current.

    python tests/reports/metrics/test_declared.py

updates the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.reports.metrics import declared
from testbed.reports.metrics.declared import METRICS, Metric
from testbed.reports.metrics.workload import WORKLOAD_METRICS
from testbed.telemetry.event_kinds import EVENTS

PAGE = Path(declared.__file__).with_name("README.md")
PLACE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
UNITS = {"seconds": "_seconds", "bytes": "_bytes", "ratio": "_ratio"}


TABLES = (METRICS, WORKLOAD_METRICS)


def table(metrics: Sequence[Metric]) -> str:
    lines = ["| metric | kind | unit | labels | what | read from |", f"{'| --- ' * 6}|"]
    for one in metrics:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        cells = (f"`{one.name}`", one.kind, one.unit, labels, one.help, one.source)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_table_is_of_today() -> None:
    found = PLACE.findall(PAGE.read_text())
    assert found == [f"{table(one)}\n" for one in TABLES], (
        "python tests/reports/metrics/test_declared.py"
    )


def test_every_metric_has_its_own_name() -> None:
    names = [one.name for metrics in TABLES for one in metrics]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", [*METRICS, *WORKLOAD_METRICS], ids=lambda one: one.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"testbed(_[a-z]+)+", metric.name)
    unit = UNITS.get(metric.unit)
    assert unit is None or metric.name.removesuffix("_total").endswith(unit)
    assert metric.help.endswith(".")


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_the_sources_of_every_metric_exist(metric: Metric) -> None:
    if metric.source in [one for one in vars(declared).values() if isinstance(one, str)]:
        return
    for name in re.split("[,;] ", metric.source):
        assert name in EVENTS or name == "traffic"


if __name__ == "__main__":
    tables = iter(TABLES)
    PAGE.write_text(PLACE.sub(lambda _: f"{table(next(tables))}\n", PAGE.read_text()))
