from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import DataError, RunNotFound, TestbedError
from testbed.reports.frames import Run
from testbed.reports.record import read_csv, read_csv_parts
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.rows import EVALUATIONS, UPDATE, Column


def test_updates(folder: RunFolder) -> None:
    updates = Run(folder.path).updates
    assert list(updates["node"]) == ["w0", "w1", "w2", "w0", "w1", "w3"]
    assert list(updates["device_class"]) == ["fast", "fast", "slow", "fast", "fast", "slow"]
    assert list(updates["staleness"]) == [0, 1, 2, 2, 3, 4]
    for name in UPDATE.names or ():
        assert updates[name].dtype == UPDATE[name]


def test_evaluations(folder: RunFolder) -> None:
    evaluations = Run(folder.path).evaluations
    assert list(evaluations["version"]) == [2, 4, 6, 6]
    assert list(evaluations["samples"]) == [20, 40, 60, 60]
    assert list(evaluations["wall_seconds"]) == [0.5, 1.0, 1.5, 1.5]
    assert list(evaluations["final"]) == [False, False, False, True]
    assert evaluations["top1"].dtype == np.float64


def test_traffic(folder: RunFolder) -> None:
    traffic = Run(folder.path).traffic
    assert list(traffic["wall_seconds"]) == [1.0, 3.0]
    assert list(traffic["time_seconds"]) == [2.0, 6.0]
    assert list(traffic["retransmitted_in_bytes"]) == [40, 40]
    assert list(traffic["host_busy_ratio"]) == [0.95, 0.5]


def test_events(folder: RunFolder) -> None:
    events = Run(folder.path).events
    assert list(events.columns[:5]) == ["time", "elapsed_seconds", "event", "node", "source"]
    assert list(events["event"][:3]) == ["state", "links", "brought_up"]
    assert list(events.loc[events["event"] == "state", "state"]) == [
        "starting",
        "training",
        "finished",
    ]


def test_scenario_and_environment(folder: RunFolder) -> None:
    run = Run(str(folder.path))
    assert run.scenario.workers.count == 4
    assert run.environment == {}
    assert run.name == "tiny-1"
    assert not run.alive


def test_a_run_that_was_only_created(tmp_path: Path, folder: RunFolder) -> None:
    text = folder.scenario.read_text()
    empty = RunFolder.create(tmp_path, "empty", scenario="tiny", text=text, classes=[], now=0.0)
    run = Run(empty.path)
    assert len(run.updates) == len(run.evaluations) == len(run.traffic) == len(run.events) == 0
    assert "samples" in run.evaluations
    assert run.summary["verdict"]["reasons"] == [
        "The run did not finish: its controller died in state created. Run the scenario again."
    ]


def test_an_incomplete_last_line_is_skipped(folder: RunFolder) -> None:
    for path in (folder.evaluations, folder.traffic, folder.events):
        with path.open("a") as file:
            file.write('{"eve')
    run = Run(folder.path)
    assert len(run.evaluations) == 4
    assert len(run.traffic) == 2
    assert run.events["event"].iloc[-1] == "torn_down"


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=r"no run\.json"):
        Run(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunNotFound):
        Run(tmp_path / "file")


def test_a_newer_format_is_refused(folder: RunFolder) -> None:
    content = json.loads(folder.run_file.read_text())
    folder.run_file.write_text(json.dumps(content | {"format": 2}))
    with pytest.raises(TestbedError, match="format 2, this testbed reads up to 1"):
        Run(folder.path)


def test_damaged_files_are_named(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run()
    part = folder.updates / "part-0000.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(TestbedError, match=r"part-0000\.parquet: the part cannot be read"):
        _ = Run(folder.path).updates
    folder.evaluations.write_text("time_seconds,version\n1,2\n")
    with pytest.raises(DataError, match=r"evaluations\.csv: unexpected table"):
        _ = Run(folder.path).evaluations
    folder.events.write_text('{"time": 1, "event": "torn_down", "seconds": 1}\n[]\n')
    with pytest.raises(DataError, match=r"events\.jsonl:2: found b'\[\]', expected an event"):
        _ = Run(folder.path).events
    folder.scenario.write_text("name: [")
    with pytest.raises(DataError, match=r"scenario\.yaml:2"):
        _ = Run(folder.path).scenario
    folder.environment.write_text('{"form')
    with pytest.raises(DataError, match=r"environment\.json: not JSON"):
        _ = Run(folder.path).environment
    folder.run_file.write_text("{}")
    with pytest.raises(DataError, match=r"run\.json: not the record of a run"):
        Run(folder.path)


def test_a_truncated_scenario_is_damaged_and_needs_no_keys(folder: RunFolder) -> None:
    lines = folder.scenario.read_text().splitlines(keepends=True)
    for kept in (1, 5):  # without the sections, and in the middle of one
        folder.scenario.write_text("".join(lines[:kept]))
        with pytest.raises(DataError) as caught:
            _ = Run(folder.path).scenario
        assert caught.value.message.startswith(f"{folder.scenario}:")
        assert ": not the scenario of a run: " in caught.value.message
        assert "The file is damaged" in caught.value.hint
    folder.scenario.unlink()
    with pytest.raises(DataError, match="no such file"):
        _ = Run(folder.path).scenario


def test_a_missing_file_is_named(folder: RunFolder) -> None:
    part = folder.updates / "part-0000.parquet"
    part.rename(folder.updates / "part-0001.parquet")
    with pytest.raises(TestbedError, match=r"part-0000\.parquet: the part is missing"):
        _ = Run(folder.path).updates


def test_columns_of_another_version(folder: RunFolder) -> None:
    """An unknown column is ignored, a missing required one is named."""
    lines = folder.evaluations.read_text().splitlines()
    coloured = [f"{line},{'colour' if n == 0 else 'red'}" for n, line in enumerate(lines)]
    folder.evaluations.write_text("\n".join(coloured) + "\n")
    *before, images, final = EVALUATIONS
    expected = [*before, "top1", "top5", images, final, "samples", "steps"]
    assert list(Run(folder.path).evaluations.columns) == expected
    folder.evaluations.write_text("\n".join(line.partition(",")[2] for line in lines) + "\n")
    with pytest.raises(TestbedError, match="it has no column time_seconds"):
        _ = Run(folder.path).evaluations


def test_a_column_missing_in_an_older_table_gets_its_default(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("version\n3\n4\n")
    columns = {
        "version": Column("int64", "updates in the model", "the push"),
        "steps": Column("Int64", "training steps used", "the push", default=1),
    }
    table = read_csv(path, columns)
    assert list(table["version"]) == [3, 4]
    assert list(table["steps"]) == [1, 1]
    assert table["steps"].dtype == "Int64"


def test_a_table_is_read_in_parts(tmp_path: Path) -> None:
    """Rows of 4 bytes, of which two are read at once; the last one is incomplete."""
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3,4\n5,6\n7,")
    columns = {name: Column("int64", "", "") for name in ("a", "b")}
    parts = [*read_csv_parts(path, columns, part_bytes=7)]
    assert [part.to_numpy().tolist() for part in parts] == [[[1, 2], [3, 4]], [[5, 6]]]
    assert [*read_csv_parts(tmp_path / "none.csv", columns)] == []
