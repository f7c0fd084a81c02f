"""Workers that wait for each other, in real containers: shares, losses and a stalled run."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

import testbed
from testbed.telemetry.entry import only
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Finished

pytestmark = [pytest.mark.root, pytest.mark.slow]

WAITING = """\
name: waiting
seed: 1
algorithm: bsp
model: {mlp: {hidden: [128]}}
dataset: digits
time_scale: 20.0
workers:
  count: 3
  classes:
    fast: {share: 0.67, speed: 500ms, link: &thin {up: {rate: 160kbit}, down: {rate: 160kbit}}}
    slow: {share: 0.33, speed: 1500ms, link: *thin}
stop: {time: 100s}
evaluate: {every: 40s, images: 10}
"""

PARTS = ["compute_seconds", "think_seconds", "transfer_seconds", "blocked_seconds"]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("settings", "steady", "share"),
    [
        (["algorithm={bsp: {}}", "workers.think={law: constant, mean: 1s}"], 0, 0.866),
        (["algorithm={adsp: {check_period: 40s, commit_rate: 2}}"], 0, 0.187),
        (["algorithm={fedbuff: {local_steps: 10, buffer_size: 1}}"], 0, 0.352),
        (["algorithm={ssp: {slack: 5}}"], 40, 0.777),
        pytest.param(
            *(["algorithm={fixed-adacomm: {local_steps: 10}}", "stop.time=240s"], 0, 0.555),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["bsp", "adsp", "fedbuff", "ssp", "fixed-adacomm"],
)
def test_waiting_shares_by_hand_live_and_simulated(
    bed: Any, settings: list[str], steady: float, share: float
) -> None:
    """Steps of 0.5, 0.5 and 1.5 s and 1.870 s for a model each way, as the simulated test has them.

    BSP has rounds of 1.5 + 1 + 3.740 s, 0.833 s of them steps:  1 - 0.833 / 6.240 = 86.6 %.
    ADSP commits every 20 s, as it was ordered to:               3.740 / 20 = 18.7 %.
    FedBuff has cycles of 5 + 3.740 and 15 + 3.740 s:            (2 * 42.8 + 20.0) / 3 = 35.2 %.
    SSP goes at the slow worker's pace, once the fast ones lead by 5 steps:
    5 * (1.5 + 1.870) + 1.870 = 18.72 s for five steps:          1 - 0.833 / 3.744 = 77.7 %.
    Ten local steps: a round of 15 + 3.740 s:                    1 - 8.333 / 18.740 = 55.5 %.

    What the slow worker does adds up to the time between its first and last push: its pushes are
    applied at once. The simulated test checks this for all workers.
    """
    bed.scenario("waiting.yaml", WAITING)
    options = [word for one in settings for word in ("--set", one)]
    found = {}
    for runtime in ("native", "simulated"):
        up = bed.up("--runtime", runtime, *options, file="waiting.yaml")
        done = up.end()
        assert done.status in (0, 6), done.err
        run = testbed.Run(up.folder.path)
        shares = []
        for _, own in run.updates[run.updates["time_seconds"] >= steady].groupby("worker"):
            passed = own["time_seconds"].iloc[-1] - own["time_seconds"].iloc[0]
            if own["device_class"].iloc[0] == "slow":
                assert own[PARTS].iloc[1:].to_numpy().sum() == pytest.approx(passed, rel=0.01)
            shares.append(1 - own["compute_seconds"].iloc[1:].sum() / passed)
        found[runtime] = np.mean(shares)
        whole = run.summary["waiting"]["waiting_ratio"]  # including the time before the first push
        assert whole == pytest.approx(share, abs=0.05)
    assert found["simulated"] == pytest.approx(share, abs=0.01)
    assert found["native"] == pytest.approx(share, abs=0.03)


BARRIER = ("--set", "algorithm={bsp: {}}", "--set", "workers.think.mean=20ms")


def test_a_killed_worker_does_not_delay_rounds(bed: Any) -> None:
    """The round closes with the pushes it has, and later rounds with the remaining workers."""
    up = bed.up(*BARRIER, "--set", "stop.updates=240")
    up.wait_for_updates(60)
    bed.kill_node(up, "w1")
    done = up.end()
    assert (done.status, done.err) == (6, "")  # the loss of w1 was not planned
    updates = testbed.Run(up.folder.path).updates
    assert len(updates) >= 240
    assert set(updates["node"].iloc[-20:]) == {"w0", "w2"}
    assert (updates["staleness"] == 0).all()
    assert bed.remains(up.name) == []


def finished(up: Any) -> Finished:
    (one,) = only(read_events(up.folder.events), Finished)
    return one


def test_a_frozen_worker_stalls_the_others(bed: Any) -> None:
    up = bed.up(*BARRIER, "--set", "stop.updates=100000")
    up.wait_for_updates(60)
    bed.kill_node(up, "w1", signal.SIGSTOP)
    done = up.end()
    assert (done.status, done.err) == (6, "")
    assert finished(up).reason == "stalled: 2 workers wait for w1"
    assert finished(up).stalled
    assert "The training stalled: 2 workers wait for w1." in done.out.replace("\n", " ")
    run = testbed.Run(up.folder.path)
    assert len(run.updates) >= 60  # earlier measurements are kept
    assert run.evaluations["final"].iloc[-1]
    assert run.state.state == "finished"
    assert bed.remains(up.name) == []


def test_a_run_without_remaining_workers_is_stalled(bed: Any) -> None:
    up = bed.up("--set", "stop.updates=100000", "--set", "workers.think.mean=20ms")
    up.wait_for_updates(20)
    for worker in ("w0", "w1", "w2"):
        bed.kill_node(up, worker)
    done = up.end()
    assert (done.status, done.err) == (6, "")
    assert finished(up).reason.startswith("stalled: no worker is left that could push")
    assert "no worker is left" in done.out
    run = testbed.Run(up.folder.path)
    assert len(run.updates) >= 20
    assert run.evaluations["final"].iloc[-1]
    assert bed.remains(up.name) == []
