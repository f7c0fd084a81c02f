"""From what a link should be to the queueing disciplines that make it so. Pure; no netlink.

Every direction of a link has one root qdisc at its sending end. A plain rate is a token bucket
(tbf); as soon as delay, jitter or loss is asked for, one netem carries everything, the rate too.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.topology import LinkSpec, Shape
from testbed.units import Duration, Rate

MTU = 1500
ETHERNET_HEADER_BYTES = 14
DEFAULT_HZ = 250
"""Timer ticks a second of the kernels most distributions ship (CONFIG_HZ)."""

DEFAULT_QUEUE = Duration(0.1)
MIN_RATE = Rate(1e3)
MAX_RATE = Rate(34e9)
"""tc's classic rate field holds 2**32 - 1 bytes a second."""

MAX_DELAY = Duration(200)
"""tc's classic time field holds 2**32 - 1 ticks of 64 ns, that is 274 s."""

TICK_SECONDS = 64e-9
"""The kernel keeps bucket sizes and delays as whole ticks (PSCHED_SHIFT)."""

UNSHAPED_RATE = Rate(10e9)
"""Sizes netem's queue where a delay is asked for without a rate: nothing may be dropped there."""


@dataclass(frozen=True)
class TokenBucket:
    """tbf: a rate alone.

    Attributes:
        rate: bits per second of Ethernet frames.
        burst_bytes: the bucket: how much may leave back to back after a pause.
        limit_bytes: the queue behind it; what does not fit is dropped.
    """

    rate: Rate
    burst_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class Netem:
    """netem: delay, jitter and loss, and the rate beside them.

    Attributes:
        delay: added to every packet.
        jitter: how far the delay varies.
        loss: share of packets dropped, in [0, 1].
        rate: bits per second of Ethernet frames; None for no limit.
        limit_packets: how many may wait: those in flight for ``delay`` and those queued.
    """

    delay: Duration
    jitter: Duration
    loss: float
    rate: Rate | None
    limit_packets: int


Qdisc = TokenBucket | Netem


def qdisc_for(shape: Shape, *, rtt: float, mtu: int = MTU, hz: int = DEFAULT_HZ) -> Qdisc | None:
    """The root qdisc of one direction, or None where nothing is to be shaped.

    Args:
        shape: what is asked for.
        rtt: seconds of both directions' delays together; the default queue is not shorter.
        mtu: largest IP packet of the interface.
        hz: the kernel's timer ticks a second.

    Raises:
        ValueError: tc cannot express the rate or delay, or the queue would not hold two frames.
    """
    _check_range(shape)
    frame = mtu + ETHERNET_HEADER_BYTES
    queue = _queue_bytes(shape, rtt=rtt, frame=frame)
    if shape.needs_netem:
        return _netem(shape, queue_bytes=queue, frame=frame)
    if shape.rate is None:
        return None
    # A larger bucket would let whole messages through unshaped and hide their transfer time.
    burst = max(round(shape.rate.bytes_per_second / hz), 2 * frame)
    return TokenBucket(shape.rate, burst, queue)


def qdiscs_of(
    link: LinkSpec, *, mtu: int = MTU, hz: int = DEFAULT_HZ
) -> tuple[Qdisc | None, Qdisc | None]:
    """The qdiscs of a link: (up, at the node's end; down, at the switch's end).

    Raises:
        ValueError: see qdisc_for; names the direction.
    """
    rtt = float(link.up.delay or 0) + float(link.down.delay or 0)
    found = []
    for direction, shape in (("up", link.up), ("down", link.down)):
        try:
            found.append(qdisc_for(shape, rtt=rtt, mtu=mtu, hz=hz))
        except ValueError as error:
            raise ValueError(f"{direction}: {error}") from None
    return found[0], found[1]


