"""Modelled transfers, worked by hand."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from testbed.scenario.direction import Link, TracedDirection
from testbed.simulation.model import paths
from testbed.values.units import Duration, Rate

RNG = np.random.default_rng(0)


def test_headers_are_added_to_the_payload() -> None:
    up, _ = paths(Link(), Link())
    # 16,936 + 200 bytes are 11.8 segments of 1,448: 12 packets, 66 bytes of headers each.
    assert up.send(16_936, RNG) == (17_136 + 12 * 66, 0.0)
    assert up.bucket.rate == inf


def test_a_smaller_mtu_means_more_packets() -> None:
    """17,136 bytes are 12.7 segments of 1,348 by the link's MTU, 11.8 if only it has large ones."""
    worker = Link(mtu=1400, up=TracedDirection(rate=Rate(1e6)))
    up, down = paths(worker, Link())
    assert up.send(16_936, RNG) == down.send(16_936, RNG) == (17_136 + 13 * 66, 0.0)
    assert up.bucket.configured == (125_000, 2 * 1414)
    assert paths(Link(), Link(mtu=1400))[0].send(16_936, RNG)[0] == 17_136 + 13 * 66
    assert paths(Link(mtu=9000), Link())[0].send(16_936, RNG)[0] == 17_136 + 12 * 66
    assert paths(Link(mtu=9000), Link(mtu=9000))[0].send(16_936, RNG)[0] == 17_136 + 2 * 66


def test_latency_adds_up_over_both_links() -> None:
    worker = Link(
        up=TracedDirection(rate=Rate(1e6), delay=Duration(0.02)),
        down=TracedDirection(rate=Rate(8e6), delay=Duration(0.03)),
    )
    server = Link(
        up=TracedDirection(delay=Duration(0.001)), down=TracedDirection(delay=Duration(0.002))
    )
    up, down = paths(worker, server)
    assert up.bucket.rate == 125_000.0
    assert down.bucket.rate == 1_000_000.0
    assert up.send(100, RNG)[1] == pytest.approx(0.022)  # own up, the PS's down
    assert down.send(100, RNG)[1] == pytest.approx(0.031)
    assert up.round_trip_seconds == pytest.approx(0.053)


def test_loss_costs_bytes_and_round_trips() -> None:
    worker = Link(
        up=TracedDirection(rate=Rate(1e6), delay=Duration(0.05), loss=0.1),
        down=TracedDirection(delay=Duration(0.05)),
    )
    up, _ = paths(worker, Link())
    rng = np.random.default_rng(1)
    sent = [up.send(100 * 1448 - 200, rng) for _ in range(2000)]
    # Every packet is sent 1 / (1 - 0.1) times on average.
    mean = np.mean([wire_bytes for wire_bytes, _ in sent]) / (100 * 1514)
    assert mean == pytest.approx(1 / 0.9, rel=0.005)
    rounds = {round((delay - 0.05) / 0.1, 6) for _, delay in sent}
    assert rounds <= {float(number) for number in range(10)}
    assert min(rounds) >= 1.0  # all but 3 of 100,000 messages of 100 packets lose at least one


def test_jitter_never_makes_a_delay_negative() -> None:
    worker = Link(up=TracedDirection(delay=Duration(0.01), jitter=Duration(0.01)))
    up, _ = paths(worker, Link())
    rng = np.random.default_rng(2)
    delays = [up.send(10, rng)[1] for _ in range(1000)]
    assert min(delays) == 0.0
    assert np.mean(delays) == pytest.approx(0.01, rel=0.1)


def test_a_uniform_jitter_has_the_configured_standard_deviation() -> None:
    hop = TracedDirection(delay=Duration(0.1), jitter=Duration(0.01), distribution="uniform")
    up, _ = paths(Link(up=hop), Link())
    rng = np.random.default_rng(2)
    delays = np.array([up.send(10, rng)[1] for _ in range(4000)])
    assert np.std(delays) == pytest.approx(0.01, rel=0.05)
    assert np.abs(delays - 0.1).max() <= 0.01 * 3**0.5 * 1.001


def test_both_links_have_independent_jitter() -> None:
    hop = TracedDirection(delay=Duration(0.1), jitter=Duration(0.01))
    up, _ = paths(Link(up=hop), Link(down=hop))
    rng = np.random.default_rng(3)
    delays = [up.send(10, rng)[1] for _ in range(4000)]
    assert np.std(delays) == pytest.approx(0.01 * 2**0.5, rel=0.05)


def test_a_burst_has_the_size_of_the_kernels_bucket() -> None:
    # At 1 mbit two frames of 1,514 bytes; at 10 mbit a tick of 4 ms, 5,000 bytes.
    worker = Link(up=TracedDirection(rate=Rate(1e6)), down=TracedDirection(rate=Rate(10e6)))
    up, down = paths(worker, Link())
    assert (up.bucket.burst, down.bucket.burst) == (3028, 5000)
    # Ten emulated seconds per real one: the kernel shapes 100 mbit, a tick of which is 50,000.
    assert paths(worker, Link(), time_scale=10.0)[1].bucket.burst == 50_000
    assert paths(Link(), Link())[0].bucket.burst == 0
