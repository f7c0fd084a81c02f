"""Nodes of a workload that are absent: when they start, and who waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.runtimes.agent.launch import Exit

ABSENT = """\
name: small
workload:
  job:
    command: [work]
    count: 2
    classes: {always: {count: 1}, late: {count: 1, availability: {trace: late.csv, offset: none}}}
  reader: {command: [read], after: {job: {prints: ready}}}
  last: {command: [collect], after: {job: ended}}
"""


def test_absent_nodes_start_when_they_come_and_are_awaited_at_their_end_only(
    make_workload: Any, tmp_path: Path
) -> None:
    (tmp_path / "late.csv").write_text("time_seconds,available\n0,0\n5,1\n9,1\n")
    small = make_workload(ABSENT)
    assert small.step() == ["job0"]
    small.folder.log("job0").write_text("ready\n")
    assert small.step() == ["job0", "reader"]
    assert small.step(Exit("job0", 0)) == ["job0", "reader"]
    assert not small.watch.finished
    (change,) = small.timeline.due(5.0)
    assert change.workers == (1,)
    assert small.step() == ["job0", "reader", "job1"]
    assert small.step(Exit("job1", 0))[-1] == "last"


def test_nobody_waits_for_a_node_that_has_left_for_good(make_workload: Any, tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text("time_seconds,available\n0,0\n5,0\n")
    small = make_workload(ABSENT.partition("  last")[0].replace("reader", "other"))
    assert small.timeline.named(small.timeline.departed) == ("job1",)
    small.step()
    small.folder.log("job0").write_text("ready\n")
    small.step()
    small.step(Exit("job0", 0), Exit("other", 0))
    assert small.watch.ending == (
        "all final programs have ended with status 0, except job1, absent for good"
    )


HELD = """\
name: small
workload:
  job: {command: [work], count: 3}
  server: {command: [serve], end: noticed}
faults:
  - freeze: {nodes: [job1], at: {time: 1s}, until: {log: "^ruond 3"}}
  - kill: {nodes: [job2], at: {time: 1s}, until: {log: "^round 4"}}
"""


def test_nobody_waits_for_a_node_whose_fault_no_line_can_end(make_workload: Any) -> None:
    """A node that runs may print it; the kill ends by the last line."""
    small = make_workload(HELD)
    small.step()
    begun = [action.workers for action in small.timeline.due(1.0)]
    assert begun == [(1,), (2,)]
    small.step(Exit("job0", 0))
    assert small.watch.gone == {}
    small.folder.log("server").write_text("round 4\n")
    small.step(Exit("server", 1))
    assert small.watch.gone.keys() == {"server"}
    (back,) = small.timeline.due(6.0)
    assert back.workers == (2,)
    small.step(Exit("job2", 0))
    small.step()
    assert small.watch.ending == (
        "all final programs have ended with status 0, except job1, "
        "frozen or dead until a line or value that no node is left to print"
    )
