"""Links that follow recordings: when they were changed, and how much they carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import LinkChanged

if TYPE_CHECKING:
    import pandas as pd

LATE_LINK_LIMIT_SECONDS = 0.05
LATE_LINKS_LIMIT_RATIO = 0.01


@dataclass(frozen=True)
class Followed:
    """Links whose rate or delay follows a recording."""

    changes: int  # number of changes while the run was active
    late_changes_ratio: float | None  # share of them; None without changes
    latest_change_seconds: float | None  # delay of the latest change, real
    up: LinkRates | None  # None if no rate of that direction follows a recording
    down: LinkRates | None


@dataclass(frozen=True)
class LinkRates:
    """Means over the links and seconds of the readings, emulated."""

    asked_bits_per_second: float
    delivered_bits_per_second: float


def followed(links: pd.DataFrame, events: Sequence[Entry]) -> Followed | None:
    """Return how well links followed their recordings; None without such links.

    Args:
        links: ``links.csv``.
        events: all events of the run.
    """
    late = [
        change.actual - change.planned
        for change in only(events, LinkChanged)
        if change.action == "recorded"
    ]
    if not late and links.empty:
        return None
    beyond = sum(seconds > LATE_LINK_LIMIT_SECONDS for seconds in late)
    return Followed(
        changes=len(late),
        late_changes_ratio=beyond / len(late) if late else None,
        latest_change_seconds=max(late, default=None),
        up=_rates(links[links["direction"] == "up"]),
        down=_rates(links[links["direction"] == "down"]),
    )


def _rates(links: pd.DataFrame) -> LinkRates | None:
    if links.empty:
        return None
    asked, delivered = links["asked_bits_per_second"], links["delivered_bits_per_second"]
    return LinkRates(float(asked.mean()), float(delivered.mean()))
