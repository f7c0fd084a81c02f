"""Faults in real containers are recorded, do not count as losses, and are undone."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

import testbed
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied, LinkChanged
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Crashed, Done, Finished, Started

pytestmark = [pytest.mark.root, pytest.mark.slow]

FAULTS = """\
name: faults
seed: 1
paced: false
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 8
  think: {mean: 40ms}
faults:
  - crash: {workers: [w0, w1], after_push: 0.2}
  - freeze: {workers: [w2], at: {time: 500ms}, for: 1s}
  - kill: {workers: [w3], at: {version: 40}}
  - leave: {workers: [w4], at: {time: 1s}}
  - join: {workers: [w5], at: {time: 1500ms}}
  - join: {workers: [w3], at: {time: 3s}}
stop: {time: 4s}
evaluate: {every: 1s, images: 100}
"""


def happened(up: Any) -> list[FaultApplied]:
    return only(read_events(up.folder.events), FaultApplied)


def finished_at(up: Any) -> float:
    """When the training ended, in seconds since 1970."""
    own = read_events(up.folder.path / "ps" / "events.jsonl")
    return next(entry.time for entry in own if isinstance(entry.event, Finished))


@pytest.mark.alone  # it compares times
def test_every_kind_of_fault_is_applied_without_losses(bed: Any) -> None:
    bed.scenario("faults.yaml", FAULTS)
    up = bed.up(file="faults.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err  # a late fault on a busy host is reported
    reasons = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    assert [reason for reason in reasons if "late in real time" not in reason] == []
    events = happened(up)
    assert all(event.actual_seconds >= event.planned_seconds for event in events)
    kinds = sorted((event.kind, event.begins, event.nodes) for event in events)
    assert kinds == [
        *(("crash", True, ("w0",)), ("crash", True, ("w1",))),
        *(("freeze", False, ("w2",)), ("freeze", True, ("w2",))),
        *(("join", True, ("w3",)), ("join", True, ("w5",))),
        *(("kill", True, ("w3",)), ("leave", True, ("w4",))),
    ]
    moments = {event.nodes[0]: event.actual_seconds for event in events if event.begins}
    updates = testbed.Run(up.folder.path).updates
    own = dict(iter(updates.groupby("node")))
    for crash in only(read_events(up.folder.events), Crashed):
        assert own[crash.node]["sequence"].max() == crash.sequence
    standing = own["w2"]["time_seconds"].between(moments["w2"] + 0.01, moments["w2"] + 0.9)
    assert not standing.any()
    assert own["w2"]["time_seconds"].max() > 1.6
    assert own["w4"]["time_seconds"].max() < moments["w4"] + 0.5
    assert own["w5"]["time_seconds"].min() > 1.5
    assert list(own["w3"]["sequence"]).count(1) == 2  # before and after its restart
    assert bed.remains(up.name) == []


FREEZES = """\
name: freezes
algorithm: asgd
model: {mlp: {hidden: [16]}}
dataset: digits
workers: {count: 2, batch_size: 8, think: {law: constant, mean: 1s}, classes: {all: {speed: 2s}}}
faults:
  - freeze: {workers: [w0], at: {time: 500ms}, for: 1s}
  - freeze: {workers: [w1], at: {time: 2800ms}, for: 1s}
