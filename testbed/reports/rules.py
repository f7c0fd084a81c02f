"""Rules of the verdict on clocks and data streams, and how rules list their reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.reports.measurements import LATE_LINK_LIMIT_SECONDS, Measurements

LACK_LIMIT_RATIO = 0.05
"""Share of the due samples that a producer may not have sent, or a device not received."""

CLOCK_LIMIT_SECONDS = LATE_LINK_LIMIT_SECONDS
"""A device's time may be off by as much as a change of a link may be late."""

MOST_ALIKE = 3  # reasons of one kind, such as lost nodes, that are listed in full


NONE_AWAITED = (
    "With `streams`, the streams of all devices were silent for `streams.stream_timeout`: set a "
    "longer one. With an algorithm of your own, its `ready` lets none of them continue."
)
"""How to fix a training in which workers wait, but for no other worker."""


def first(reasons: Sequence[str], others: str) -> Iterator[str]:
    """Yield the first reasons of a kind, and the number of the others."""
    others_count = len(reasons) - MOST_ALIKE
    if others_count > 1:
        yield from reasons[:MOST_ALIKE]
        yield others.format(others_count)
    else:
        yield from reasons


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


def producers(measured: Measurements) -> Iterator[str]:
    """Yield a reason for each producer that sent too few samples."""
    for producer, ratio in measured.lag.items():
        if ratio > LACK_LIMIT_RATIO:
            yield (
                f"{producer} had not sent {ratio:.2%} of the samples that were due to a device "
                f"({LACK_LIMIT_RATIO:.0%} is allowed). Use more streams.producers, lower "
                "streams.rates or a lower time_scale; if a device did not fetch its samples, fix "
                "that first."
            )


def received(measured: Measurements) -> Iterator[str]:
    """Yield a reason for each device that received too few samples, and for the others' number."""
    lacking = [
        f"{worker} received {came:,} of the {due:,} samples of its stream that were due: "
        f"{1 - came / due:.2%} are missing ({LACK_LIMIT_RATIO:.0%} is allowed). If records "
        "were removed from the broker or damaged, run the scenario again without that; "
        "otherwise check the output of the nodes that it fetches from: their files in logs/."
        for worker, (came, due) in measured.received.items()
        if due - came > LACK_LIMIT_RATIO * due
    ]
    yield from first(lacking, "{} other devices received too few samples, too.")