def describe(qdisc: Qdisc | None) -> str:
    """A qdisc in the words of ``tc``, such as ``tbf rate 10mbit burst 5000 B queue 100ms``."""
    match qdisc:
        case None:
            return "not shaped"
        case TokenBucket(rate, burst, limit):
            queue = _milliseconds(limit / rate.bytes_per_second)
            return f"tbf rate {rate} burst {burst} B queue {queue} ({limit} B)"
        case Netem(delay, jitter, loss, rate, limit):
            words = [f"delay {_milliseconds(delay)}"] if delay else []
            words += [f"jitter {_milliseconds(jitter)}"] if jitter else []
            words += [f"loss {loss * 100:.6g}%"] if loss else []
            words += [f"rate {rate}"] if rate is not None else []
            return " ".join(["netem", *words, f"queue {limit} packets"])


def differences(configured: Qdisc | None, found: Qdisc | None) -> list[str]:
    """What the kernel has otherwise than configured, beyond its own rounding; empty if all is well.

    Rates are whole bytes a second to the kernel, times whole ticks of 64 ns, losses 32-bit shares.
    """
    match configured, found:
        case None, None:
            return []
        case TokenBucket(), TokenBucket():
            tick_bytes = configured.rate.bytes_per_second * TICK_SECONDS
            pairs = [
                ("rate", configured.rate, found.rate, 8.0),
                ("burst_bytes", configured.burst_bytes, found.burst_bytes, 1 + tick_bytes),
                ("limit_bytes", configured.limit_bytes, found.limit_bytes, 0.0),
            ]
        case Netem(), Netem():
            pairs = [
                ("delay", configured.delay, found.delay, TICK_SECONDS),
                ("jitter", configured.jitter, found.jitter, TICK_SECONDS),
                ("loss", configured.loss, found.loss, 2.0**-31),
                ("rate", configured.rate or Rate(0), found.rate or Rate(0), 8.0),
                ("limit_packets", configured.limit_packets, found.limit_packets, 0.0),
            ]
        case _:
            return [f"configured {describe(configured)}, the kernel has {describe(found)}"]
    return [
        f"{name}: configured {wanted}, the kernel has {read}"
        for name, wanted, read, tolerance in pairs
        if abs(float(wanted) - float(read)) > tolerance
    ]


def _check_range(shape: Shape) -> None:
    if shape.rate is not None and not MIN_RATE <= shape.rate <= MAX_RATE:
        raise ValueError(f"rate {shape.rate} is outside what tc shapes, {MIN_RATE} to {MAX_RATE}")
    for name, value in (("delay", shape.delay), ("jitter", shape.jitter)):
        if value is not None and value > MAX_DELAY:
            raise ValueError(f"{name} {value} is above the {MAX_DELAY} that tc can hold")


def _queue_bytes(shape: Shape, *, rtt: float, frame: int) -> int:
    """Bytes that may wait; a default queue holds two frames at least, or nothing would pass."""
    rate = shape.rate if shape.rate is not None else UNSHAPED_RATE
    if shape.queue is None:
        return max(round(rate.bytes_per_second * max(DEFAULT_QUEUE, rtt)), 2 * frame)
    size = round(rate.bytes_per_second * shape.queue)
    if size < 2 * frame:
        least = _milliseconds(2 * frame / rate.bytes_per_second)
        raise ValueError(
            f"a queue of {shape.queue} at {rate} holds {size} bytes, less than two frames "
            f"({2 * frame} bytes); give it {least} or more"
        )
    return size


def _netem(shape: Shape, *, queue_bytes: int, frame: int) -> Netem:
    """netem's limit counts packets, and those that serve their delay are among them."""
    delay = shape.delay or Duration(0)
    jitter = shape.jitter or Duration(0)
    rate = shape.rate if shape.rate is not None else UNSHAPED_RATE
    waiting = queue_bytes + rate.bytes_per_second * (delay + jitter)
    return Netem(
        delay=delay,
        jitter=jitter,
        loss=shape.loss or 0.0,
        rate=shape.rate,
        limit_packets=-int(-waiting // frame),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.6g}ms"
