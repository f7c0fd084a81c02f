"""Bytes that nodes sent beyond their pushes and acknowledgements."""

from __future__ import annotations

import pandas as pd

from testbed.reports.measurements import sent_beyond_pushes
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import LinksCarried


def test_bytes_of_pushes_and_acknowledgements_are_not_counted() -> None:
    """w0: 5,000 - 1.1 x 2,000 - 0.05 x 6,000 = 2,500; w1: 1,250 - 1,100 - 150 = 0."""
    updates = pd.DataFrame(
        {
            "worker": [0, 0, 1],
            "payload_up_bytes": [1_000, 1_000, 1_000],
            "payload_down_bytes": [3_000, 3_000, 3_000],
        }
    )
    sent = LinksCarried({"ps": 9_000, "w0": 5_000, "w1": 1_250, "loud": 70_000})
    events = [Entry(0.0, 0.0, LinksCarried({"w0": 1})), Entry(0.0, 0.0, sent)]
    found = sent_beyond_pushes(updates, events)
    assert list(found.items()) == [("loud", 70_000), ("w0", 2_500), ("w1", 0)]
    assert sent_beyond_pushes(updates, []) == {}
