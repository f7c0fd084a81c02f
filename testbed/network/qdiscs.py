"""Converts the shape of a link into queueing disciplines. Pure; no netlink.

Every direction of a link has one root qdisc at its sending end. A plain rate is a token bucket
(tbf). Delay, jitter and loss are a netem; a rate combined with them is a token bucket below that
netem, because netem's own queue counts packets: a limit for 100 ms of acknowledgements holds 2.3 s
of full frames, and one for 100 ms of full frames is full after 12 acknowledgements at 1 mbit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from testbed.values.topology import (
    Direction,
    Distribution,
    LinkSpec,
    frame_bytes,
)
from testbed.values.units import Duration, Rate, Size

FRAME_BYTES = frame_bytes(None)
"""The largest Ethernet frame of a link with the default MTU."""

KERNEL_HZ = 250
"""Timer ticks per second in the kernels of most distributions (CONFIG_HZ)."""

DEFAULT_QUEUE = Duration(0.1)
DEFAULT_QUEUE_FRAMES = 8
"""Least frames in a queue: with two in the bucket, TCP's first ten segments (RFC 6928) fit."""

LARGEST_QUEUED = 4 * 2**20
"""Maximum bytes of a message in the default queue: what TCP has in flight at once."""

OVERHEAD_BYTES = 134
"""Bytes of a frame that are no message: headers, and the overhead of gRPC and the encoding."""

MIN_RATE = Rate(1e3)
MAX_RATE = Rate(34e9)
"""tc's classic field for a rate has 32 bits, for at most 2**32 - 1 bytes per second."""

MAX_DELAY = Duration(200)
"""tc's classic field for a time has 32 bits, for at most 2**32 - 1 ticks of 64 ns: 274 s."""

TICK_SECONDS = 64e-9
"""The kernel stores bucket sizes and delays as whole ticks (PSCHED_SHIFT)."""

UNSHAPED_RATE = Rate(10e9)
"""Rate assumed for a link without a rate: netem's queue has room for all packets that are delayed
at this rate. If the delay has jitter, it is also configured as netem's rate, because netem
preserves the order of packets only with a rate."""

SMALLEST_FRAME_BYTES = 60
"""Bytes of an Ethernet frame without its checksum; an acknowledgement has 66."""

LARGEST_DEVIATIONS = 4
"""Largest jitter, in standard deviations: netem's distribution tables end there."""


@dataclass(frozen=True)
class TokenBucket:
    """A tbf qdisc, for a link that has only a rate.

    Attributes:
        rate: bits per second of Ethernet frames.
        burst_bytes: size of the bucket: bytes that may be sent back to back after a pause.
        limit_bytes: size of the queue; packets that do not fit are dropped.
    """

    rate: Rate
    burst_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class Netem:
    """netem: delay, jitter and loss, and a token bucket below it for the rate.

    Attributes:
        delay: added to every packet.
        jitter: standard deviation of the delay.
        loss: share of packets dropped, in [0, 1].
        bucket: which the packets pass after their delay; None for no limit.
        limit_packets: maximum number of packets in flight.
        distribution: of the jitter; None if unknown (the kernel does not report it).
        loss_correlation: between a packet's loss and the next one's, in [0, 1).
        seed: of netem's random numbers; None if the kernel does not support it (before 6.6).
    """

    delay: Duration
    jitter: Duration
    loss: float
    bucket: TokenBucket | None
    limit_packets: int
    distribution: Distribution | None = "normal"
    loss_correlation: float = 0.0
    seed: int | None = None


Qdisc = TokenBucket | Netem


def qdisc_for(
    shape: Direction,
    *,
    rtt: float,
    seed: int = 0,
    message: Size | None = None,
    frame_bytes: int = FRAME_BYTES,
) -> Qdisc | None:
    """Return the root qdisc of one direction, or None if it is not shaped.

    Args:
        shape: the requested shape.
        rtt: sum of both directions' delays in seconds; the default queue is not shorter.
        seed: from which netem draws jitter and losses.
        message: the largest message; the default queue is not smaller.
        frame_bytes: the largest frame.

    Raises:
        ValueError: tc cannot express the rate or delay, or the queue would not hold two frames.
    """
    _check_range(shape)
    bucket = _token_bucket(shape, rtt, message or Size(0), frame_bytes)
    return _netem(shape, bucket, seed) if shape.needs_netem else bucket


def qdiscs_of(link: LinkSpec) -> tuple[Qdisc | None, Qdisc | None]:
    """Return the qdiscs of a link: (up, at the node's end; down, at the switch's end).

    Raises:
        ValueError: see qdisc_for; names the direction.
    """
    rtt = float(link.up.delay or 0) + float(link.down.delay or 0)
    found = []
    for number, (direction, shape) in enumerate((("up", link.up), ("down", link.down))):
        try:
            own = partial(qdisc_for, message=link.message, frame_bytes=link.frame_bytes)
            found.append(own(shape, rtt=rtt, seed=link.seed ^ number))
        except ValueError as error:
            raise ValueError(f"{direction}: {error}") from None
    return found[0], found[1]


def describe(qdisc: Qdisc | None) -> str:
    """Return a qdisc in ``tc`` notation, such as ``tbf rate 10mbit burst 5000 B queue 100ms``."""
    match qdisc:
        case None:
            return "not shaped"
        case TokenBucket(rate, burst, limit):
            queue = _milliseconds(limit / rate.bytes_per_second)
            return f"tbf rate {rate} burst {burst} B queue {queue} ({limit} B)"
        case Netem(delay, jitter, loss, bucket, limit):
            words = [f"delay {_milliseconds(delay)}"] if delay else []
            law = f" {qdisc.distribution}" if qdisc.distribution else ""
            words += [f"jitter {_milliseconds(jitter)}{law}"] if jitter else []
            words += [f"loss {loss * 100:.6g}%"] if loss else []
            correlation = qdisc.loss_correlation
            words += [f"correlation {correlation * 100:.6g}%"] if correlation else []
            below = f", {describe(bucket)}" if bucket is not None else ""
            return " ".join(["netem", *words, f"limit {limit} packets"]) + below


