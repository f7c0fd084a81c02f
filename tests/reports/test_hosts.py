"""What the summary says of the hosts of a run over several, worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.errors import DataError
from testbed.reports.frames import Run
from testbed.reports.measurements import ClockDrift
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.rows import HostRow


def write(folder: RunFolder, *rows: HostRow) -> None:
    lines = [",".join(HostRow._fields)]
    lines += [",".join("" if one is None else str(one) for one in row) for row in rows]
    folder.other_hosts.write_text("\n".join(lines) + "\n")


def place(folder: RunFolder, hosts: dict[int, str]) -> None:
    nodes: list[dict[str, Any]] = [{"part": "server", "index": 0, "host": "a"}]
    nodes += [{"part": "client", "index": n, "host": host} for n, host in hosts.items()]
    folder.plan.write_text(json.dumps({"hosts": [{"name": "a"}, {"name": "b"}], "nodes": nodes}))


def test_a_run_on_one_host_says_nothing_of_others(folder: RunFolder) -> None:
    run = Run(folder.path)
    assert run.summary["hosts"] is None
    assert run.hosts.empty


@pytest.mark.parametrize("nodes", [5, [5], [{"part": "client"}]])
def test_nodes_of_another_type_are_named(folder: RunFolder, nodes: Any) -> None:
    folder.plan.write_text(json.dumps({"hosts": 5, "nodes": nodes}))
    with pytest.raises(DataError, match=r"plan\.json: its nodes are no list of nodes"):
        _ = Run(folder.path).summary


def test_the_drift_of_a_clock_is_its_largest_change(folder: RunFolder) -> None:
    workers = sorted(set(Run(folder.path).updates["worker"]))
    place(folder, {worker: "b" if worker else "a" for worker in workers})
    write(
        folder,
        HostRow(None, None, "b", None, 4000, None, 10.0, 0.001),
        HostRow(2.0, 2.0, "b", 0.5, 3500, 0.25, 10.30, 0.29),  # the error hides what moved
        HostRow(5.0, 5.0, "b", 0.5, 3000, 0.25, 10.08, 0.002),
        HostRow(10.0, 10.0, "b", 1.0, 3500, 0.25, 10.01, 0.001),
    )
    run = Run(folder.path)
    there = run.summary["hosts"]["b"]
    assert there["workers"] == len(workers) - 1
    assert there["available_bytes_min"] == 3000
    assert there["clock_drift_seconds"] == pytest.approx(0.08)
    assert there["clock_error_seconds"] == pytest.approx(0.003)
    assert there["pressure_ratio"] in (None, 0.25)
    assert run.summary["hosts"]["a"]["clock_drift_seconds"] is None
    (reason,) = (one for one in run.verdict.reasons if "clock" in one)
    assert "host b moved by 80.0 ms" in reason
    assert ClockDrift("b", 0.08, 0.003).seconds == pytest.approx(there["clock_drift_seconds"])
