"""A native node cannot reach the agents of its user's runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from testbed.telemetry.files import replacing
from testbed.telemetry.registry import Registry

pytestmark = pytest.mark.namespaces


def test_a_node_reaches_no_agent(
    driver: Any, live_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with TemporaryDirectory(dir="/var/tmp") as runs, live_in(Path(runs)) as known:
        Registry.of_user(os.environ, Path.home()).add(known.folder.path)
        with TemporaryDirectory(dir="/var/tmp") as elsewhere, live_in(Path(elsewhere)) as run:
            for path in (runs, elsewhere):
                Path(path).chmod(0o755)
            places = [one.folder.control / "agent.sock" for one in (known, run)]
            status, output = run.run(
                "w0", "entries:try_to_connect", arguments={"paths": ":".join(map(str, places))}
            )
            assert status == 0, output
            assert {*json.loads(output).values()} <= {"FileNotFoundError", "PermissionError"}


def test_a_node_reaches_no_agent_of_a_later_run_in_a_visible_folder(
    driver: Any, live_in: Any
) -> None:
    with (
        TemporaryDirectory(dir="/var/tmp") as earlier,
        live_in(Path(earlier)) as run,
        TemporaryDirectory(dir="/var/tmp") as runs,
    ):
        for path in (earlier, runs):
            Path(path).chmod(0o755)
        note = Path(runs) / "where"
        run.launch("w0", "entries:try_to_connect_later", arguments={"note": str(note)})
        with live_in(Path(runs)) as later:
            place = later.folder.control / "agent.sock"
            with replacing(note) as fresh:
                fresh.write_text(str(place))
                fresh.chmod(0o644)
            assert run.wait_for_exit("w0").status == 0, run.output("w0")
            assert later.client.running() == []
        # With the user's uid it sees the link to the socket, but not its target.
        found = json.loads(run.output("w0"))
        assert found[str(place)] in ("FileNotFoundError", "PermissionError")
