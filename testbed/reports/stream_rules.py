"""Rules of the verdict on data streams: what producers sent, and what devices received."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.reports.measurements import Measurements

LACK_LIMIT_RATIO = 0.05
"""Share of the due samples that a producer may not have sent, or a device not received."""

MOST_ALIKE = 3  # devices that are listed in full

NONE_AWAITED = (
    "With `streams`, the streams of all devices were silent for `streams.stream_timeout`: set a "
    "longer one. With an algorithm of your own, its `ready` lets none of them continue."
)
"""How to fix a training in which workers wait, but for no other worker."""


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
        (worker, came, due)
        for worker, (came, due) in measured.received.items()
        if due - came > LACK_LIMIT_RATIO * due
    ]
    for worker, came, due in lacking[:MOST_ALIKE]:
        yield (
            f"{worker} received {came:,} of the {due:,} samples of its stream that were due: "
            f"{1 - came / due:.2%} are missing ({LACK_LIMIT_RATIO:.0%} is allowed). If records "
            "were removed from the broker or damaged, run the scenario again without that; "
            "otherwise check the output of the nodes that it fetches from: their files in logs/."
        )
    if len(lacking) > MOST_ALIKE:
        yield f"{len(lacking) - MOST_ALIKE} other devices received too few samples, too."