stop: {updates: 2}
evaluate: {every: 4, images: 100}
"""


@pytest.mark.nightly
def test_a_step_or_wait_takes_longer_by_the_time_frozen(bed: Any) -> None:
    """w0 is frozen in a step of 2 s, and w1 in a wait of 1 s."""
    bed.scenario("freezes.yaml", FREEZES)
    up = bed.up(file="freezes.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err
    events = happened(up)
    for column, node, least in (("compute_seconds", "w0", 2.0), ("think_seconds", "w1", 1.0)):
        begun, ended = (event for event in events if event.nodes == (node,))
        frozen = ended.planned_seconds - begun.actual_seconds  # at least
        updates = testbed.Run(up.folder.path).updates
        assert updates[updates["node"] == node][column].iloc[0] >= least + frozen - 1e-6


def test_all_crashed_is_stalled(bed: Any) -> None:
    up = bed.up("--set", "faults=[{crash: {after_push: 1.0}}]")
    done = up.end()
    assert (done.status, done.err) == (6, "")
    (finished,) = only(read_events(up.folder.events), Finished)
    expected = "stalled: no worker is left that could push (3 silent, the others have left)"
    assert (finished.stalled, finished.version, finished.reason) == (True, 3, expected)
    assert bed.remains(up.name) == []


@pytest.mark.alone
def test_a_fault_after_the_end_of_the_run_makes_it_invalid(bed: Any) -> None:
    """The controller is stopped from before the fault until a second after the end."""
    faults = "faults=[{freeze: {workers: [w1], at: {version: 150}, for: 1s}}]"
    pace = "workers={count: 3, think: {mean: 50ms}}"
    up = bed.up("--set", faults, "--set", pace, "--set", "stop={updates: 200}")
    up.wait_for_updates(10)
    up.process.send_signal(signal.SIGSTOP)
    ended = up.wait_for(lambda: only(read_events(up.folder.path / "ps" / "events.jsonl"), Done))
    assert ended[0].applied == 200
    up.wait_for(lambda: time.time() > finished_at(up) + 1.1)
    done = up.signal(signal.SIGCONT)
    (fault,) = happened(up)
    assert (fault.kind, fault.begins, fault.nodes) == ("freeze", True, ())
    assert fault.planned_seconds < fault.actual_seconds - 1
    assert done.status == 6
    reasons = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    assert any(reason.startswith("freeze of no node") for reason in reasons)
    assert bed.remains(up.name) == []


LINKS = """\
name: links
seed: 1
paced: false
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 12
  think: {mean: 60ms}
  classes:
    all: {count: 11, speed: 20ms, link: {up: {rate: 20mbit}, down: {rate: 50mbit}}}
    moving: {count: 1, speed: 20ms, link: {up: {rate: {trace: rate.csv, offset: none}}}}
faults:
  - partition: {workers: [w0, w1, w2], at: {time: 1s}, for: 1s}
  - slow: {workers: [w3], at: {time: 1s}, factor: 6, for: 2s}
  - link: {workers: [w4], at: {time: 1s}, for: 2s, up: {rate: 400kbit}}
stop: {time: 5s}
evaluate: {every: 1s, images: 100}
"""
RATES = [(0, 20e6), (2, 400e3), (3.5, 8e6), (20, 0)]
BURST_BYTES = 3028
"""What a bucket of 400 kbit lets pass at once: two frames."""


@pytest.mark.alone
def test_links_and_devices_change_during_a_run(bed: Any) -> None:
    rows = "".join(f"{time},{rate:.0f}\n" for time, rate in RATES)
    bed.scenario("rate.csv", f"time_seconds,bits_per_second\n{rows}")
    bed.scenario("links.yaml", LINKS)
    up = bed.up(file="links.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err
    events = happened(up)
    assert sorted((event.kind, event.begins, event.nodes) for event in events) == [
        *(("link", False, ("w4",)), ("link", True, ("w4",))),
        *(("partition", False, ("w0", "w1", "w2")), ("partition", True, ("w0", "w1", "w2"))),
        *(("slow", False, ("w3",)), ("slow", True, ("w3",))),
    ]
    came = {event.kind: event.actual_seconds for event in events if event.begins}
    over = {event.kind: event.planned_seconds for event in events if not event.begins}
    updates = testbed.Run(up.folder.path).updates
    own = dict(iter(updates.groupby("node")))

    for node in ("w0", "w1", "w2"):  # the same process continues over the same connection
        times = own[node]["time_seconds"]
        assert not times.between(came["partition"] + 0.05, over["partition"]).any()
        assert times.max() > over["partition"]
        assert list(own[node]["sequence"]) == list(range(1, len(times) + 1))

    # A push after two later pushes was computed after the change.
    times = own["w3"]["time_seconds"]
    slow = own["w3"][times.between(came["slow"], over["slow"])][2:]
    assert len(slow) and slow["compute_seconds"].min() >= 6 * 0.02
    assert own["w3"][times > over["slow"]]["compute_seconds"].min() < 6 * 0.02

    times = own["w4"]["time_seconds"]
    thin = own["w4"][times.between(came["link"], over["link"])][2:]
    least = (thin["payload_up_bytes"] - BURST_BYTES) * 8 / 400e3
    assert len(thin) and (thin["transfer_seconds"][1:] > least[:-1].to_numpy()).all()

    entries = list(read_events(up.folder.events))
    (started,) = [entry.time for entry in entries if isinstance(entry.event, Started)]
    changes = [one for one in only(entries, LinkChanged) if one.nodes == ("w11",)]
    assert [one.up and one.up["rate"] for one in changes] == ["400kbit", "8mbit"]
    for change, (moment, _) in zip(changes, RATES[1:], strict=False):
        assert change.action == "recorded"
        assert change.planned - started == pytest.approx(moment, abs=1e-3)
        assert change.actual >= change.planned
    assert bed.remains(up.name) == []
