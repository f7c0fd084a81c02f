"""Status values of the command line, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.reports.live import Progress, Status, describe
from testbed.scenario.settings import Stop
from testbed.telemetry.rows import UPDATE, Rows
from testbed.values.units import Duration


def rows(count: int, *, staleness: int, payload: int) -> Rows:
    made = np.zeros(count, UPDATE)
    made["staleness"] = staleness
    made["payload_up_bytes"] = payload
    return made


def test_no_values_at_the_start() -> None:
    status = Progress(Stop(updates=100)).status(0.0, emulated=0.0)
    assert status.updates == 0
    assert status.accuracy is None
    assert status.eta_seconds is None
    assert status.done_ratio == 0.0


def test_rate_staleness_ingress_and_eta() -> None:
    progress = Progress(Stop(updates=100))
    progress.add_updates(rows(10, staleness=0, payload=8), 1.0)
    progress.add_updates(rows(20, staleness=3, payload=8), 2.0)
    progress.add_updates(rows(20, staleness=5, payload=8), 3.0)
    status = progress.status(3.0, emulated=3.0)
    assert status.updates == 50
    assert status.ingress_bytes == 400
    assert status.updates_per_second == 20.0  # 40 in the two seconds since the first sample
    assert status.staleness == 4.0  # (20 x 3 + 20 x 5) / 40
    assert status.eta_seconds == 2.5  # 50 more at 20 a second
    assert status.done_ratio == 0.5


def test_the_rate_uses_the_last_ten_seconds() -> None:
    progress = Progress()
    progress.add_updates(rows(1000, staleness=9, payload=8), 1.0)
    progress.add_updates(rows(10, staleness=1, payload=8), 2.0)
    progress.add_updates(rows(50, staleness=2, payload=8), 12.0)
    status = progress.status(12.0, emulated=12.0)
    assert status.updates_per_second == 5.0
    assert status.staleness == 2.0
    assert status.updates == 1060
    assert status.eta_seconds is None


def test_the_eta_is_that_of_the_earliest_stop_rule() -> None:
    progress = Progress(Stop(updates=1000, time=Duration(40)))
    progress.add_updates(rows(10, staleness=0, payload=8), 1.0)
    progress.add_updates(rows(10, staleness=0, payload=8), 2.0)
    status = progress.status(2.0, emulated=10.0)  # time_scale 5
    assert status.done_ratio == 0.25
    assert status.eta_seconds == pytest.approx(6.0)  # not the 98 s of the updates


def test_the_last_accuracy() -> None:
    progress = Progress()
    progress.add_evaluation({"top1": 0.9, "top5": 1.0}, 0.5)
    progress.add_evaluation({"top1": 0.8, "top5": 1.0}, 0.6)
    status = progress.status(1.0, emulated=1.0)
    assert status.accuracy == 0.8
    assert "  accuracy 0.8000  " in describe(status)


def test_the_first_metric_by_its_name() -> None:
    progress = Progress()
    progress.add_evaluation({"macro_f1": 0.75, "top1": 0.8}, 0.6)
    assert "  macro_f1 0.7500  " in describe(progress.status(1.0, emulated=1.0))


def test_the_loss_without_an_accuracy() -> None:
    progress = Progress()
    progress.add_evaluation({"top1": None}, 0.25)
    assert "  loss 0.25  " in describe(progress.status(1.0, emulated=1.0))


def test_rounds_longer_than_the_window_give_a_steady_rate_and_eta() -> None:
    """Five updates arrive at once every 12 s: 5/12 per second, and 40 more take 96 s."""
    progress = Progress(Stop(updates=50))
    progress.add_updates(rows(5, staleness=0, payload=8), 12.0)
    progress.add_updates(rows(5, staleness=0, payload=8), 24.0)
    for now in (24.0, 30.0, 36.0):
        status = progress.status(now, emulated=now)
        assert status.updates_per_second == pytest.approx(5 / 12)
        assert status.eta_seconds == pytest.approx(96.0)
    assert "  0.42/s  " in describe(status)
    # The third round is 12 s late: the rate falls.
    assert progress.status(48.0, emulated=48.0).updates_per_second == pytest.approx(5 / 24)


def test_the_eta_uses_the_emulated_time_of_the_last_ten_seconds() -> None:
    """A simulation starts slowly, then passes 100 emulated seconds per real second."""
    progress = Progress(Stop(time=Duration(10_000)))
    assert progress.status(0.5, emulated=0.004).eta_seconds is None
    for real in range(1, 21):
        status = progress.status(float(real), emulated=100.0 * real)
    assert status.eta_seconds == pytest.approx(80.0)


@pytest.mark.parametrize(("rate", "text"), [(0.0, "0/s"), (0.083, "0.083/s"), (4.25, "4.2/s")])
def test_rates_below_ten_have_a_decimal(rate: float, text: str) -> None:
    assert f"  {text}  " in describe(Status(updates_per_second=rate))
