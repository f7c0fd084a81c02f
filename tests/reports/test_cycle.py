"""A worker's cycle, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from testbed.reports.waiting import HostShare, host_share
from testbed.scenario import load_text

SCENARIO = """
name: tiny
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 2
  think: {mean: 500ms}
  classes: {slow: {speed: 100ms, link: {up: {rate: 8mbit}}}}
stop: {updates: 5}
"""

UPDATES = pd.DataFrame(
    {
        "worker": [0, 1, 0, 0, 1],
        "device_class": ["slow"] * 5,
        "time_seconds": [1.0, 2, 2, 4, 4],
        "compute_seconds": [9.0, 9, 0.3, 0.3, 0.4],
        "late_seconds": [0.0, 0, 0, 0.1, 0.1],
        "think_seconds": [9.0, 9, 0.5, 0.5, 1.0],
        "overslept_seconds": [9.0, 9, 0.1, 0.1, 0.0],
        "transfer_seconds": [9.0, 9, 1, 1, 1],
        "blocked_seconds": [9.0, 9, 0.1, 0.1, 0.0],
        "payload_up_bytes": [144_600] * 5,
        "payload_down_bytes": [800_000] * 5,
    }
)
"""Of each worker's first update the cycle is not known: it does not count."""


def test_the_parts_of_a_cycle() -> None:
    """Cycles of 1, 2 and 2 s.

    Steps took 0.8 s without the late part, think 2 s of which 0.2 were not drawn, barriers 0.2.
    144,600 + 200 bytes are a hundred full packets, 151,400 bytes, at a million bytes per second
    0.1514 s of each transfer: 3.2542 of 5 s are explained.
    """
    found = host_share(UPDATES, load_text(SCENARIO))
    assert found.overslept_ratio == pytest.approx(0.2 / 1.8)
    assert found.unexplained_ratio == pytest.approx(1 - 3.2542 / 5)


def test_the_ps_link_may_be_shared_by_all_and_slow_start_takes_round_trips() -> None:
    """Both workers at once at 8 mbit: 0.3028 s more per transfer.

    A round trip of 10 ms: once, and log2(1 + 151400 / 14480) = 3.5179 times for the push; for the
    pull's 800,200 bytes, on the wire 836,673, log2(1 + 57.781) = 5.8773 times.
    """
    text = SCENARIO + "ps: {link: {down: {rate: 8mbit, delay: 10ms}}}\n"
    found = host_share(UPDATES, load_text(text)).unexplained_ratio
    transfers = 3 * (0.1514 + 0.3028 + 0.01 * (1 + 3.5179 + 5.8773))
    assert found == pytest.approx(1 - (2.8 + transfers) / 5, abs=1e-4)


def test_a_transfer_explains_at_most_its_duration() -> None:
    updates = UPDATES.assign(transfer_seconds=0.1)
    found = host_share(updates, load_text(SCENARIO)).unexplained_ratio
    assert found == pytest.approx(1 - (2.8 + 0.3) / 5)


def test_the_cost_of_lost_packets_is_unknown() -> None:
    text = SCENARIO.replace("rate: 8mbit", "rate: 8mbit, loss: 0.01")
    assert host_share(UPDATES, load_text(text)).unexplained_ratio == 0.0  # 5.8 s of 5


def test_on_a_virtual_clock_the_host_has_no_share() -> None:
    scenario = load_text(SCENARIO + "runtime: simulated\n")
    assert host_share(UPDATES, scenario) == HostShare()


def test_without_think_time_there_is_no_law_to_check() -> None:
    updates = UPDATES.assign(think_seconds=0.0, overslept_seconds=0.0)
    found = host_share(updates, load_text(SCENARIO))
    assert (found.unexplained_ratio, found.overslept_ratio) == (None, None)


def test_without_a_second_push_there_is_no_cycle() -> None:
    assert host_share(UPDATES[:2], load_text(SCENARIO)) == HostShare()


def test_a_cycle_with_a_planned_freeze_is_skipped() -> None:
    """The cycle of the first worker's third push.

    The other two cycles, 1 and 2 s, hold 0.6 s of steps, 1.4 s of thinking as drawn, 0.1 s of a
    barrier and 0.3028 s of transfers.
    """
    found = host_share(UPDATES, load_text(SCENARIO), going=UPDATES.drop(index=3))
    assert found.unexplained_ratio == pytest.approx(1 - 2.4028 / 3)
    assert found.overslept_ratio == pytest.approx(0.1 / 1.4)
