"""What became of links that follow recordings: when they changed, and what they carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.events.entry import Entry, only
from testbed.events.kinds import LinkChanged

if TYPE_CHECKING:
    import pandas as pd

LATE_LINK_LIMIT_SECONDS = 0.05
LATE_LINKS_LIMIT_RATIO = 0.01


@dataclass(frozen=True)
class Followed:
    """Links whose rate or delay follows a recording."""

    changes: int  # how often they were changed while the run went on
    late_changes_ratio: float | None  # of them; None if there were none
    latest_change_seconds: float | None  # how late the latest was, real
    up: LinkRates | None  # None where no rate of that direction follows any
    down: LinkRates | None


@dataclass(frozen=True)
class LinkRates:
    """Means over the links and seconds in which they were read, emulated."""

    asked_bits_per_second: float
    delivered_bits_per_second: float


def followed(links: pd.DataFrame, events: Sequence[Entry]) -> Followed | None:
    """How the links of a run have followed their recordings; None if none was to.

    Args:
        links: ``links.csv``.
        events: all of the run.
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
