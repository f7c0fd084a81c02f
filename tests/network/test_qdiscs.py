from __future__ import annotations

import pytest

from testbed.network.qdiscs import (
    Netem,
    Qdisc,
    TokenBucket,
    describe,
    differences,
    qdisc_for,
    qdiscs_of,
)
from testbed.values.topology import Direction, LinkSpec
from testbed.values.units import Duration, Rate, Size

TEN = Rate.parse("10mbit")
MS = 1e-3


def test_an_unshaped_link_has_no_qdisc() -> None:
    assert qdisc_for(Direction(), rtt=0) is None
    assert qdisc_for(Direction(delay=Duration(0), loss=0.0), rtt=0) is None


@pytest.mark.parametrize(
    ("rate", "burst_bytes", "limit_bytes"),
    [
        ("1mbit", 3028, 12_500),  # 125,000 / 250 = 500 is less than two frames of 1514
        ("10mbit", 5000, 125_000),  # 1,250,000 / 250
        ("100mbit", 50_000, 1_250_000),
        ("400kbit", 3028, 12_112),  # 100 ms would be 5,000 bytes; eight frames of 1514
    ],
)
def test_a_plain_rate_is_a_token_bucket(rate: str, burst_bytes: int, limit_bytes: int) -> None:
    shape = Direction(rate=Rate.parse(rate))
    assert qdisc_for(shape, rtt=0) == TokenBucket(Rate.parse(rate), burst_bytes, limit_bytes)


def test_frames_of_another_mtu_determine_burst_and_queue() -> None:
    """Two and eight frames of 914 or 9014 bytes; 80,000 bytes are 93,744 on the link (93,743.6)."""
    slow = Direction(rate=Rate.parse("100kbit"))
    found = [qdiscs_of(LinkSpec("", "", up=slow, mtu=mtu))[0] for mtu in (900, 9000)]
    assert found == [TokenBucket(slow.rate, 1828, 7312), TokenBucket(slow.rate, 18_028, 72_112)]
    long = qdiscs_of(LinkSpec("", "", up=slow, mtu=900, message=Size(80_000)))[0]
    assert long == TokenBucket(slow.rate, 1828, 93_744)
    with pytest.raises(ValueError, match=r"up: a queue of 1s .* two frames \(18028 bytes\)"):
        qdiscs_of(LinkSpec("", "", up=slow.changed(queue=Duration(1)), mtu=9000))


def test_the_default_queue_is_100_ms_or_the_round_trip_if_that_is_longer() -> None:
    short = qdisc_for(Direction(rate=TEN), rtt=40 * MS)
    long = qdisc_for(Direction(rate=TEN), rtt=300 * MS)
    asked = qdisc_for(Direction(rate=TEN, queue=Duration(50 * MS)), rtt=300 * MS)
    limits = [
        bucket.limit_bytes for bucket in (short, long, asked) if isinstance(bucket, TokenBucket)
    ]
    assert limits == [125_000, 375_000, 62_500]


def test_the_default_queue_holds_a_message() -> None:
    """200,000 bytes at 500 kbit: 1514 on the link for 1380 of them, 219,420 (219,420.3).

    At 100 mbit 100 ms are more, of 100 MB no more than 4 MiB wait (4,601,577.0), and a queue that
    is configured is unchanged.
    """
    message = Size(200_000)
    buckets = [
        qdisc_for(Direction(rate=Rate(500e3)), rtt=0, message=message),
        qdisc_for(Direction(rate=Rate(100e6)), rtt=0, message=message),
        qdisc_for(Direction(rate=Rate(500e3)), rtt=0, message=Size(100e6)),
        qdisc_for(Direction(rate=Rate(500e3), queue=Duration(200 * MS)), rtt=0, message=message),
    ]
    limits = [bucket.limit_bytes for bucket in buckets if isinstance(bucket, TokenBucket)]
    assert limits == [219_420, 1_250_000, 4_601_577, 12_500]


def test_a_delay_is_a_netem_and_the_rate_a_token_bucket_below_it() -> None:
    shape = Direction(rate=TEN, delay=Duration(20 * MS), jitter=Duration(4 * MS), loss=0.01)
    qdisc = qdisc_for(shape, rtt=40 * MS, seed=5)
    # 125,000 bytes queued and 1,250,000 * (0.020 + 4 * 0.004) = 45,000 in transit, in frames of
    # 60 bytes: 170,000 / 60 = 2833.3
    bucket = TokenBucket(TEN, 5000, 125_000)
    line = Netem(Duration(20 * MS), Duration(4 * MS), 0.01, bucket, limit_packets=2834, seed=5)
    assert qdisc == line


def test_a_queue_is_in_bytes_also_with_a_delay() -> None:
    shape = Direction(rate=TEN, delay=Duration(20 * MS), queue=Duration(50 * MS))
    qdisc = qdisc_for(shape, rtt=40 * MS)
    assert isinstance(qdisc, Netem)
    assert qdisc.bucket == TokenBucket(TEN, 5000, 62_500)


def test_acknowledgements_of_a_long_fat_download_fit_on_a_thin_upload() -> None:
    up = Direction(rate=Rate.parse("1mbit"), delay=Duration(300 * MS), queue=Duration(100 * MS))
    qdisc = qdisc_for(up, rtt=600 * MS)
    assert isinstance(qdisc, Netem)
    # 20 mbit of full frames are 1,651 per second; one acknowledgement of 66 bytes for two of them
    # is 0.44 mbit, and 248 are in transit at once. In full frames the limit would be 34.
    assert qdisc.limit_packets > 2 * 248


