"""The rule of the verdict on the clocks of a run's hosts."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.reports.measurements import LATE_LINK_LIMIT_SECONDS, Measurements

CLOCK_LIMIT_SECONDS = LATE_LINK_LIMIT_SECONDS
"""A device's time may be off by as much as a change of a link may be late."""


def clocks(measured: Measurements) -> Iterator[str]:
    """Yield a reason for each host whose clock has drifted, beyond the error of measuring it."""
    for one in measured.clocks:
        if one.seconds - one.error_seconds > CLOCK_LIMIT_SECONDS:
            yield (
                f"The clock of host {one.host} moved by {one.seconds * 1e3:,.1f} ms against that "
                f"of the controller's host ({CLOCK_LIMIT_SECONDS * 1e3:g} ms is allowed): "
                "the devices there do not have the time of the others. Run a time service on all "
                "hosts (`timedatectl set-ntp true`, or chrony), or make the run shorter."
            )
