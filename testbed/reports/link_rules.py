"""Rules of the verdict on links, which trainings and workloads share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from testbed.telemetry.event_kinds import RateMeasured, RoundTripMeasured

RATE_LIMIT_RATIO = 0.05
ROUND_TRIP_LIMIT_RATIO = 0.05
ROUND_TRIP_LIMIT_SECONDS = 0.001
STANDARD_ERRORS = 4
"""By how many standard errors a mean may be off in addition."""


def wrong_rates(rates: Iterable[RateMeasured], *, fix: Callable[[str, bool], str]) -> Iterator[str]:
    """Yield a reason for each rate that was not measured as configured.

    Args:
        rates: measured before the start.
        fix: returns how to fix a link; gets its name, and whether it was too slow.
    """
    for rate in rates:
        asked, found = rate.configured_bits_per_second, rate.measured_bits_per_second
        if found is None:
            continue
        off = abs(found - asked) / asked
        if off > RATE_LIMIT_RATIO:
            yield (
                f"{rate.link}: the measured rate of {_bits(found)} differs by {off:.2%} from the "
                f"configured {_bits(asked)} ({RATE_LIMIT_RATIO:.0%} is allowed). "
                f"{fix(rate.link, found < asked)}"
            )


def wrong_round_trips(trips: Iterable[RoundTripMeasured], *, fix: str) -> Iterator[str]:
    """Yield a reason for each round trip that was not measured as configured."""
    for trip in trips:
        away = abs(trip.measured_seconds - trip.configured_seconds)
        limit = max(ROUND_TRIP_LIMIT_RATIO * trip.configured_seconds, ROUND_TRIP_LIMIT_SECONDS)
        if away > limit + STANDARD_ERRORS * trip.error_seconds:
            yield (
                f"{trip.link}: the measured round trip of {trip.measured_seconds * 1e3:.2f} ms "
                f"differs by {away * 1e3:.2f} ms from the configured "
                f"{trip.configured_seconds * 1e3:.2f} ms ({limit * 1e3:.2f} ms is allowed, in "
                "addition to the variation by jitter). If the host was too busy for accurate "
                f"timers, run the scenario again; otherwise set {fix}."
            )


def skipped_settings(settings: Iterable[str]) -> Iterator[str]:
    """Yield a reason for each setting of a link that the kernel does not support."""
    for what in settings:
        yield (
            "Some link settings were skipped (network.missing: warn), because the kernel does not "
            f"support them: {what}. Use a kernel with netem, or remove these settings."
        )


def unchecked_links(rates: Iterable[RateMeasured], *, read_back: bool) -> Iterator[str]:
    """Yield what is not known of the links; ``read_back`` from the kernel: their qdiscs."""
    if not read_back:
        yield "the links' qdiscs"
    for rate in rates:
        if rate.measured_bits_per_second is None:
            yield f"the rate of {rate.link}, because the host cannot send that fast"


def _bits(rate: float) -> str:
    return f"{rate / 1e6:.3g} mbit/s"
