"""What the command line shows, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.cli.live import Progress, describe
from testbed.events.rows import UPDATE, Rows


def rows(count: int, *, staleness: int, payload: int) -> Rows:
    made = np.zeros(count, UPDATE)
    made["staleness"] = staleness
    made["payload_up_bytes"] = payload
    return made


def test_nothing_is_known_at_the_beginning() -> None:
    status = Progress(stop_updates=100, stop_seconds=None).status(0.0, emulated=0.0)
    assert status.updates == 0
    assert status.accuracy is None
    assert status.eta_seconds is None
    assert status.done_ratio == 0.0


def test_rate_staleness_ingress_and_eta() -> None:
    progress = Progress(stop_updates=100, stop_seconds=None)
    progress.add_updates(rows(10, staleness=0, payload=8), 1.0)
    progress.add_updates(rows(20, staleness=3, payload=8), 2.0)
    progress.add_updates(rows(20, staleness=5, payload=8), 3.0)
    status = progress.status(3.0, emulated=3.0)
    assert status.updates == 50
    assert status.ingress_bytes == 400
    assert status.updates_per_second == 20.0  # 40 in the two seconds since the first look
    assert status.staleness == 4.0  # (20 x 3 + 20 x 5) / 40
    assert status.eta_seconds == 2.5  # 50 more at 20 a second
    assert status.done_ratio == 0.5


def test_only_the_last_ten_seconds_count_for_the_rate() -> None:
    progress = Progress(stop_updates=None, stop_seconds=None)
    progress.add_updates(rows(1000, staleness=9, payload=8), 1.0)
    progress.add_updates(rows(10, staleness=1, payload=8), 2.0)
    progress.add_updates(rows(50, staleness=2, payload=8), 12.0)
    status = progress.status(12.0, emulated=12.0)
    assert status.updates_per_second == 5.0
    assert status.staleness == 2.0
    assert status.updates == 1060
    assert status.eta_seconds is None


def test_the_rule_that_ends_the_run_first_gives_the_eta() -> None:
    progress = Progress(stop_updates=1000, stop_seconds=40.0)
    progress.add_updates(rows(10, staleness=0, payload=8), 1.0)
    progress.add_updates(rows(10, staleness=0, payload=8), 2.0)
    status = progress.status(2.0, emulated=10.0)  # time_scale 5
    assert status.done_ratio == 0.25
    assert status.eta_seconds == pytest.approx(6.0)  # not the 98 s of the updates


def test_the_last_accuracy() -> None:
    progress = Progress(stop_updates=None, stop_seconds=None)
    progress.add_evaluation(0.9, 0.5)
    progress.add_evaluation(0.8, 0.6)
    status = progress.status(1.0, emulated=1.0)
    assert status.accuracy == 0.8
    assert "  accuracy 0.8000  " in describe(status)


def test_a_loss_where_there_is_no_accuracy() -> None:
    progress = Progress(stop_updates=None, stop_seconds=None)
    progress.add_evaluation(None, 0.25)
    assert "  loss 0.25  " in describe(progress.status(1.0, emulated=1.0))