def test_a_delay_without_a_rate_drops_nothing_below_10_gbit() -> None:
    qdisc = qdisc_for(Direction(delay=Duration(20 * MS)), rtt=40 * MS)
    # 1.25 GB/s for 0.12 s is 150 MB, in frames of 60 bytes
    assert qdisc == Netem(Duration(20 * MS), Duration(0), 0.0, None, 2_500_000, seed=0)


def test_default_queues_depend_on_the_delays_of_both_directions() -> None:
    up = Direction(rate=TEN, delay=Duration(160 * MS))
    link = LinkSpec("10.77.0.2", "02:00:0a:4d:00:02", up=up, down=Direction(rate=TEN), seed=6)
    qdisc_up, qdisc_down = qdiscs_of(link)
    assert isinstance(qdisc_up, Netem)
    assert qdisc_up.bucket == qdisc_down == TokenBucket(TEN, 5000, 200_000)
    assert qdisc_up.seed == 6


def test_the_two_directions_draw_independently() -> None:
    lossy = Direction(loss=0.1)
    link = LinkSpec("10.77.0.2", "02:00:0a:4d:00:02", up=lossy, down=lossy, seed=6)
    seeds = [qdisc.seed for qdisc in qdiscs_of(link) if isinstance(qdisc, Netem)]
    assert seeds == [6, 7]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Direction(rate=Rate(100)), "rate 100bit is out of range, expected 1kbit to 34gbit"),
        (Direction(rate=Rate(40e9)), "rate 40gbit is out of range"),
        (Direction(delay=Duration(300)), "delay 5min is too long, expected at most 200s"),
        (
            Direction(rate=TEN, queue=Duration(1 * MS)),
            r"a queue of 1ms at 10mbit holds 1250 bytes, less than two frames \(3028 bytes\); "
            "use 2.4224ms or more",
        ),
    ],
)
def test_values_beyond_tc_are_refused(shape: Direction, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        qdisc_for(shape, rtt=0)


def test_a_refusal_names_the_direction() -> None:
    link = LinkSpec("10.77.0.2", "02:00:0a:4d:00:02", down=Direction(rate=Rate(100)))
    with pytest.raises(ValueError, match="down: rate 100bit"):
        qdiscs_of(link)


@pytest.mark.parametrize(
    ("qdisc", "words"),
    [
        (None, "not shaped"),
        (TokenBucket(TEN, 5000, 125_000), "tbf rate 10mbit burst 5000 B queue 100ms (125000 B)"),
        (
            Netem(Duration(20 * MS), Duration(4 * MS), 0.015, None, 103, "pareto", 0.25),
            "netem delay 20ms jitter 4ms pareto loss 1.5% correlation 25% limit 103 packets",
        ),
        (
            Netem(Duration(0), Duration(0), 0.5, TokenBucket(TEN, 5000, 125_000), 7),
            "netem loss 50% limit 7 packets, tbf rate 10mbit burst 5000 B queue 100ms (125000 B)",
        ),
    ],
)
def test_descriptions(qdisc: Qdisc | None, words: str) -> None:
    assert describe(qdisc) == words


BUCKET = TokenBucket(TEN, 5000, 125_000)
LINE = Netem(Duration(20 * MS), Duration(0), 0.01, BUCKET, 103)


@pytest.mark.parametrize(
    ("configured", "found"),
    [
        (None, None),
        (BUCKET, BUCKET),
        (TokenBucket(Rate(10_000_007), 5000, 125_000), TokenBucket(TEN, 5001, 125_000)),
        (LINE, Netem(Duration(20 * MS + 60e-9), Duration(0), 0.01 + 2**-33, BUCKET, 103)),
        (
            Netem(Duration(0), Duration(0), 0.1, None, 9),
            Netem(Duration(0), Duration(0), 0.1, None, 9),
        ),
    ],
)
def test_the_kernels_rounding_is_not_a_difference(
    configured: Qdisc | None, found: Qdisc | None
) -> None:
    assert differences(configured, found) == []


@pytest.mark.parametrize(
    ("configured", "found", "message"),
    [
        (
            BUCKET,
            TokenBucket(Rate.parse("9mbit"), 5000, 125_000),
            "rate: configured 10mbit, the kernel has 9mbit",
        ),
        (
            BUCKET,
            TokenBucket(TEN, 5003, 125_000),
            "burst_bytes: configured 5000, the kernel has 5003",
        ),
        (
            LINE,
            Netem(Duration(20 * MS), Duration(0), 0.02, BUCKET, 103),
            "loss: configured 0.01, the kernel has 0.02",
        ),
        (
            LINE,
            Netem(Duration(20 * MS), Duration(0), 0.01, None, 103),
            "configured tbf rate 10mbit burst 5000 B queue 100ms (125000 B), "
            "the kernel has not shaped",
        ),
        (
            BUCKET,
            None,
            "configured tbf rate 10mbit burst 5000 B queue 100ms (125000 B), "
            "the kernel has not shaped",
        ),
    ],
)
def test_a_difference_names_configured_and_actual_values(
    configured: Qdisc | None, found: Qdisc | None, message: str
) -> None:
    assert differences(configured, found) == [message]
