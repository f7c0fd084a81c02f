"""Links that follow traces: delays of their changes and delivered bytes, by hand."""

from __future__ import annotations

import pandas as pd

from testbed.reports.measurements import Followed, LinkRates, Measurements, followed
from testbed.reports.verdict import judge
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import LinkChanged
from testbed.telemetry.rows import LINKS, LinkRow


def changed(late: float, action: str = "recorded") -> Entry:
    event = LinkChanged(action, ("w0",), None, None, planned=1000.0, actual=1000.0 + late)
    return Entry(1000.0, 0.0, event)


def rows(*them: tuple[str, float, float]) -> pd.DataFrame:
    return pd.DataFrame([LinkRow(1.0, 1.0, "w0", *one) for one in them], columns=list(LINKS))


def test_configured_and_delivered_rates_and_late_changes() -> None:
    """One of four changes is later than 50 ms; up 1 and 3 configured, .5 and 2.5 delivered."""
    links = rows(("up", 1e6, 0.5e6), ("up", 3e6, 2.5e6))
    events = [changed(0.01), changed(0.04), changed(0.0625), changed(0.05 - 1e-9)]
    found = followed(links, [*events, changed(7.0, "set")])
    assert found == Followed(4, 0.25, 0.0625, up=LinkRates(2e6, 1.5e6), down=None)


def test_a_run_without_traces_has_no_such_measures() -> None:
    assert followed(rows(), [changed(0.0, "set")]) is None
    assert judge(Measurements("finished", links=None)).valid


def test_late_changes_make_a_run_invalid() -> None:
    """One of a hundred may be late, two may not; and none by more than a second."""
    by_one = followed(rows(), [changed(0.06), *[changed(0.001)] * 99])
    assert judge(Measurements("finished", links=by_one)).valid
    by_two = followed(rows(), [*[changed(0.0625)] * 2, *[changed(0.001)] * 98])
    (reason,) = judge(Measurements("finished", links=by_two)).reasons
    assert reason.startswith("2.00% of the link changes by traces were more than")
    far = followed(rows(), [changed(1.5), *[changed(0.001)] * 199])
    (reason,) = judge(Measurements("finished", links=far)).reasons
    assert "the latest 1.50 s (1 s is allowed)" in reason