def of_mtu(link: LinkSpec) -> str:
    """Return what follows the description of a link's qdisc, unless its MTU is the default."""
    return "" if link.mtu is None else f", mtu {link.mtu}"


def differences(configured: Qdisc | None, found: Qdisc | None) -> list[str]:
    """Return the differences of the kernel's qdisc beyond rounding; empty if there are none.

    The kernel has rates in whole bytes/s, times in whole ticks of 64 ns, losses in 32-bit shares.
    """
    match configured, found:
        case None, None:
            return []
        case TokenBucket(), TokenBucket():
            return _bucket_differences(configured, found)
        case Netem(), Netem():
            below = differences(configured.bucket, found.bucket)
            return [*_netem_differences(configured, found), *below]
        case _:
            return [f"configured {describe(configured)}, the kernel has {describe(found)}"]


def _bucket_differences(configured: TokenBucket, found: TokenBucket) -> list[str]:
    tick_bytes = configured.rate.bytes_per_second * TICK_SECONDS
    return _beyond(
        ("rate", configured.rate, found.rate, 8.0),
        ("burst_bytes", configured.burst_bytes, found.burst_bytes, 1 + tick_bytes),
        ("limit_bytes", configured.limit_bytes, found.limit_bytes, 0.0),
    )


def _netem_differences(configured: Netem, found: Netem) -> list[str]:
    """Return the differences except the jitter's distribution, which the kernel does not report."""
    correlation = (configured.loss_correlation, found.loss_correlation)
    seeds = (configured.seed, found.seed) if None not in (configured.seed, found.seed) else (0, 0)
    return _beyond(
        ("delay", configured.delay, found.delay, TICK_SECONDS),
        ("jitter", configured.jitter, found.jitter, TICK_SECONDS),
        ("loss", configured.loss, found.loss, 2.0**-31 if not any(correlation) else 1e-6),
        ("loss_correlation", *correlation, 1e-6),
        ("limit_packets", configured.limit_packets, found.limit_packets, 0.0),
        ("seed", *seeds, 0.0),
    )


def _beyond(*pairs: tuple[str, Any, Any, float]) -> list[str]:
    return [
        f"{name}: configured {wanted}, the kernel has {read}"
        for name, wanted, read, tolerance in pairs
        if abs(wanted - read) > tolerance
    ]


def _check_range(shape: Direction) -> None:
    if shape.rate is not None and not MIN_RATE <= shape.rate <= MAX_RATE:
        raise ValueError(f"rate {shape.rate} is out of range, expected {MIN_RATE} to {MAX_RATE}")
    for name, value in (("delay", shape.delay), ("jitter", shape.jitter)):
        if value is not None and value > MAX_DELAY:
            raise ValueError(f"{name} {value} is too long, expected at most {MAX_DELAY}")


def _token_bucket(shape: Direction, rtt: float, message: Size, frame: int) -> TokenBucket | None:
    if shape.rate is None:
        return None
    # A larger bucket would let whole messages through unshaped and hide their transfer time.
    burst = max(round(shape.rate.bytes_per_second / KERNEL_HZ), 2 * frame)
    limit = _queue_bytes(shape.queue, shape.rate, rtt, message=message, frame=frame)
    return TokenBucket(shape.rate, burst, limit)


def _queue_bytes(
    queue: Duration | None, rate: Rate, rtt: float, *, message: Size, frame: int
) -> int:
    """Return the bytes that may wait; a requested queue holds two frames, or nothing would pass.

    By default a message fits: TCP sends more and more of it at once, and packets that do not fit
    would be retransmitted.
    """
    least = 2 * frame
    if queue is None:
        drained = round(rate.bytes_per_second * max(DEFAULT_QUEUE, rtt))
        framed = round(min(message, LARGEST_QUEUED) * (frame / (frame - OVERHEAD_BYTES)))
        return max(drained, framed, DEFAULT_QUEUE_FRAMES * frame)
    size = round(rate.bytes_per_second * queue)
    if size < least:
        raise ValueError(
            f"a queue of {queue} at {rate} holds {size} bytes, less than two frames "
            f"({least} bytes); use {_milliseconds(least / rate.bytes_per_second)} or more"
        )
    return size


def _netem(shape: Direction, bucket: TokenBucket | None, seed: int) -> Netem:
    """Return a netem; its limit counts packets: as many small ones as can be in flight."""
    delay, jitter = shape.delay or Duration(0), shape.jitter or Duration(0)
    rate = shape.rate if shape.rate is not None else UNSHAPED_RATE
    under_way = rate.bytes_per_second * (delay + LARGEST_DEVIATIONS * jitter)
    queued = bucket.limit_bytes if bucket is not None else rate.bytes_per_second * DEFAULT_QUEUE
    return Netem(
        delay=delay,
        jitter=jitter,
        loss=shape.loss or 0.0,
        bucket=bucket,
        limit_packets=ceil((under_way + queued) / SMALLEST_FRAME_BYTES),
        distribution=shape.distribution or "normal",
        loss_correlation=(shape.loss_correlation or 0.0) if shape.loss else 0.0,
        seed=seed,
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.6g}ms"
