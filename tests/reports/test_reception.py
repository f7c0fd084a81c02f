"""What devices received against what was due: 20 samples a second, of which all but those of the
last 1.05 seconds, a second of the host and the broker's linger, had to arrive by the 40th."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.reports.frames import Run
from testbed.reports.history import RunHistory
from testbed.reports.measurements import Measurements
from testbed.reports.reception import received
from testbed.reports.verdict import judge
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Finished, Received
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import STREAMED, joined

SCENARIO = """\
name: brokered
runtime: native
algorithm: {ddl: {learning_rate: 0.05}}
model: digits-cnn
dataset: digits
workers: {count: 3, batch_size: 16}
streams: {rates: {constant: {per_second: 20}}, transport: {kafka: {retention: 60s}}}
stop: {time: 40s}
"""
END = 40.0


def at(seconds: float, event: Event) -> Entry:
    return Entry(1.7e9 + seconds, seconds, event)


def fault(node: str, kind: str, begin: float, end: float) -> list[Entry]:
    return [
        at(moment, FaultApplied(kind, begins, (node,), moment, moment, 0))
        for begins, moment in ((True, begin), (False, end))
    ]


def report(
    node: str,
    came: int,
    *,
    time: float = END,
    missing: int = 0,
    removed: int = 0,
    silent: float = 0,
) -> Entry:
    return at(time, Received(node, came, missing, removed, silent))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The last updates of w1 and w2; w0 has none. Of w2, 4 of 260 samples were missing."""
    folder = RunFolder.create(
        tmp_path, "r", scenario="brokered", text=SCENARIO, classes=["device"] * 3, now=1.7e9
    )
    rows = np.zeros(2, STREAMED)
    rows["worker"], rows["time_seconds"] = [1, 2], [39.0, 13.0]
    rows["version_applied"] = [0, 1]
    rows["stream_produced"], rows["stream_missing"] = [780, 257], [0, 4]
    rows["stream_duplicates"] = [0, 1]
    with Recorder.into(folder, time_scale=1.0) as recorder:
        recorder.updates(joined([rows]))
    return Run(folder.path)


def found(run: Run, *entries: Entry) -> dict[str, tuple[int, int]]:
    events = [at(END, Finished("40 s", 2)), *entries]
    return received(run, events, RunHistory.of(events).faults)


def test_all_samples_of_a_silent_stream_are_due(run: Run) -> None:
    """Silent for 35 s: of the 800 samples of 40 s, 779 could arrive: those of 38.95 s."""
    assert found(run, report("w0", 98, silent=35.1))["w0"] == (98, 779)
    assert found(run, report("w0", 98, time=45.0, silent=40.1))["w0"] == (98, 779)  # after the end
    assert found(run, report("w0", 98, time=16.0, silent=11.1))["w0"] == (98, 299)  # 14.95 s


def test_samples_under_way_or_buffered_are_not_missing(run: Run) -> None:
    """A slow link: the newest of 98 came 11 s ago at most, after which the stream is silent."""
    assert found(run, report("w0", 98, silent=11.0))["w0"] == (98, 98)


def test_a_fault_explains_a_silence_but_no_gap(run: Run) -> None:
    silent = report("w0", 98, missing=2, silent=35.1)
    for node in ("w0", "broker", "producer0"):
        for kind in ("freeze", "partition", "kill", "link"):
            assert found(run, *fault(node, kind, 4.8, 6.0), silent)["w0"] == (98, 100)
    assert found(run, *fault("w1", "kill", 4.8, 6.0), silent)["w0"] == (98, 779)
    assert found(run, *fault("w0", "slow", 4.8, 6.0), silent)["w0"] == (98, 779)
    assert found(run, *fault("w0", "kill", 1.0, 4.8), silent)["w0"] == (98, 779)  # over before


def test_samples_that_the_retention_removed_are_not_due(run: Run) -> None:
    assert found(run, report("w0", 700, missing=100, removed=90))["w0"] == (700, 710)
    assert found(run, report("w0", 98, missing=20, removed=20, silent=35.1))["w0"] == (98, 759)


def test_the_last_report_counts_and_an_update_is_one(run: Run) -> None:
    late, early = report("w1", 799), report("w1", 200, time=20.0, silent=15.0)
    assert found(run, early, late)["w1"] == (799, 799)
    assert found(run, early)["w1"] == (780, 780)
    assert found(run)["w2"] == (256, 260)
    assert "w0" not in found(run)


def test_a_twentieth_may_be_missing() -> None:
    some = {"w0": (98, 800), "w1": (760, 800), "w2": (759, 800)}
    first, second = judge(Measurements("finished", updates=1, received=some)).reasons
    assert first.startswith(
        "w0 received 98 of the 800 samples of its stream that were due: 87.75% are missing (5% is "
        "allowed). If records were removed from the broker or damaged, "
    )
    assert second.startswith("w2 received 759 of the 800 samples")
    many = {f"w{index}": (0, 10) for index in range(5)}
    *_, last = judge(Measurements("finished", updates=1, received=many)).reasons
    assert last == "2 other devices received too few samples, too."
