"""Encodes and decodes netem's options, as bytes for the kernel. Pure; no netlink.

pyroute2 supports neither the loss models nor the tables of the jitter nor the seed, and cannot set
the rate.
"""

from __future__ import annotations

import struct

from testbed.network.jitter import table
from testbed.network.qdiscs import TICK_SECONDS, UNSHAPED_RATE, Netem
from testbed.network.sock_diag import ATTRIBUTE, attributes_of
from testbed.values.units import Duration

SHARE = 2**32 - 1
"""netem stores a probability as a 32-bit fraction."""

PARAMETERS = struct.Struct("=6I")  # latency, limit, loss, gap, duplicate, jitter
MARKOV = struct.Struct("=4I")  # to the bad state, back from it, kept in it, lost in the good one
CORRELATION, TABLE, LOSS, RATE, SEED = 1, 2, 5, 6, 14
GILBERT_ELLIOTT = 2


def encode(netem: Netem) -> bytes:
    """Return the options of ``netem``, without the bucket below it.

    netem's own correlated losses are not used: it compares the loss with a mean of two draws, so
    that 10 % with a correlation of 25 % become 2 %. Two states, one of which loses everything,
    have exactly the requested share and correlation.
    """
    correlated = netem.loss_correlation > 0
    loss = 0 if correlated else round(netem.loss * SHARE)
    # If the delay varies, packets overtake one another, unless netem has a rate.
    own_rate = round(UNSHAPED_RATE.bytes_per_second) if netem.jitter else 0
    parts = [
        PARAMETERS.pack(_ticks(netem.delay), netem.limit_packets, loss, 0, 0, _ticks(netem.jitter)),
        attribute(CORRELATION, bytes(12)),
        attribute(RATE, struct.pack("=IiIi", own_rate, 0, 0, 0)),
    ]
    if netem.jitter:
        deviations = table(netem.distribution or "normal")
        parts.append(attribute(TABLE, struct.pack(f"={len(deviations)}h", *deviations)))
    if correlated:
        parts.append(attribute(LOSS, attribute(GILBERT_ELLIOTT, _two_states(netem))))
    if netem.seed is not None:
        parts.append(attribute(SEED, struct.pack("=Q", netem.seed)))
    return b"".join(parts)


def decode(options: bytes) -> Netem:
    """Return the kernel's netem; the kernel does not report the distribution of its jitter."""
    delay, limit, loss_share, _, _, jitter = PARAMETERS.unpack_from(options)
    attributes = dict(attributes_of(options, PARAMETERS.size))
    loss, correlation = loss_share / SHARE, 0.0
    models = dict(attributes_of(attributes.get(LOSS, b""), 0))
    if GILBERT_ELLIOTT in models:
        worse, better, _, _ = (share / SHARE for share in MARKOV.unpack(models[GILBERT_ELLIOTT]))
        loss, correlation = worse / (worse + better), 1 - worse - better
    return Netem(
        delay=_duration(delay),
        jitter=_duration(jitter),
        loss=loss,
        bucket=None,
        limit_packets=limit,
        distribution=None,
        loss_correlation=correlation,
        seed=struct.unpack("=Q", attributes[SEED])[0] if SEED in attributes else None,
    )


def _two_states(netem: Netem) -> bytes:
    """Return the transitions of good and bad: stationary share ``loss``, requested correlation."""
    changes = 1 - netem.loss_correlation
    worse, better = changes * netem.loss, changes * (1 - netem.loss)
    return MARKOV.pack(round(worse * SHARE), round(better * SHARE), 0, 0)


def attribute(number: int, data: bytes) -> bytes:
    """Encode one attribute."""
    size = ATTRIBUTE.size + len(data)
    return ATTRIBUTE.pack(size, number) + data + bytes(-size % 4)


def _ticks(seconds: float) -> int:
    return round(seconds / TICK_SECONDS)


def _duration(ticks: int) -> Duration:
    return Duration(round(ticks * TICK_SECONDS, 9))
