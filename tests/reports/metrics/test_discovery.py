"""The folder in which runs register for a Prometheus."""

from __future__ import annotations

import json
import os
from pathlib import Path

from testbed.host.process import Process
from testbed.reports.metrics.discovery import CONTROLLER, Targets


def test_a_run_is_registered_while_it_is_active(tmp_path: Path) -> None:
    targets = Targets.of_user({"XDG_STATE_HOME": str(tmp_path)}, Path("/nowhere"))
    runs = tmp_path / "runs"
    with targets.registered(runs / "r1", "127.0.0.1:9500"):
        (file,) = targets.folder.iterdir()
        labels = {"run": "r1", CONTROLLER: str(Process.of(os.getpid()))}
        assert json.loads(file.read_text()) == [{"targets": ["127.0.0.1:9500"], "labels": labels}]
        with targets.registered(tmp_path / "others" / "r1", "127.0.0.1:9501"):
            assert len(list(targets.folder.iterdir())) == 2  # of the same name, from another folder
    assert list(targets.folder.iterdir()) == []


def test_targets_left_by_a_killed_controller_are_removed(tmp_path: Path) -> None:
    targets = Targets(tmp_path)
    gone = Process(os.getpid(), started=1)  # same pid, different start time
    entry = {"targets": ["127.0.0.1:9500"], "labels": {"run": "r0", CONTROLLER: str(gone)}}
    (tmp_path / "r0@0.json").write_text(json.dumps([entry]))
    others = tmp_path / "others.json"
    others.write_text('[{"targets": ["router:9100"]}]')
    with targets.registered(tmp_path / "r1", "127.0.0.1:9501"):
        targets.tidy()
        names = {path.name.partition("@")[0] for path in tmp_path.iterdir()}
        assert names == {"r1", "others.json"}
    assert others.exists()


def test_nothing_to_clean_up(tmp_path: Path) -> None:
    Targets(tmp_path / "never made").tidy()
    assert not (tmp_path / "never made").exists()
