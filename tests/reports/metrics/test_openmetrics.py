"""Finished runs, as Prometheus reads them: a live and a simulated one."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.cli import main
from testbed.plan.written import read_plan
from testbed.reports.frames import Run
from testbed.reports.metrics.openmetrics import write_openmetrics
from testbed.reports.metrics.replay import STEP_SECONDS, Replay

SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+) (\d+\.\d{1,3})")
"""The client library's parser loses buckets: it takes those of the next moment for repetitions."""


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float
    timestamp: float


RUNS = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(params=["live", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    folder = tmp_path / request.param
    shutil.copytree(RUNS / request.param, folder)
    return Run(folder)


def samples(*runs: Run, end: float | None = None) -> Iterator[Sample]:
    file = StringIO()
    write_openmetrics(file, [Replay(run, read_plan(run.folder)) for run in runs], end=end)
    *lines, last = file.getvalue().splitlines()
    assert last == "# EOF"
    for line in lines:
        if not line.startswith("#"):
            name, labels, value, timestamp = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            yield Sample(name, pairs, float(value), float(timestamp))


def test_the_last_samples_match_the_summary(run: Run) -> None:
    last = {(one.name, *sorted(one.labels.items())): one for one in samples(run)}
    updates, payload, staleness = 0.0, 0.0, 0.0
    for (name, *_), one in last.items():
        assert one.labels["run"] == run.name
        assert one.labels["algorithm"] == run.scenario.algorithm.name
        updates += one.value if name == "testbed_updates_total" else 0
        up = name == "testbed_payload_bytes_total" and one.labels["direction"] == "up"
        payload += one.value if up else 0
        staleness += one.value if name == "testbed_staleness_updates_sum" else 0
    assert updates == run.summary["updates"]["total"]
    assert payload == run.summary["ingress"]["payload_bytes"]
    assert staleness == run.updates["staleness"].sum()


def test_time_increases_in_every_series_from_the_start_of_the_run(run: Run) -> None:
    times = defaultdict(list)
    for one in samples(run):
        times[one.name, *sorted(one.labels.items())].append(float(one.timestamp))
    for series in times.values():
        assert series == sorted(set(series))
    steps = times["testbed_version", ("algorithm", "adacomp"), ("run", run.name)]
    assert steps[1] - steps[0] == pytest.approx(STEP_SECONDS)
    seconds = run.updates["time_seconds"].max()
    assert seconds <= steps[-1] - steps[0] < seconds + 2 * STEP_SECONDS
    begin = run.state.created if run.scenario.simulated else run.state.started
    assert steps[0] == pytest.approx(datetime.fromisoformat(str(begin)).timestamp(), abs=1.0)


def test_an_evaluation_has_its_own_time(run: Run) -> None:
    found = [one for one in samples(run) if one.name == "testbed_loss"]
    start = Replay(run, read_plan(run.folder)).started
    during = run.evaluations[~run.evaluations["final"]]
    seen = {round(float(one.timestamp) - start, 3) for one in found}
    assert len(found) >= len(during)
    assert any(moment % STEP_SECONDS for moment in seen)


def test_several_runs_all_end_now(tmp_path: Path) -> None:
    runs = []
    for name in ("live", "simulated"):
        shutil.copytree(RUNS / name, tmp_path / name)
        runs.append(Run(tmp_path / name))
    found = [one for one in samples(*runs, end=2e9) if one.name == "testbed_version"]
    first = {one.labels["run"]: float(one.timestamp) for one in reversed(found)}
    assert len(set(first.values())) == 1
    last = max(float(one.timestamp) for one in found)
    assert 2e9 <= last < 2e9 + STEP_SECONDS


def test_the_command_writes_everything_or_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RUNS / "live", tmp_path / "live")
    out = tmp_path / "runs.txt"
    arguments = ["export", "prometheus", str(tmp_path / "live"), "--out", str(out)]
    assert main(arguments) == 0
    assert "samples of 1 runs" in capsys.readouterr().out
    written = out.read_text()
    assert written.endswith("# EOF\n")
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert "expected a file that does not exist yet. Replace it with --force." in told
    assert main([*arguments, "--force", "--at", "noon"]) == 2
    told = capsys.readouterr().err
    assert "'--at': found 'noon', expected `run`, `now` or a time like 2026-" in told
    assert main([*arguments, "--force", "--at", "now"]) == 0
    assert main([*arguments, "--force", "--at", "2026-10-01T12:00"]) == 0
    written = out.read_text()
    (tmp_path / "live" / "events.jsonl").write_text("no event\n")
    assert main([*arguments, "--force"]) == 4
    assert "expected an event" in capsys.readouterr().err
    assert out.read_text() == written  # no partial file
    assert main([*arguments[:-1], str(tmp_path / "nowhere" / "runs.txt")]) == 2
    assert "a path in an existing folder" in capsys.readouterr().err


def test_workers_of_a_simulated_run_are_running(run: Run) -> None:
    last = {one.labels["worker"]: one for one in samples(run) if one.name == "testbed_worker_state"}
    assert set(last) == {f"w{index}" for index in range(run.scenario.workers.count)}
    assert {one.value for one in last.values()} == {1.0}
