"""Traffic on the links that the training does not account for, by sender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import LinksCarried

if TYPE_CHECKING:
    import pandas as pd

OF_PUSHES = 1.1
"""Wire bytes of a push over its payload: headers are 5 % of full packets."""

OF_REPLIES = 0.05
"""Wire bytes of a reply's acknowledgements over its payload: 66 bytes per two packets are 2.3 %."""


def sent_beyond_pushes(updates: pd.DataFrame, events: Sequence[Entry]) -> dict[str, int]:
    """Return the bytes each node sent beyond its pushes and acknowledgements, most first."""
    readings = only(events, LinksCarried)
    sent: Mapping[str, int] = readings[-1].up_bytes if readings else {}
    up = updates.groupby("worker")["payload_up_bytes"].sum()
    down = updates.groupby("worker")["payload_down_bytes"].sum()
    took = {f"w{worker}": OF_PUSHES * up[worker] + OF_REPLIES * down[worker] for worker in up.index}
    beyond = {name: int(total - took.get(name, 0)) for name, total in sent.items() if name != "ps"}
    return dict(sorted(beyond.items(), key=lambda item: -item[1]))
