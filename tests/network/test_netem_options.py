from __future__ import annotations

import struct

import pytest

from testbed.network.jitter import table
from testbed.network.netem_options import decode, encode
from testbed.network.qdiscs import Netem, differences
from testbed.values.units import Duration


def test_the_kernels_layout_byte_by_byte() -> None:
    options = encode(Netem(Duration(0.064), Duration(0), 0.5, None, limit_packets=7))
    # 64 ms are 1,000,000 ticks; half of 2**32 - 1, rounded to even
    assert options[:24] == struct.pack("=6I", 1_000_000, 7, 2**31, 0, 0, 0)
    assert options[24:40] == struct.pack("=HH3I", 16, 1, 0, 0, 0)  # no correlation by netem
    assert options[40:] == struct.pack("=HHIiIi", 20, 6, 0, 0, 0, 0)  # no rate


def test_jitter_has_a_table_and_a_rate_that_keeps_the_order() -> None:
    options = encode(Netem(Duration(0.02), Duration(0.001), 0.0, None, 7, "pareto"))
    assert options[40:48] == struct.pack("=HHI", 20, 6, 1_250_000_000)
    assert options[60:64] == struct.pack("=HH", 4 + 2 * 4096, 2)
    assert struct.unpack("=4096h", options[64:]) == table("pareto")


@pytest.mark.parametrize(
    ("loss", "correlation", "worse", "better"),
    [(0.1, 0.25, 0.075, 0.675), (0.01, 0.9, 0.001, 0.099)],
)
def test_correlated_losses_have_two_states(
    loss: float, correlation: float, worse: float, better: float
) -> None:
    netem = Netem(Duration(0), Duration(0), loss, None, 7, loss_correlation=correlation)
    options = encode(netem)
    assert struct.unpack("=I", options[8:12]) == (0,)
    header, states = options[60:68], struct.unpack("=4I", options[68:])
    assert header == struct.pack("=HHHH", 24, 5, 20, 2)
    assert [share / (2**32 - 1) for share in states] == pytest.approx([worse, better, 0, 0])
    assert worse / (worse + better) == pytest.approx(loss)


@pytest.mark.parametrize(
    "netem",
    [
        Netem(Duration(0.02), Duration(0.004), 0.01, None, 103, seed=2**64 - 1),
        Netem(Duration(0), Duration(0), 0.2, None, 1, loss_correlation=0.5),
        Netem(Duration(200), Duration(0), 1.0, None, 2**32 - 1),
    ],
)
def test_configured_options_are_read_back(netem: Netem) -> None:
    assert differences(netem, decode(encode(netem))) == []


def test_a_seed_ignored_by_the_kernel_is_detected_and_is_not_a_difference() -> None:
    asked = Netem(Duration(0.02), Duration(0), 0.0, None, 103, seed=5)
    found = decode(encode(Netem(Duration(0.02), Duration(0), 0.0, None, 103)))
    assert found.seed is None
    assert differences(asked, found) == []
