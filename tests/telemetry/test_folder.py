from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import DataError, HostError, RunNotFound, ScenarioError, TestbedError
from testbed.telemetry.files import moment, read_json, write_atomically
from testbed.telemetry.folder import RunFolder

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


def make(runs: Path, name: str = "r1") -> RunFolder:
    return RunFolder.create(
        runs, name, scenario="quick", text="name: quick\n", classes=["fast", "slow"], now=NOON
    )


def test_a_new_folder_has_its_state_scenario_and_subfolders(tmp_path: Path) -> None:
    folder = make(tmp_path / "runs")
    assert json.loads((tmp_path / "runs/r1/run.json").read_text()) == {
        "format": 1,
        "run": "r1",
        "scenario": "quick",
        "state": "created",
        "created": "2026-01-01T12:00:00.000Z",
        "started": None,
        "ended": None,
        "reason": "",
        "exit_code": None,
        "classes": ["fast", "slow"],
        "metrics": "",
    }
    assert folder.scenario.read_text() == "name: quick\n"
    assert all(part.is_dir() for part in (folder.updates, folder.logs, folder.ps, folder.control))
    # Other users of the host cannot reach the sockets in there.
    assert stat.S_IMODE(folder.sockets.stat().st_mode) == 0o700
    assert folder.ps_socket.parent.is_dir()
    assert folder.log("w3") == folder.path / "logs" / "w3.log"
    assert not list(folder.path.glob(".*"))


def test_a_failed_creation_leaves_no_run(tmp_path: Path) -> None:
    text = "name: \ud800"  # which cannot be written
    with pytest.raises(UnicodeEncodeError):
        RunFolder.create(tmp_path, "r1", scenario="s", text=text, classes=(), now=NOON)
    folder = RunFolder(tmp_path / "r1")
    assert folder.control.is_dir()
    with pytest.raises(RunNotFound, match=r"it has no run\.json"):
        folder.state()


def test_states_and_their_times(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.move("starting", now=NOON + 1)
    folder.move("training", now=NOON + 2)
    assert folder.state().started == "2026-01-01T12:00:02.000Z"
    folder.move("finished", now=NOON + 3.5, reason="6 updates applied")
    state = RunFolder.open(folder.path).state()
    assert (state.state, state.reason) == ("finished", "6 updates applied")
    assert state.started == "2026-01-01T12:00:02.000Z"
    assert state.ended == "2026-01-01T12:00:03.500Z"
    assert state.classes == ("fast", "slow")


def test_a_name_is_used_once(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(ScenarioError, match="found r1, expected a name that no run uses"):
        make(tmp_path)


def test_the_name_of_an_active_run_is_not_answered_with_its_removal(tmp_path: Path) -> None:
    folder = make(tmp_path)
    with pytest.raises(ScenarioError, match=f"Choose another name, or remove {folder.path}"):
        make(tmp_path)
    with folder.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ScenarioError, match=f"run is active.*`testbed down {folder.path}`"):
            make(tmp_path)


def test_a_file_with_the_name_of_a_new_run(tmp_path: Path) -> None:
    (tmp_path / "r1").touch()
    with pytest.raises(ScenarioError, match="or remove"):
        make(tmp_path)


def test_a_path_where_no_folder_can_be_created(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(HostError, match="cannot be created"):
        make(tmp_path / "runs")


def test_a_run_is_alive_while_its_lock_is_held(tmp_path: Path) -> None:
    folder = make(tmp_path)
    assert not folder.alive()
    with folder.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert folder.alive()
        with folder.locked() as mine:
            assert not mine
    assert not folder.alive()


def test_readers_do_not_mistake_each_other_for_the_run(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.lock.touch()
    with folder.locked(shared=True) as first, folder.locked(shared=True) as second:
        assert (first, second) == (True, True)
        assert not folder.alive()
        with folder.locked() as mine:
            assert not mine


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_nodes_can_read_their_files_with_any_umask(tmp_path: Path, umask: int) -> None:
    callers = os.umask(umask)
    try:
        folder = make(tmp_path / "runs")
    finally:
        os.umask(callers)
    parts = {part: stat.S_IMODE(part.stat().st_mode) for part in (folder.scenario, folder.slow)}
    assert parts == {folder.scenario: 0o644, folder.slow: 0o755}
    assert stat.S_IMODE(folder.ps_sockets.stat().st_mode) == 0o755
    assert stat.S_IMODE(folder.sockets.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o777 & ~umask


def test_folders_that_are_not_runs(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="not a run folder"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TestbedError, match=r"run\.json: not JSON"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(TestbedError, match="not a JSON object"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 1, "classes": []}')
    with pytest.raises(TestbedError, match="not the record of a run"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"state": 5}, "state: found 5, expected 'created', 'starting'"),
        ({"classes": [1, None]}, "classes.0: found 1, expected a valid string"),
        ({"classes": "abc"}, "classes: found 'abc'"),
        ({"created": 7}, "created: found 7"),
        ({"ended": "noon"}, "ended: found 'noon', expected a time in ISO 8601"),
        ({"format": None}, "format: found None"),
    ],
)
def test_a_value_of_another_type_is_named(
    tmp_path: Path, changed: dict[str, Any], found: str
) -> None:
    folder = make(tmp_path)
    content = json.loads(folder.run_file.read_text())
    folder.run_file.write_text(json.dumps(content | changed))
    with pytest.raises(DataError) as caught:
        RunFolder.open(folder.path)
    told = f"{folder.run_file}: not the record of a run: {found}"
    assert caught.value.message.startswith(told)


def test_a_state_without_classes_is_damaged(tmp_path: Path) -> None:
    folder = make(tmp_path)
    content = json.loads(folder.run_file.read_text())
    del content["classes"]
    folder.run_file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="classes is missing"):
        folder.state()


def test_keys_added_by_a_later_testbed_are_ignored(tmp_path: Path) -> None:
    folder = make(tmp_path)
    content = json.loads(folder.run_file.read_text())
    folder.run_file.write_text(json.dumps(content | {"hosts": ["a"]}))
    assert folder.state().run == "r1"


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, '{"a": 1}')
    before = path.open()
    write_atomically(path, b'{"a": 2}')
    with before:
        assert before.read() == '{"a": 1}'
    assert read_json(path) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]
    assert read_json(tmp_path / "b.json") is None


def test_times_are_written_in_utc() -> None:
    assert moment(0.0625) == "1970-01-01T00:00:00.062Z"
